"""The cluster as ``list_topics()`` returns it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from aioproducer.contrib.confluent.errors import KafkaError, error_of
from aioproducer.types import ClusterInfo, TopicInfo

__all__ = ["BrokerMetadata", "ClusterMetadata", "PartitionMetadata", "TopicMetadata", "described"]

_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


@dataclass
class BrokerMetadata:
    """A broker: id, host and port."""

    id: int = -1
    host: str | None = None
    port: int = -1

    def __repr__(self) -> str:
        return f"BrokerMetadata({self.id}, {self.host}:{self.port})"

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.id}"


@dataclass
class PartitionMetadata:
    """A partition: the ids of its leader (-1 if there is none), its replicas, and those in sync."""

    id: int = -1
    leader: int = -1
    replicas: list[int] = field(default_factory=list[int])
    isrs: list[int] = field(default_factory=list[int])
    error: KafkaError | None = None

    def __repr__(self) -> str:
        return f"PartitionMetadata({self.id})"

    def __str__(self) -> str:
        return str(self.id)


@dataclass
class TopicMetadata:
    """A topic: its partitions by number, or why they are unknown."""

    topic: str | None = None
    partitions: dict[int, PartitionMetadata] = field(default_factory=dict[int, PartitionMetadata])
    error: KafkaError | None = None

    def __repr__(self) -> str:
        error = "" if self.error is None else f", {self.error}"
        return f"TopicMetadata({self.topic}, {len(self.partitions)} partitions{error})"

    def __str__(self) -> str:
        return str(self.topic)


@dataclass
class ClusterMetadata:
    """A cluster: its id, its controller's id, brokers by id, and topics by name.

    ``orig_broker_id`` is always -1 and ``orig_broker_name`` None: aioproducer does not report which broker answered.
    """

    cluster_id: str | None = None
    controller_id: int = -1
    brokers: dict[int, BrokerMetadata] = field(default_factory=dict[int, BrokerMetadata])
    topics: dict[str, TopicMetadata] = field(default_factory=dict[str, TopicMetadata])
    orig_broker_id: int = -1
    orig_broker_name: str | None = None

    def __repr__(self) -> str:
        return f"ClusterMetadata({self.cluster_id})"

    def __str__(self) -> str:
        return str(self.cluster_id)


def described(cluster: ClusterInfo, topic: str | None) -> ClusterMetadata:
    """Return the cluster with all of its topics, or with one."""
    brokers = {each.node_id: BrokerMetadata(each.node_id, each.host, each.port) for each in cluster.brokers}
    if topic is None:
        topics = {name: _topic(info) for name, info in cluster.topics.items()}
    else:
        found = cluster.topics.get(topic)
        topics = {topic: _unknown(topic) if found is None else _topic(found)}
    return ClusterMetadata(cluster.cluster_id, cluster.controller_id, brokers, topics)


def _topic(info: TopicInfo) -> TopicMetadata:
    return TopicMetadata(
        info.name,
        {
            each.partition: PartitionMetadata(
                each.partition, each.leader, list(each.replicas), list(each.in_sync_replicas)
            )
            for each in info.partitions
        },
    )


def _unknown(topic: str) -> TopicMetadata:
    code = KafkaError.UNKNOWN_TOPIC_OR_PART if _TOPIC.fullmatch(topic) else KafkaError.TOPIC_EXCEPTION
    return TopicMetadata(topic, error=error_of(code))
