"""The client's view of the cluster: its nodes, its topics and the leader of each partition.

An answer replaces a partition's leader only if its epoch is not older than the known one. There are two exceptions: the
topic has another id and so is another topic, or the known leader refused or cannot be reached. The known epoch may have
been wrong, or may belong to a topic without an id that was recreated since (brokers before Kafka 2.8), and nothing else
would ever correct it; an outdated answer only costs a refused request. If an answer omits a topic or partition, or
reports an error for it, the known state stays: a gap in the metadata is not a reason to fail records, or to count fewer
partitions, which would send keys elsewhere. Topics that were not requested are not kept.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple
from uuid import UUID

from aioproducer.protocol.error_codes import ErrorCode
from aioproducer.protocol.messages import MetadataResponse, MetadataResponseTopic, NodeEndpoint
from aioproducer.protocol.wire import ZERO_UUID

__all__ = ["ClusterMetadata", "Loss", "Node", "PartitionMetadata", "TopicMetadata"]


#: How many answers must agree before a partition counts as gone for good; one alone may come from an outdated broker.
_ANSWERS_THAT_AGREE: Final = 2


class Node(NamedTuple):
    """A broker and its address."""

    id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        """Return its name in messages; a bootstrap server's negative id would mean nothing to a user."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" if self.id < 0 else f"{self.id} ({host}:{self.port})"

    @property
    def address(self) -> tuple[str, int]:
        """Its address; if it differs between two answers, the broker has moved."""
        return self.host, self.port


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """A partition and its leader; ``leader`` -1: no leader now, ``leader_epoch`` -1: any later epoch is newer.

    Replicas are not compared: nothing has to be done if only they change.
    """

    index: int
    leader: int
    leader_epoch: int
    error_code: int = 0
    replicas: tuple[int, ...] = field(default=(), compare=False)
    in_sync_replicas: tuple[int, ...] = field(default=(), compare=False)
    offline_replicas: tuple[int, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic and its partitions in the order of their numbers, from 0 without gaps."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionMetadata, ...]
    error_code: int = 0
    #: The number of partitions.
    partition_count: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "partition_count", len(self.partitions))


class Loss(NamedTuple):
    """The number of partitions that a topic had and has, and since when; none if brokers do not know the topic any more.

    ``answers`` is the number of successive answers that say so.
    """

    had: int
    has: int
    since: float
    answers: int = 1

    @property
    def is_final(self) -> bool:
        """Whether the partitions will not come back: the topic was created again, with fewer, and two answers agree.

        A topic that brokers do not know may come back: the answer may be outdated, or the permission to see it missing.
        """
        return self.has > 0 and self.answers >= _ANSWERS_THAT_AGREE


