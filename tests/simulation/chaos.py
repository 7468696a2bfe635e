"""The cluster's misfortunes: nodes crash, leaders and coordinators move, requests are refused, the client's loop stalls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from aioproducer.testing.broker.cluster_state import CoordinatorType
from aioproducer.testing.broker.fake_cluster import FakeCluster
from aioproducer.testing.broker.log import PartitionLog, ProducerState
from tests.simulation.faults import Dice, Story
from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import Network
from tests.simulation.traits import Traits

__all__ = ["Chaos"]

#: Errors that Kafka's brokers answer, and after which a client has to go on: by API, not applied.
_REFUSALS: Final[Mapping[str, Sequence[str]]] = {
    "Produce": (
        "NOT_LEADER_OR_FOLLOWER",
        "LEADER_NOT_AVAILABLE",
        "REQUEST_TIMED_OUT",
        "NOT_ENOUGH_REPLICAS",
        "KAFKA_STORAGE_ERROR",
        "NETWORK_EXCEPTION",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "CORRUPT_MESSAGE",
        "UNKNOWN_SERVER_ERROR",
        "FENCED_LEADER_EPOCH",
        "UNKNOWN_LEADER_EPOCH",
        "COORDINATOR_LOAD_IN_PROGRESS",
    ),
    "Metadata": ("REQUEST_TIMED_OUT", "LEADER_NOT_AVAILABLE", "UNKNOWN_SERVER_ERROR"),
    "InitProducerId": (
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_COORDINATOR",
        "CONCURRENT_TRANSACTIONS",
        "REQUEST_TIMED_OUT",
    ),
    "FindCoordinator": ("COORDINATOR_NOT_AVAILABLE", "REQUEST_TIMED_OUT"),
    "AddPartitionsToTxn": (
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_COORDINATOR",
        "CONCURRENT_TRANSACTIONS",
    ),
    "EndTxn": (
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_COORDINATOR",
        "CONCURRENT_TRANSACTIONS",
        "REQUEST_TIMED_OUT",
    ),
}
#: Errors after which the request may have been applied.
_APPLIED: Final[Mapping[str, Sequence[str]]] = {
    "Produce": ("REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "NETWORK_EXCEPTION"),
    "EndTxn": ("REQUEST_TIMED_OUT", "COORDINATOR_NOT_AVAILABLE"),
    "AddPartitionsToTxn": ("COORDINATOR_NOT_AVAILABLE",),
    "InitProducerId": ("REQUEST_TIMED_OUT",),
}
#: Errors after which a batch is given up, or gets other numbers; not applied.
_REJECTIONS: Final = (
    "INVALID_RECORD",
    "INVALID_TIMESTAMP",
    "INVALID_REQUIRED_ACKS",
    "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "UNKNOWN_PRODUCER_ID",
    "INVALID_PRODUCER_EPOCH",
)
#: The APIs whose responses are damaged.
_DAMAGED: Final = ("Produce", "Metadata", "InitProducerId", "EndTxn", "AddPartitionsToTxn")
_DAMAGES: Final = ("wrong_correlation_id", "truncated", "garbage", "oversize", "negative", "zero", "duplicate", "short")


class Chaos:
    """A task that brings one misfortune after the other, until it is cancelled; then `mend` ends them."""

    def __init__(
        self,
        loop: SimulatedLoop,
        cluster: FakeCluster,
        network: Network,
        dice: Dice,
        story: Story,
        topics: Sequence[str],
        transactional_ids: Sequence[str],
        traits: Traits,
    ) -> None:
        self._loop, self._cluster, self._network = loop, cluster, network
        self._dice, self._story, self._topics, self._ids = dice, story, topics, transactional_ids
        self._pause_s = dice.choice((0.05, 0.5, 3.0))
        #: The topics that were deleted and created again: what was in them is gone.
        self.erased: set[str] = set()
        #: The values of records that a node lost after it had written them.
        self.lost: set[bytes] = set()
        self._misfortunes: Sequence[Callable[[], str]] = (
            self._crash,
            self._crash,
            self._move_leader,
            self._move_leader,
            self._move_coordinator,
            self._refuse,
            self._refuse,
            self._refuse,
            self._refuse_after_all,
            self._reject,
            self._refuse_long,
            self._damage,
            self._throttle,
            self._hide,
            self._grow,
            self._recreate,
            self._mute,
            self._disconnect,
            self._stall,
            self._jump,
            *((self._lose_appends,) * 4 if traits.loses_appends else ()),
            *((self._forget,) * 3 if traits.is_forgotten else ()),
        )

    async def run(self) -> None:
        """Cause misfortunes until cancelled."""
        while True:
            await asyncio.sleep(self._dice.seconds(0.0, 2 * self._pause_s))
            misfortune = self._dice.choice(self._misfortunes)
            if self._dice.fault(0.7):
                self._story.add(self._loop.time(), misfortune())

    def mend(self) -> None:
        """Everything works from now on."""
        self._dice.is_calm = True
        self._cluster.faults.clear()
        for node_id in self._cluster.nodes:
            self._restart(node_id)
            self._unmute(node_id)
        self._story.add(self._loop.time(), "all is well from now on")

    # -- nodes --------------------------------------------------------------------------------------------------------

    def _node(self) -> int:
        return self._dice.choice(list(self._cluster.nodes))

    def _crash(self) -> str:
        node_id, elects = self._node(), self._dice.random.random() < 0.6
        if node_id in self._network.down:
            return f"node {node_id} is down already"
        self._network.stop(node_id)
        if elects:
            self._cluster.node(node_id).registered = False
            self._cluster.elect_without(node_id)
        self._loop.call_later(self._dice.seconds(0.01, 5.0), self._restart, node_id)
        return f"node {node_id} crashes{', and others lead its partitions' if elects else ''}"

    def _lose_appends(self) -> str:
        """A leader crashes, and what it appended last is on no other disk; with an unclean election, or without."""
        topic = self._cluster.topic(self._dice.choice(self._topics))
        partition = self._dice.choice(topic.partitions)
        if partition.leader in self._network.down or partition.leader < 0:
            return f"{topic.name}-{partition.index} has no leader"
        node_id, count = partition.leader, self._dice.choice((1, 1, 2, 6))
        self._network.stop(node_id)
        lost = _cut(partition.log, count)
        self.lost.update(lost)
        self._cluster.node(node_id).registered = False
        self._cluster.elect_without(node_id)
        self._loop.call_later(self._dice.seconds(0.01, 5.0), self._restart, node_id)
        return f"node {node_id} crashes, and {topic.name}-{partition.index} has lost {len(lost)} records"

    def _restart(self, node_id: int) -> None:
        if node_id in self._network.down:
            self._network.start(node_id)
            self._cluster.node(node_id).registered = True
            self._cluster.elect_with(node_id)
            self._story.add(self._loop.time(), f"node {node_id} is back")

    def _mute(self) -> str:
        node_id = self._node()
        self._cluster.node(node_id).muted = True
        self._loop.call_later(self._dice.seconds(0.01, 5.0), self._unmute, node_id)
        return f"node {node_id} ignores all requests"

    def _unmute(self, node_id: int) -> None:
        if self._cluster.node(node_id).muted:
            self._cluster.node(node_id).muted = False
            for wire in [each for each in self._network.open if each.node_id == node_id]:
                wire.crash()
            self._story.add(self._loop.time(), f"node {node_id} serves new connections")

    def _disconnect(self) -> str:
        node_id = self._node()
        for wire in [each for each in self._network.open if each.node_id == node_id]:
            wire.crash()
        return f"node {node_id} closes its connections"

    # -- topics and coordinators --------------------------------------------------------------------------------------

    def _move_leader(self) -> str:
        topic = self._cluster.topic(self._dice.choice(self._topics))
        partition = self._dice.choice(topic.partitions)
        to = self._dice.choice([n for n in partition.isr if n not in self._network.down] or [-1])
        self._cluster.move_leader(topic.name, partition.index, to)
        return f"node {to} leads {topic.name}-{partition.index}"

    def _move_coordinator(self) -> str:
        if not self._ids:
            return "no coordinator moves"
        name, to = self._dice.choice(self._ids), self._node()
        self._cluster.move_coordinator(CoordinatorType.TRANSACTION, name, to)
        return f"node {to} coordinates {name}"

    def _hide(self) -> str:
        topic, times = self._dice.choice(self._topics), self._dice.choice((1, 2, 5))
        self._cluster.omit_from_metadata(topic, times=times)
        return f"{times} metadata responses without {topic}"

    def _grow(self) -> str:
        topic = self._cluster.topic(self._dice.choice(self._topics))
        self._cluster.add_partitions(topic.name, len(topic.partitions) + 1)
        return f"{topic.name} has {len(topic.partitions)} partitions"

    def _recreate(self) -> str:
        topic = self._dice.choice(self._topics)
        if self._ids or self._dice.random.random() < 0.8:
            return "no topic is deleted"
        self._cluster.recreate_topic(topic)
        self.erased.add(topic)
        return f"{topic} is deleted and created again"

    def _forget(self) -> str:
        topic = self._dice.choice(self._topics)
        if self._network.watch.has_open_beginning(topic):
            return f"{topic} forgets no producer"
        producer_ids = sorted({each for log in self._cluster.logs(topic) for each in log.producers})
        for producer_id in producer_ids:
            self._cluster.forget_producer(producer_id, topic=topic, disown=True)
        return f"{topic} has forgotten {len(producer_ids)} producers"

    # -- responses ----------------------------------------------------------------------------------------------------

    def _refuse(self) -> str:
        api = self._dice.choice(list(_REFUSALS))
        error, times = self._dice.choice(_REFUSALS[api]), self._dice.choice((1, 1, 2, 5))
        self._cluster.faults.fail(api, error, times=times)
        return f"{times} {api} get {error}"

    def _refuse_after_all(self) -> str:
        api = self._dice.choice(list(_APPLIED))
        error = self._dice.choice(_APPLIED[api])
        self._cluster.faults.fail_after_apply(api, error)
        return f"a {api} is applied and gets {error}"

    def _reject(self) -> str:
        error = self._dice.choice(_REJECTIONS)
        self._cluster.faults.fail("Produce", error)
        return f"a Produce gets {error}"

    def _refuse_long(self) -> str:
        self._cluster.faults.fail("Produce", "NOT_ENOUGH_REPLICAS", times=60)
        return "60 Produce get NOT_ENOUGH_REPLICAS"

    def _damage(self) -> str:
        api, damage = self._dice.choice(_DAMAGED), self._dice.choice(_DAMAGES)
        self._cluster.faults.corrupt_answer(damage, api=api)
        return f"the response to a {api} is damaged: {damage}"

    def _throttle(self) -> str:
        api, ms = self._dice.choice(("Produce", "Metadata")), self._dice.choice((10, 300, 2_000))
        self._cluster.faults.throttle(api, ms)
        return f"a {api} is throttled for {ms} ms"

    # -- the client ---------------------------------------------------------------------------------------------------

    def _stall(self) -> str:
        seconds = self._dice.seconds(0.1, 5.0)
        self._loop.stall(seconds)
        return f"the event loop stalls for {seconds} s"

    def _jump(self) -> str:
        ms = self._dice.choice((-7_200_000, -1_000, 1_000, 7_200_000))
        self._loop.jump(ms)
        return f"the wall clock jumps by {ms} ms"


def _cut(log: PartitionLog, count: int) -> Sequence[bytes]:
    """Take the last batches out of a log, and the producers' state to what the rest says; returns the lost values."""
    kept, cut = log.batches[:-count], log.batches[-count:]
    log.batches = kept
    log.end_offset = kept[-1].last_offset + 1 if kept else log.start_offset
    log.producers = {}
    for batch in kept:
        state = log.producers.setdefault(batch.header.producer_id, ProducerState(batch.header.producer_epoch))
        state.remember(batch.header, batch.base_offset, batch.header.max_timestamp)
    return [record.value or b"" for batch in cut for record in batch.records]
