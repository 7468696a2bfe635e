"""Metadata (api key 3): the nodes, the topics, and the partitions' leaders.

Null topics request all. A topic that is requested by name and does not exist is created if both the client and the broker
allow it; with ``auto_create_lag`` the first responses have LEADER_NOT_AVAILABLE, as in a real cluster during the election.
Version 10 returns topic ids, version 12 accepts them.
"""

from __future__ import annotations

from uuid import UUID

from aioproducer.protocol import ErrorCode
from aioproducer.protocol.messages import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aioproducer.protocol.wire import ZERO_UUID
from aioproducer.testing.broker.cluster_state import Node, Partition, Topic, is_valid_topic
from aioproducer.testing.broker.request import ApiHandler, RequestContext

__all__ = ["HANDLER"]


def handle(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    """The cluster as this node knows it."""
    cluster = context.cluster
    return MetadataResponse(
        brokers=[_broker(node) for node in cluster.nodes.values() if node.registered],
        cluster_id=cluster.cluster_id,
        controller_id=next((node.node_id for node in cluster.nodes.values() if node.registered), -1),
        topics=_all_topics(context) if request.topics is None else _asked_topics(context, request),
        error_code=ErrorCode.NONE,
    )


def _all_topics(context: RequestContext) -> list[MetadataResponseTopic]:
    cluster = context.cluster
    return [_topic(context, topic) for topic in cluster.topics.values() if not cluster.is_hidden(topic.name)]


def _asked_topics(context: RequestContext, request: MetadataRequest) -> list[MetadataResponseTopic]:
    return [
        _topic_by_id(context, asked.topic_id)
        if asked.name is None
        else _topic_by_name(context, asked.name, create=request.allow_auto_topic_creation)
        for asked in request.topics or ()
    ]


def _topic_by_id(context: RequestContext, topic_id: UUID) -> MetadataResponseTopic:
    topic = context.cluster.topic_by_id(topic_id)
    if topic is None or context.cluster.is_hidden(topic.name):
        return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
    return _topic(context, topic)


def _topic_by_name(context: RequestContext, name: str, *, create: bool) -> MetadataResponseTopic:
    cluster = context.cluster
    if not is_valid_topic(name):
        return _no_topic(name, ErrorCode.INVALID_TOPIC_EXCEPTION)
    if cluster.is_hidden(name):
        return _no_topic(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    topic = cluster.topics.get(name)
    if topic is None:
        if not (create and cluster.auto_create_topics):
            return _no_topic(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        topic = cluster.create_topic(name, cluster.num_partitions)
        topic.lag = cluster.auto_create_lag
    if topic.lag > 0:
        topic.lag -= 1
        return _no_topic(name, ErrorCode.LEADER_NOT_AVAILABLE)
    return _topic(context, topic)


def _topic(context: RequestContext, topic: Topic) -> MetadataResponseTopic:
    injected = context.plan.injected_for(topic.name)
    if injected is not None:
        return _no_topic(topic.name, injected.code)
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id if context.node.release.has_topic_ids else ZERO_UUID,
        partitions=[
            _partition(context, topic, partition)
            for partition in topic.partitions
            if not context.cluster.is_hidden(topic.name, partition.index)
        ],
    )


def _partition(context: RequestContext, topic: Topic, partition: Partition) -> MetadataResponsePartition:
    injected = context.plan.injected_for(topic.name, partition.index)
    code = ErrorCode.NONE if partition.leader != -1 else ErrorCode.LEADER_NOT_AVAILABLE
    nodes = context.cluster.nodes
    return MetadataResponsePartition(
        error_code=code if injected is None else injected.code,
        partition_index=partition.index,
        leader_id=partition.leader if injected is None else -1,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        offline_replicas=[node_id for node_id in partition.replicas if not nodes[node_id].registered],
    )


def _no_topic(name: str, code: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, topic_id=ZERO_UUID)


def _broker(node: Node) -> MetadataResponseBroker:
    return MetadataResponseBroker(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)


def _partitions(context: RequestContext, request: MetadataRequest) -> dict[str, frozenset[int]]:
    if request.topics is None:
        return {name: frozenset() for name in context.cluster.topics}
    by_id = (context.cluster.topic_by_id(asked.topic_id) for asked in request.topics if asked.name is None)
    names = [asked.name for asked in request.topics if asked.name is not None]
    return {name: frozenset() for name in [*names, *(topic.name for topic in by_id if topic is not None)]}


HANDLER = ApiHandler.of(MetadataRequest, handle, partitions=_partitions)
