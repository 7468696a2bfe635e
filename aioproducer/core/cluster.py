"""What is known of the cluster: its nodes, its topics, and who leads each partition.

Knowledge only ever gets newer: a partition's leader is taken from an answer only if its epoch is not older than the one
that is known - unless the topic has another id, and so is another topic. What an answer leaves out, or reports with an
error, keeps what is known of it: a gap in the metadata is no reason to fail records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple
from uuid import UUID

from aioproducer.protocol.error_codes import ErrorCode
from aioproducer.protocol.messages import MetadataResponse, MetadataResponseTopic, NodeEndpoint
from aioproducer.protocol.wire import ZERO_UUID

__all__ = ["ClusterMetadata", "Node", "PartitionMetadata", "TopicMetadata"]


class Node(NamedTuple):
    """A broker, and where it listens."""

    id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"{self.id} ({self.host}:{self.port})"


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """A partition and its leader; ``leader`` -1: there is none now."""

    index: int
    leader: int
    leader_epoch: int
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic and its partitions in the order of their numbers, from 0 without gaps."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionMetadata, ...]
    error_code: int = 0

    @property
    def partition_count(self) -> int:
        """How many partitions there are."""
        return len(self.partitions)


class ClusterMetadata:
    """The cluster as the last answers showed it. ``version`` grows with every change."""

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self.errors: dict[str, int] = {}  # the last error of topics that were asked for in vain
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.version = 0
        self._used_at: dict[str, float] = {}

    # -- asking -------------------------------------------------------------------------------------------------------

    def leader(self, topic: str, partition: int) -> tuple[int, int] | None:
        """The node id and the epoch of a partition's leader, None where nobody is known to lead it."""
        known = self.topics.get(topic)
        if known is None or partition >= len(known.partitions):
            return None
        found = known.partitions[partition]
        return None if found.leader < 0 else (found.leader, found.leader_epoch)

    @property
    def wanted(self) -> list[str]:
        """The topics that somebody used lately, in the order in which they were first asked for."""
        return list(self._used_at)

    # -- learning -----------------------------------------------------------------------------------------------------

    def touch(self, topic: str, now: float) -> bool:
        """Note that a topic is in use; answers whether it is a new one."""
        is_new = topic not in self._used_at
        self._used_at[topic] = now
        return is_new

    def forget_idle(self, now: float, idle_s: float) -> None:
        """Drop the topics that nobody used for ``idle_s`` seconds (KIP-526)."""
        for topic in [topic for topic, used_at in self._used_at.items() if now - used_at > idle_s]:
            del self._used_at[topic]
            self.topics.pop(topic, None)
            self.errors.pop(topic, None)
            self.version += 1

    def update(self, response: MetadataResponse) -> None:
        """Take an answer in; see the module for what it may change."""
        if response.brokers:
            self.nodes = {
                broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack)
                for broker in response.brokers
            }
        self.cluster_id = response.cluster_id or self.cluster_id
        self.controller_id = response.controller_id
        for topic in response.topics:
            if topic.name is not None:
                self._update_topic(topic.name, topic)
        self.version += 1

    def _update_topic(self, name: str, answer: MetadataResponseTopic) -> None:
        if answer.error_code != ErrorCode.NONE:
            self.errors[name] = answer.error_code
            return
        partitions = _in_order(
            PartitionMetadata(each.partition_index, each.leader_id, each.leader_epoch, each.error_code)
            for each in answer.partitions
        )
        if not partitions:
            return
        self.errors.pop(name, None)
        known = self.topics.get(name)
        if known is not None and (known.topic_id == answer.topic_id or ZERO_UUID in (known.topic_id, answer.topic_id)):
            partitions = _newer(known.partitions, partitions)
        self.topics[name] = TopicMetadata(name, answer.topic_id, partitions)

    def apply_leader_hint(
        self, topic: str, partition: int, leader: int, leader_epoch: int, endpoints: Iterable[NodeEndpoint]
    ) -> bool:
        """Believe a broker that says who leads a partition instead of it (KIP-951).

        Only news about partitions that are known, from an epoch that is newer, to a node whose address is known or told.
        """
        known = self.topics.get(topic)
        if known is None or partition >= len(known.partitions):
            return False
        for endpoint in endpoints:
            if endpoint.node_id not in self.nodes:
                self.nodes[endpoint.node_id] = Node(endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack)
        found = known.partitions[partition]
        if leader not in self.nodes or leader_epoch <= found.leader_epoch:
            return False
        partitions = list(known.partitions)
        partitions[partition] = replace(found, leader=leader, leader_epoch=leader_epoch, error_code=0)
        self.topics[topic] = replace(known, partitions=tuple(partitions))
        self.version += 1
        return True


def _in_order(partitions: Iterable[PartitionMetadata]) -> tuple[PartitionMetadata, ...]:
    """The partitions by number, up to the first gap: a partition is found by its number as an index."""
    found = sorted(partitions, key=lambda partition: partition.index)
    whole = len(found)
    for expected, partition in enumerate(found):
        if partition.index != expected:
            whole = expected
            break
    return tuple(found[:whole])


def _newer(known: Sequence[PartitionMetadata], told: Sequence[PartitionMetadata]) -> tuple[PartitionMetadata, ...]:
    """Of each partition the newer news; partitions that were left out stay."""
    merged = list(known)
    for partition in told:
        if partition.index >= len(merged):
            merged.append(partition)
        elif partition.leader_epoch < 0 or partition.leader_epoch >= merged[partition.index].leader_epoch:
            merged[partition.index] = partition
    return tuple(merged)
