"""The shared state of a fake cluster's nodes: topics, leaders, logs, producer ids, transactions, offsets of groups.

All nodes share one state, so replication is perfect and instant: a leader that moves takes the whole log with it.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from aioproducer.errors import ConfigError
from aioproducer.protocol import ApiKey
from aioproducer.protocol.messages import REQUESTS
from aioproducer.testing.broker.group_coordinator import GroupCoordinator
from aioproducer.testing.broker.group_offsets import OFFSETS_TOPIC, GroupOffsets
from aioproducer.testing.broker.log import LogRules, PartitionLog, TopicConfig
from aioproducer.testing.broker.transaction_coordinator import TransactionCoordinator
from aioproducer.testing.broker.transaction_state import ProducerIdAndEpoch, TopicPartition
from aioproducer.testing.broker.versions import NEWEST_RELEASE, Release, VersionRange, api_key_of, release

__all__ = [
    "DEFAULT_PRODUCER_ID_EXPIRATION_MS",
    "ClusterState",
    "CoordinatorType",
    "Node",
    "Partition",
    "Topic",
    "TopicSpec",
    "is_valid_topic",
]

_VALID_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
#: Brokers' default of producer.id.expiration.ms.
DEFAULT_PRODUCER_ID_EXPIRATION_MS = 86_400_000
#: Topic ids count up from here: they look like version 4 UUIDs and are the same in each run.
_FIRST_TOPIC_ID = 0xA10F0000_0000_4000_8000_000000000000


class CoordinatorType(IntEnum):
    """The type of a coordinator, with FindCoordinator's numbers."""

    GROUP = 0
    TRANSACTION = 1


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """The specification of a topic: number of partitions and replicas, and its configuration.

    ``replication_factor`` None: three, or as many as there are nodes.
    """

    partitions: int = 1
    replication_factor: int | None = None
    config: TopicConfig = field(default_factory=TopicConfig)


@dataclass(slots=True, eq=False)
class Node:
    """One broker: its address and supported versions.

    ``registered`` False: the cluster has noticed that it is gone, and metadata does not contain it. ``muted``: it accepts
    connections and bytes, but ignores them.
    """

    node_id: int
    release: Release
    host: str = "127.0.0.1"
    port: int = 0
    rack: str | None = None
    registered: bool = True
    muted: bool = False
    max_versions: dict[ApiKey, VersionRange | int] = field(default_factory=dict[ApiKey, "VersionRange | int"])

    def versions(self, api: ApiKey) -> VersionRange | None:
        """The range of versions that it supports, None if it does not know the API."""
        request = REQUESTS.get(api)
        range_ = self.release.ranges.get(api)
        if request is None or range_ is None:
            return None
        low, high = range_[0], min(range_[1], request.versions[1])
        override = self.max_versions.get(api)
        if isinstance(override, tuple):
            low, high = override
        elif override is not None:
            high = min(high, override) if override <= high else override
        return (low, high) if low <= high else None


@dataclass(slots=True, eq=False)
class Partition:
    """One partition: its log, and its leader; ``leader`` -1: none."""

    log: PartitionLog
    leader: int
    replicas: list[int]
    isr: list[int]
    leader_epoch: int = 0

    @property
    def index(self) -> int:
        """The partition's number."""
        return self.log.partition


@dataclass(slots=True, eq=False)
class Topic:
    """One topic; a topic that is deleted and created again has a new id."""

    name: str
    topic_id: uuid.UUID
    config: TopicConfig
    partitions: list[Partition] = field(default_factory=list[Partition])
    #: The number of metadata responses that will still report no leader.
    lag: int = 0

    def partition(self, index: int) -> Partition | None:
        """The partition of that number, if there is one."""
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