class ClusterMetadata:
    """The cluster as the last answers showed it. ``version`` grows with every change."""

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self.errors: dict[str, int] = {}  # a topic's error in the last answer
        self.answers: dict[str, int] = {}  # the number of answers about a topic, good or bad
        self.answered_at: dict[str, float] = {}
        self.unreachable: set[int] = set()  # the nodes whose last connection attempt failed
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.version = 0
        self.refreshed_at = 0.0  # when all wanted topics were last answered, or the client was started
        self._losses: dict[str, Loss] = {}
        self._new_losses: dict[str, Loss] = {}
        self._final_losses: dict[str, Loss] = {}
        self._used_at: dict[str, float] = {}

    # -- queries ------------------------------------------------------------------------------------------------------

    def leader(self, topic: str, partition: int) -> tuple[int, int] | None:
        """Return the leader's node id and epoch, or None without a leader whose address is known."""
        known = self.topics.get(topic)
        if known is None or not 0 <= partition < len(known.partitions):
            return None
        found = known.partitions[partition]
        return (found.leader, found.leader_epoch) if found.leader in self.nodes else None

    def lost(self, topic: str, partition: int) -> Loss | None:
        """Return how the topic lost this partition; None if it has it, or never had it."""
        loss = self._losses.get(topic)
        return loss if loss is not None and loss.has <= partition < loss.had else None

    def take_new_losses(self) -> Mapping[str, Loss]:
        """Return the topics that have lost partitions since the last call."""
        losses, self._new_losses = self._new_losses, {}
        return losses

    @property
    def final_losses(self) -> Mapping[str, Loss]:
        """The topics with partitions that will not come back."""
        return self._final_losses

    @property
    def wanted(self) -> list[str]:
        """The topics used recently, in the order in which they were first requested."""
        return list(self._used_at)

    @property
    def is_unsettled(self) -> bool:
        """Whether a wanted topic is being created or has a partition that waits for a leader."""
        return any(code in _PASSING for code in self.errors.values()) or any(
            partition.leader not in self.nodes for topic in self.topics.values() for partition in topic.partitions
        )

    # -- updates ------------------------------------------------------------------------------------------------------

    def touch(self, topic: str, now: float) -> bool:
        """Note that a topic is in use; returns whether it is new."""
        is_new = topic not in self._used_at
        self._used_at[topic] = now
        return is_new

    def forget_idle(self, now: float, idle_s: float) -> None:
        """Drop the topics that were not used for ``idle_s`` seconds (KIP-526)."""
        for topic in [topic for topic, used_at in self._used_at.items() if now - used_at > idle_s]:
            del self._used_at[topic]
            self.topics.pop(topic, None)
            self.errors.pop(topic, None)
            self.answers.pop(topic, None)
            self.answered_at.pop(topic, None)
            self._losses.pop(topic, None)
            self._final_losses.pop(topic, None)
            self.version += 1

    def forget_nodes(self) -> None:
        """Forget all brokers; topics keep their partitions, without leaders (KIP-1102)."""
        self.nodes = {}
        self.version += 1

    def update(
        self,
        response: MetadataResponse,
        *,
        requested: Container[str] | None = None,
        reliable_epochs: bool = True,
        now: float = 0.0,
    ) -> bool:
        """Apply an answer and return whether it changed anything; the module's docstring says what it may change.

        Only topics that were ``requested`` (None: all) and have not been forgotten since are applied.
        ``reliable_epochs`` is False for answers before version 9, whose leader epochs may be out of date (KAFKA-9212).
        """
        before = (self.nodes, dict(self.topics), dict(self.errors), dict(self._final_losses))
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
                self.answered_at[topic.name] = now
                had = self.topics.get(topic.name)
                self._update_topic(topic.name, topic, reliable_epochs, reachable)
                if had is not None:
                    self._note_loss(topic.name, had.partition_count, now)
        self._keep_leaders(before[0])
        if before == (self.nodes, self.topics, self.errors, self._final_losses):
            return False
        self.version += 1
        return True

    def _note_loss(self, topic: str, had: int, now: float) -> None:
        """Note that an answer knows fewer partitions than before, or not even the topic; or that it is over."""
        known = self._losses.get(topic)
        if known is not None:
            had = max(had, known.had)
        has = self.topics[topic].partition_count
        if self.errors.get(topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            has = 0
        elif topic in self.errors and known is not None:
            return  # the answer does not say
        if has >= had:
            self._losses.pop(topic, None)
            self._new_losses.pop(topic, None)
            self._final_losses.pop(topic, None)
        elif known is None or known.has != has:
            self._losses[topic] = self._new_losses[topic] = Loss(had, has, now)
            self._final_losses.pop(topic, None)
        elif not known.is_final:
            loss = self._losses[topic] = known._replace(answers=known.answers + 1)
            if loss.is_final:
                self._final_losses[topic] = loss

    def _keep_leaders(self, known: Mapping[int, Node]) -> None:
        """Keep the addresses of leaders that an answer omits, because it is older than a leader hint."""
        if known.keys() <= self.nodes.keys():
            return  # nearly always, and there may be 10,000 topics
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
        results = {
            each.partition_index: PartitionMetadata(
                each.partition_index,
                each.leader_id,
                each.leader_epoch if reliable_epochs else -1,
                each.error_code,
                tuple(each.replica_nodes),
                tuple(each.isr_nodes),
                tuple(each.offline_replicas),
            )
            for each in answer.partitions
            if each.partition_index >= 0
        }
        if not results or max(results) > 2 * len(results):
            self.errors[name] = ErrorCode.LEADER_NOT_AVAILABLE  # it is being created, or the answer is invalid
            return
        self.errors.pop(name, None)
        topic_id, known = answer.topic_id, self.topics.get(name)
        if known is None or not (known.topic_id == topic_id or ZERO_UUID in (known.topic_id, topic_id)):
            self.topics[name] = TopicMetadata(name, topic_id, _newer((), results))
        else:
            known_id = known.topic_id if topic_id == ZERO_UUID else topic_id
            believed = [
                each if each.leader in reachable else replace(each, leader_epoch=-1) for each in known.partitions
            ]
            self.topics[name] = TopicMetadata(name, known_id, _newer(believed, results))

    def distrust_leader(self, topic: str, partition: int, leader: int) -> None:
        """Accept the leader in the next answer, however old its epoch: this leader says that it does not lead."""
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
        """Apply a broker's hint about a partition's new leader (KIP-951).

        Only for a known partition, with a newer epoch, to a node whose address is known or in the hint.
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


#: Temporary errors of a topic that is being created or moved.
_PASSING = frozenset({ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.LISTENER_NOT_FOUND})


def _endpoint(leader: int, endpoints: Iterable[NodeEndpoint]) -> Node | None:
    found = next((each for each in endpoints if each.node_id == leader >= 0), None)
    return None if found is None else Node(found.node_id, found.host, found.port, found.rack)


def _newer(
    known: Sequence[PartitionMetadata], results: Mapping[int, PartitionMetadata]
) -> tuple[PartitionMetadata, ...]:
    """Merge the newer state of each partition; omitted ones stay as they were, or have no leader."""
    merged = list(known)
    merged.extend(
        results.get(index) or PartitionMetadata(index, -1, -1) for index in range(len(known), max(results) + 1)
    )
    for index, partition in results.items():
        if partition.leader_epoch < 0 or partition.leader_epoch >= merged[index].leader_epoch:
            merged[index] = partition
    return tuple(merged)
