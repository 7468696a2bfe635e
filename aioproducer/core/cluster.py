"""What is known of the cluster: its nodes, its topics, and who leads each partition.

Knowledge gets newer: a partition's leader is taken from an answer only if its epoch is not older than the one that is
known - unless the topic has another id, and so is another topic, or the leader that is known proved to be none: it refused,
or cannot be reached. Its epoch may have been nonsense, or that of a topic without an id which was made again meanwhile
(brokers before Kafka 2.8), and nothing else would ever correct it; while an answer that is out of date costs a request
that is refused. What an answer leaves out, or reports with an
error, keeps what is known of it: a gap in the metadata is no reason to fail records, nor to count fewer partitions, which
would send keys elsewhere. What nobody asked for is not kept.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
        """As messages call it; a bootstrap server (its id is negative) has no number that a user would know."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" if self.id < 0 else f"{self.id} ({host}:{self.port})"

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens; two answers that differ in it tell of a broker that moved."""
        return self.host, self.port


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """A partition and its leader; ``leader`` -1: there is none now, ``leader_epoch`` -1: any later epoch is newer."""

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
    #: How many partitions there are.
    partition_count: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "partition_count", len(self.partitions))


class ClusterMetadata:
    """The cluster as the last answers showed it. ``version`` grows with every change."""

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self.errors: dict[str, int] = {}  # what the last answer said was wrong with a topic
        self.answers: dict[str, int] = {}  # how many answers told of a topic, good or bad
        self.unreachable: set[int] = set()  # the nodes that could not be connected when it was tried last
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.version = 0
        self._used_at: dict[str, float] = {}

    # -- asking -------------------------------------------------------------------------------------------------------

    def leader(self, topic: str, partition: int) -> tuple[int, int] | None:
        """The node id and the epoch of a partition's leader, None where nobody leads it whose address is known."""
        known = self.topics.get(topic)
        if known is None or not 0 <= partition < len(known.partitions):
            return None
        found = known.partitions[partition]
        return (found.leader, found.leader_epoch) if found.leader in self.nodes else None

    @property
    def wanted(self) -> list[str]:
        """The topics that somebody used lately, in the order in which they were first asked for."""
        return list(self._used_at)

    @property
    def is_unsettled(self) -> bool:
        """Whether a topic that is wanted is being created, or has a partition that waits for its leader."""
        return any(code in _PASSING for code in self.errors.values()) or any(
            partition.leader not in self.nodes for topic in self.topics.values() for partition in topic.partitions
        )

    # -- learning -----------------------------------------------------------------------------------------------------

    def touch(self, topic: str, now: float) -> bool:
        """Note that a topic is in use; returns whether it is a new one."""
        is_new = topic not in self._used_at
        self._used_at[topic] = now
        return is_new

    def forget_idle(self, now: float, idle_s: float) -> None:
        """Drop the topics that nobody used for ``idle_s`` seconds (KIP-526)."""
        for topic in [topic for topic, used_at in self._used_at.items() if now - used_at > idle_s]:
            del self._used_at[topic]
            self.topics.pop(topic, None)
            self.errors.pop(topic, None)
            self.answers.pop(topic, None)
            self.version += 1

    def forget_nodes(self) -> None:
        """Take no known broker for one any more; topics keep their partitions, without leaders (KIP-1102)."""
        self.nodes = {}
        self.version += 1

    def update(
        self, response: MetadataResponse, *, requested: Container[str] | None = None, reliable_epochs: bool = True
    ) -> bool:
        """Take an answer in, and tell whether it changed anything; see the module for what it may change.

        Of the topics only those count that were ``requested`` (None: all) and are not forgotten meanwhile.
        ``reliable_epochs`` is False for answers before version 9, whose leader epochs may be out of date (KAFKA-9212).
        """
        before = (self.nodes, dict(self.topics), dict(self.errors))
        reachable = before[0].keys() - self.unreachable
        if response.brokers:
            self.nodes = {
                broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack)
                for broker in response.brokers
                if broker.node_id >= 0
            }
        self.cluster_id = response.cluster_id or self.cluster_id
        self.controller_id = response.controller_id
        for topic in response.topics:
            if topic.name is not None and (
                requested is None or (topic.name in requested and topic.name in self._used_at)
            ):
                self.answers[topic.name] = self.answers.get(topic.name, 0) + 1
                self._update_topic(topic.name, topic, reliable_epochs, reachable)
        self._keep_leaders(before[0])
        if before == (self.nodes, self.topics, self.errors):
            return False
        self.version += 1
        return True

    def _keep_leaders(self, known: Mapping[int, Node]) -> None:
        """Keep the addresses of leaders that an answer does not tell, as one does that is older than a leader's hint."""
        for topic in self.topics.values():
            for partition in topic.partitions:
                if partition.leader in known and partition.leader not in self.nodes:
                    self.nodes[partition.leader] = known[partition.leader]

    def _update_topic(
        self, name: str, answer: MetadataResponseTopic, reliable_epochs: bool, reachable: Container[int]
    ) -> None:
        if answer.error_code != ErrorCode.NONE:
            self.errors[name] = answer.error_code
            return
        told = {
            each.partition_index: PartitionMetadata(
                each.partition_index, each.leader_id, each.leader_epoch if reliable_epochs else -1, each.error_code
            )
            for each in answer.partitions
            if each.partition_index >= 0
        }
        if not told or max(told) > 2 * len(told):
            self.errors[name] = ErrorCode.LEADER_NOT_AVAILABLE  # it is being created; or the answer makes no sense
            return
        self.errors.pop(name, None)
        topic_id, known = answer.topic_id, self.topics.get(name)
        if known is None or not (known.topic_id == topic_id or ZERO_UUID in (known.topic_id, topic_id)):
            self.topics[name] = TopicMetadata(name, topic_id, _newer((), told))
        else:
            known_id = known.topic_id if topic_id == ZERO_UUID else topic_id
            believed = [
                each if each.leader in reachable else replace(each, leader_epoch=-1) for each in known.partitions
            ]
            self.topics[name] = TopicMetadata(name, known_id, _newer(believed, told))

    def distrust_leader(self, topic: str, partition: int, leader: int) -> None:
        """Let the next answer say who leads a partition, however old its epoch: this leader said that it does not."""
        known = self.topics.get(topic)
        if known is None or not 0 <= partition < len(known.partitions):
            return
        if known.partitions[partition].leader == leader:
            partitions = list(known.partitions)
            partitions[partition] = replace(partitions[partition], leader_epoch=-1)
            self.topics[topic] = replace(known, partitions=tuple(partitions))

    def apply_leader_hint(
        self, topic: str, partition: int, leader: int, leader_epoch: int, endpoints: Iterable[NodeEndpoint]
    ) -> bool:
        """Believe a broker that says who leads a partition instead of it (KIP-951).

        Only news about partitions that are known, from an epoch that is newer, to a node whose address is known or told.
        """
        known = self.topics.get(topic)
        if known is None or not 0 <= partition < len(known.partitions):
            return False
        found = known.partitions[partition]
        node = self.nodes.get(leader) or _endpoint(leader, endpoints)
        if node is None or leader_epoch <= found.leader_epoch:
            return False
        self.nodes[leader] = node
        partitions = list(known.partitions)
        partitions[partition] = replace(found, leader=leader, leader_epoch=leader_epoch, error_code=0)
        self.topics[topic] = replace(known, partitions=tuple(partitions))
        self.version += 1
        return True


#: What a topic may say of itself while it is being created or moved, and says no more soon.
_PASSING = frozenset({ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.LISTENER_NOT_FOUND})


def _endpoint(leader: int, endpoints: Iterable[NodeEndpoint]) -> Node | None:
    found = next((each for each in endpoints if each.node_id == leader >= 0), None)
    return None if found is None else Node(found.node_id, found.host, found.port, found.rack)


def _newer(known: Sequence[PartitionMetadata], told: Mapping[int, PartitionMetadata]) -> tuple[PartitionMetadata, ...]:
    """Of each partition the newer news; those that were left out stay as they were, or have no leader."""
    merged = list(known)
    merged.extend(told.get(index) or PartitionMetadata(index, -1, -1) for index in range(len(known), max(told) + 1))
    for index, partition in told.items():
        if partition.leader_epoch < 0 or partition.leader_epoch >= merged[index].leader_epoch:
            merged[index] = partition
    return tuple(merged)