class ClusterState:
    """Topics and nodes, and methods for tests and requests to change them."""

    def __init__(
        self,
        brokers: int = 1,
        *,
        versions: str = NEWEST_RELEASE,
        auto_create_topics: bool = True,
        num_partitions: int = 1,
        cluster_id: str = "aioproducer-fake-cluster",
    ) -> None:
        if brokers < 1:
            raise ConfigError(f"A cluster needs at least one broker, not {brokers}.")
        self.cluster_id = cluster_id
        self.auto_create_topics = auto_create_topics
        #: The number of metadata responses without a leader for an auto-created topic.
        self.auto_create_lag = 0
        self.num_partitions = num_partitions
        self.nodes = {node_id: Node(node_id, release(versions)) for node_id in range(1, brokers + 1)}
        self.topics: dict[str, Topic] = {}
        self._by_id: dict[uuid.UUID, Topic] = {}  # with deleted ones
        self.next_producer_id = 1000
        self.next_producer_epoch = 0
        self.transactions = TransactionCoordinator(
            allocate_producer_id=self.allocate_producer_id,
            transaction_version=lambda: self.transaction_version,
            write_marker=self._write_marker,
        )
        self.groups = GroupOffsets()
        self.group_coordinator = GroupCoordinator(self.groups)
        self.features_epoch = 1
        self._transaction_version: int | None = None
        self._coordinators: dict[tuple[CoordinatorType, str], int] = {}
        self._coordinator_epoch = 0
        self._hidden: dict[tuple[str, int | None], int | None] = {}
        self._topics_made = 0

    # -- topics --------------------------------------------------------------------------------------------------------

    @property
    def default_replication(self) -> int:
        """The default number of replicas of a topic."""
        return min(3, len(self.nodes))

    def create_topic(self, name: str, spec: TopicSpec | int = 1) -> Topic:
        """Create a topic; its partitions are led by the nodes in turn.

        Raises ConfigError if the name or the specification is invalid, or the topic exists.
        """
        if isinstance(spec, int):
            spec = TopicSpec(partitions=spec)
        if not is_valid_topic(name):
            raise ConfigError(
                f"{name!r} is not a valid topic name: 1 to 249 characters out of a-z, A-Z, 0-9, . _ and -"
            )
        if name in self.topics:
            raise ConfigError(f"Topic {name!r} already exists.")
        if spec.partitions < 1:
            raise ConfigError(f"Topic {name!r} needs at least one partition, not {spec.partitions}.")
        replicas = self.default_replication if spec.replication_factor is None else spec.replication_factor
        if not 1 <= replicas <= len(self.nodes):
            raise ConfigError(f"Topic {name!r} cannot have {replicas} replicas in a cluster of {len(self.nodes)}.")
        self._topics_made += 1
        topic = Topic(name, uuid.UUID(int=_FIRST_TOPIC_ID + self._topics_made), spec.config)
        self.topics[name] = self._by_id[topic.topic_id] = topic
        self._grow(topic, spec.partitions, replicas)
        return topic

    def delete_topic(self, name: str) -> Topic:
        """Delete a topic with all its records; raises ConfigError if there is none of that name."""
        topic = self.topic(name)
        del self.topics[name]
        return topic

    def recreate_topic(self, name: str, partitions: int | None = None) -> Topic:
        """Delete a topic and create it again at once: empty, and with a new id."""
        old = self.delete_topic(name)
        replicas = len(old.partitions[0].replicas)
        return self.create_topic(name, TopicSpec(partitions or len(old.partitions), replicas, old.config))

    def add_partitions(self, name: str, total: int) -> None:
        """Increase the topic's partitions to ``total``; raises ConfigError if it has more."""
        topic = self.topic(name)
        if total < len(topic.partitions):
            raise ConfigError(f"Topic {name!r} has {len(topic.partitions)} partitions; it cannot shrink to {total}.")
        self._grow(topic, total, len(topic.partitions[0].replicas))

    def _grow(self, topic: Topic, total: int, replication_factor: int) -> None:
        ids = list(self.nodes)
        for index in range(len(topic.partitions), total):
            replicas = [ids[(index + copy) % len(ids)] for copy in range(replication_factor)]
            log = PartitionLog(topic.name, index, topic.config)
            topic.partitions.append(Partition(log, replicas[0], replicas, list(replicas)))

    def topic(self, name: str) -> Topic:
        """The topic of that name; raises ConfigError if there is none."""
        topic = self.topics.get(name)
        if topic is None:
            raise ConfigError(f"There is no topic {name!r} in the fake cluster. Topics: {sorted(self.topics)}.")
        return topic

    def topic_by_id(self, topic_id: uuid.UUID) -> Topic | None:
        """The topic with that id, if there is one."""
        topic = self._by_id.get(topic_id)
        return topic if topic is not None and self.topics.get(topic.name) is topic else None

    def partition(self, topic: str, partition: int) -> Partition:
        """One partition; raises ConfigError if it does not exist."""
        found = self.topic(topic).partition(partition)
        if found is None:
            raise ConfigError(f"Topic {topic!r} has no partition {partition}.")
        return found

    def logs(self, topic: str | None = None, partition: int | None = None) -> list[PartitionLog]:
        """The logs of a topic, or of all."""
        topics = self.topics.values() if topic is None else [self.topic(topic)]
        return [p.log for t in topics for p in t.partitions if partition in (None, p.index)]

    # -- leaders and nodes ---------------------------------------------------------------------------------------------

    def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Make another node the leader (-1: none), with the next leader epoch; it becomes a replica if necessary."""
        found = self.partition(topic, partition)
        if to != -1:
            self.node(to)
            found.replicas = found.replicas if to in found.replicas else [to, *found.replicas]
            found.isr = found.isr if to in found.isr else [to, *found.isr]
        found.leader = to
        found.leader_epoch += 1

    def elect_without(self, node_id: int) -> None:
        """Move the partitions that this node leads to another node in sync, or leave them without a leader."""
        for topic in self.topics.values():
            for partition in topic.partitions:
                others = [n for n in partition.isr if n != node_id and self.nodes[n].registered]
                partition.isr = others or partition.isr
                if partition.leader == node_id:
                    self.move_leader(topic.name, partition.index, others[0] if others else -1)

    def elect_with(self, node_id: int) -> None:
        """Add a returned node to the replicas in sync, and let it lead leaderless partitions."""
        for topic in self.topics.values():
            for partition in topic.partitions:
                if node_id in partition.replicas and node_id not in partition.isr:
                    partition.isr.append(node_id)
                if partition.leader == -1 and node_id in partition.isr:
                    self.move_leader(topic.name, partition.index, node_id)

    def node(self, node_id: int) -> Node:
        """The node; raises ConfigError if there is none of that number."""
        node = self.nodes.get(node_id)
        if node is None:
            raise ConfigError(f"There is no node {node_id} in the fake cluster. Nodes: {list(self.nodes)}.")
        return node

    def set_versions(
        self,
        versions: str | None = None,
        *,
        node: int | None = None,
        max_versions: Mapping[str, VersionRange | int] | None = None,
    ) -> None:
        """Let one node, or all, support the versions of another release, or up to the given versions."""
        for each in [self.node(node)] if node is not None else self.nodes.values():
            if versions is not None:
                each.release = release(versions)
                each.max_versions = {}
            each.max_versions.update({api_key_of(api): range_ for api, range_ in (max_versions or {}).items()})

    # -- producers -----------------------------------------------------------------------------------------------------

    def allocate_producer_id(self) -> ProducerIdAndEpoch:
        """An unused producer id, and its first epoch."""
        producer_id = self.next_producer_id
        self.next_producer_id += 1
        return ProducerIdAndEpoch(producer_id, self.next_producer_epoch)

    def forget_producer(
        self, producer_id: int, *, topic: str | None = None, partition: int | None = None, disown: bool = False
    ) -> None:
        """Lose the state of a producer in the given logs, or in all."""
        for log in self.logs(topic, partition):
            log.forget_producer(producer_id, disown=disown)

    def expire_producers(self, now_ms: int, expiration_ms: int = DEFAULT_PRODUCER_ID_EXPIRATION_MS) -> None:
        """Drop the state of producers whose last batch is too old by its own timestamp, in every log."""
        for log in self.logs():
            log.expire_producers(now_ms, expiration_ms)

    def fence_producer(self, producer_id: int) -> None:
        """Refuse this producer's batches with its current epoch, in every log."""
        logs = list(self.logs())
        states = [log.producers[producer_id] for log in logs if producer_id in log.producers]
        epoch = max((state.epoch for state in states), default=self.next_producer_epoch)
        for log in logs:
            log.fence_producer(producer_id, above_epoch=epoch)

    def log_rules(self, node: Node, produce_version: int) -> LogRules:
        """The rules by which this node checks a batch."""
        return LogRules(
            produce_version,
            node.release.knows_invalid_record,
            node.release.accepts_unknown_producers,
            node.release.limits_future_timestamps,
        )

    # -- transactions and coordinators ---------------------------------------------------------------------------------

    @property
    def transaction_version(self) -> int:
        """The finalized feature transaction.version: set by a test, or the default of the oldest node's release."""
        if self._transaction_version is not None:
            return self._transaction_version
        return min(node.release.transaction_version for node in self.nodes.values())

    @transaction_version.setter
    def transaction_version(self, level: int) -> None:
        self._transaction_version = level
        self.features_epoch += 1

    def coordinator(self, kind: CoordinatorType, key: str) -> Node | None:
        """The coordinator of a group or a transactional id: the first available node, unless a test moved it."""
        chosen = self._coordinators.get((kind, key))
        if chosen is not None:
            node = self.nodes.get(chosen)
            return node if node is not None and node.registered else None
        return next((node for node in self.nodes.values() if node.registered), None)

    def move_coordinator(self, kind: CoordinatorType, key: str, to: int) -> None:
        """Make another node the coordinator, -1: none."""
        if to != -1:
            self.node(to)
        self._coordinators[(kind, key)] = to
        self._coordinator_epoch += 1

    def _write_marker(self, where: TopicPartition, producer: ProducerIdAndEpoch, committed: bool, now_ms: int) -> None:
        name, index = where
        if name == OFFSETS_TOPIC:
            self.groups.end_transaction(index, producer, committed=committed)
            return
        topic = self.topics.get(name)
        partition = None if topic is None else topic.partition(index)
        if partition is None:
            return  # deleted in the meantime: Kafka gives up as well
        partition.log.end_transaction(
            *producer,
            committed=committed,
            leader_epoch=partition.leader_epoch,
            coordinator_epoch=self._coordinator_epoch,
            now_ms=now_ms,
        )

    # -- omissions in metadata -----------------------------------------------------------------------------------------

    def omit_from_metadata(self, topic: str, *, partition: int | None = None, times: int | None = 1) -> None:
        """Leave a topic, or one partition of it, out of the next metadata responses that would contain it."""
        self._hidden[(topic, partition)] = times

    def is_hidden(self, topic: str, partition: int | None = None) -> bool:
        """Whether this metadata response leaves it out; each call uses up one of the times."""
        if (topic, partition) not in self._hidden:
            return False
        times = self._hidden[(topic, partition)]
        if times is not None:
            self._hidden[(topic, partition)] = times - 1
            if times <= 1:
                del self._hidden[(topic, partition)]
        return True


def is_valid_topic(name: str) -> bool:
    """Whether Kafka accepts this topic name."""
    return _VALID_TOPIC.fullmatch(name) is not None and name not in {".", ".."}
