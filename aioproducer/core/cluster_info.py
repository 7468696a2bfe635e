"""The cluster as a response with metadata describes it, in the types that users get."""

from __future__ import annotations

from aioproducer.core.cluster import TopicMetadata
from aioproducer.protocol.messages import MetadataResponse, MetadataResponseTopic
from aioproducer.protocol.wire import ZERO_UUID
from aioproducer.types import BrokerInfo, ClusterInfo, PartitionInfo, TopicInfo

__all__ = ["cluster_info", "partition_infos"]


def cluster_info(response: MetadataResponse) -> ClusterInfo:
    """The whole response, in the order of ids, names and numbers."""
    return ClusterInfo(
        response.cluster_id,
        response.controller_id,
        tuple(sorted(BrokerInfo(each.node_id, each.host, each.port, each.rack) for each in response.brokers)),
        {each.name: _topic(each.name, each) for each in sorted(response.topics, key=_name) if each.name is not None},
    )


def _name(topic: MetadataResponseTopic) -> str:
    return topic.name or ""


def _topic(name: str, topic: MetadataResponseTopic) -> TopicInfo:
    partitions = (
        PartitionInfo(
            name,
            each.partition_index,
            each.leader_id,
            each.leader_epoch,
            tuple(each.replica_nodes),
            tuple(each.isr_nodes),
            tuple(each.offline_replicas),
        )
        for each in topic.partitions
    )
    topic_id = None if topic.topic_id == ZERO_UUID else topic.topic_id
    return TopicInfo(name, topic_id, topic.is_internal, tuple(sorted(partitions)))


def partition_infos(topic: TopicMetadata) -> tuple[PartitionInfo, ...]:
    """The partitions of a topic as the client knows them."""
    return tuple(
        PartitionInfo(
            topic.name,
            each.index,
            each.leader,
            each.leader_epoch,
            each.replicas,
            each.in_sync_replicas,
            each.offline_replicas,
        )
        for each in topic.partitions
    )
