"""Random schedules: what is sent, when, and what goes wrong meanwhile, all from one seed.

A fault is a function that arms something at the broker; each trap brings the list of those it is about. At the end
everything heals, and the judge looks at what is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any, NamedTuple, TypeAlias

import pytest

from aioproducer import Producer, RecordMetadata, TopicPartition
from aioproducer.errors import KafkaError
from aioproducer.testing import FakeBroker
from aioproducer.testing.broker.faults import Hold
from tests.traps.judge import Audit, audited, payload

__all__ = ["ANY", "Fault", "World", "a_few_and_many", "begin_at", "run_schedule"]


ALL_PARTITIONS = [
    *(TopicPartition("orders", partition) for partition in range(3)),
    *(TopicPartition("payments", partition) for partition in range(2)),
]


class World(NamedTuple):
    """The objects that a fault may use."""

    broker: FakeBroker
    audit: Audit
    random: Random
    holds: list[Hold]

    @property
    def partition(self) -> TopicPartition:
        """Any partition."""
        return self.random.choice(ALL_PARTITIONS)

    @property
    def node(self) -> int:
        """Any node."""
        return self.random.choice(list(self.broker.cluster.nodes))


Fault: TypeAlias = "Callable[[World], object]"


def lose_answer(world: World) -> None:
    """The batch is written and the connection dies before the answer."""
    world.broker.drop_connection("Produce", when="after", node=world.node)


def lose_request(world: World) -> None:
    """The connection dies before the batch is written."""
    world.broker.drop_connection("Produce", when="before", node=world.node)


def swallow_answer(world: World) -> None:
    """Nothing comes any more from this connection, which goes on writing."""
    world.broker.swallow("Produce", applied=True, node=world.node)


def swallow_request(world: World) -> None:
    """Nothing arrives any more on this connection."""
    world.broker.swallow("Produce", applied=False, node=world.node)


def refuse(world: World) -> None:
    """Errors after which the batch is certainly not in the log, and those that leave it open."""
    topic, partition = world.partition
    error = world.random.choice(
        ["NOT_ENOUGH_REPLICAS", "NOT_LEADER_OR_FOLLOWER", "KAFKA_STORAGE_ERROR", "UNKNOWN_TOPIC_OR_PARTITION"]
    )
    world.broker.fail("Produce", error, topic=topic, partition=partition, times=world.random.randint(1, 4))


def refuse_after_write(world: World) -> None:
    """The batch is written, and the answer is an error."""
    topic, partition = world.partition
    error = world.random.choice(["REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "NOT_LEADER_OR_FOLLOWER"])
    world.broker.fail_after_apply("Produce", error, topic=topic, partition=partition)


def move_leader(world: World) -> None:
    """Another node leads a partition."""
    topic, partition = world.partition
    world.broker.move_leader(topic, partition, world.node)


def disconnect(world: World) -> None:
    """All connections of a node break."""
    world.broker.disconnect(world.node)


def omit_topic(world: World) -> None:
    """A metadata answer forgets a topic, or a partition."""
    topic, partition = world.partition
    world.broker.omit_from_metadata(topic, partition=world.random.choice([None, partition]))


def corrupt(world: World) -> None:
    """The batch is written, and the answer cannot be read."""
    kind = world.random.choice(["wrong_correlation_id", "truncated", "garbage", "oversize", "trailing", "http", "zero"])
    world.broker.corrupt_answer(kind, node=world.node)


def throttle(world: World) -> None:
    """The node asks for a break."""
    world.broker.throttle("Produce", world.random.randint(1, 30), node=world.node)


def hold_requests(world: World) -> None:
    """Requests wait at the broker for a while, and are carried out even if their sender has left."""
    _hold(world, world.broker.hold("Produce", node=world.node, applied=world.random.random() < 0.5))


def hold_reads(world: World) -> None:
    """The node reads nothing for a while: what is sent stays in the sockets."""
    _hold(world, world.broker.hold_reads(world.node))


def _hold(world: World, hold: Hold) -> None:
    world.holds.append(hold)
    asyncio.get_running_loop().call_later(world.random.random() * 0.15, hold.release)


#: Faults that any schedule may have: they leave the brokers' memory of producers alone.
ANY: Sequence[Fault] = (
    lose_answer,
    lose_request,
    swallow_answer,
    swallow_request,
    refuse,
    refuse_after_write,
    move_leader,
    disconnect,
    omit_topic,
    corrupt,
    throttle,
    hold_requests,
    hold_reads,
)


def random_options(random: Random) -> dict[str, Any]:
    """A producer that suffers quickly."""
    request_timeout_ms = random.choice([40, 80])
    return {
        "batch_size": random.choice([0, 150, 500, 4000]),
        "linger_ms": random.choice([0, 0, 5]),
        "request_timeout_ms": request_timeout_ms,
        "delivery_timeout_ms": request_timeout_ms + random.choice([5, 100, 400, 5000]),
        "max_in_flight_requests_per_connection": random.choice([1, 2, 5, 5, 5]),
        "compression_type": random.choice(["none", "none", "lz4", "zstd"]),
        "compression_threshold_bytes": random.choice([100, 32768]),
        "buffer_memory": random.choice([20_000, 1_000_000]),
        "max_request_size": 10_000,
        "max_block_ms": 2000,
        "reconnect_backoff_max_ms": 20,
        "close_timeout_ms": 5000,
    }


async def run_schedule(
    seed: int,
    faults: Sequence[Fault] = ANY,
    *,
    steps: int = 25,
    brokers: int = 3,
    cancel: float = 0.0,
    prepare: Callable[[World], object] = lambda world: None,
    first_sequence: int = 0,
    size_of_first: int = 0,
    **options: Any,
) -> Audit:
    """Send in bursts while faults happen, and have the judge check the result.

    ``cancel`` is the probability that a send is cancelled; ``size_of_first`` the size of a record that each topic takes
    before anything goes wrong.
    """
    random = Random(seed)
    with FakeBroker(brokers, topics={"orders": 3, "payments": 2}) as broker:
        async with audited(broker, **{**random_options(random), **options}) as audit:
            world = World(broker, audit, random, [])
            prepare(world)
            if size_of_first:
                for topic in broker.cluster.topics:
                    await audit.send(topic, size=size_of_first)
            if first_sequence:
                for partition in ALL_PARTITIONS:
                    await _send_until_acknowledged(audit, partition)
                    begin_at(broker, audit.producer, first_sequence, partition)
            async with healed(world):
                for _ in range(steps):
                    if random.random() < 0.4:
                        random.choice(faults)(world)
                    await _burst(world, cancel)
                    if random.random() < 0.5:
                        await asyncio.sleep(random.random() * 0.02)
            await _check_that_it_lives(audit)
    return audit


async def _check_that_it_lives(audit: Audit) -> None:
    """Nothing is wrong any more, so every partition must take records again, whatever happened to those before."""
    for partition in ALL_PARTITIONS:
        async with asyncio.timeout(30):
            await _send_until_acknowledged(audit, partition)


async def _send_until_acknowledged(audit: Audit, partition: TopicPartition) -> None:
    while not isinstance((await audit.send(*partition)).outcome, RecordMetadata):
        assert audit.producer.health().error is None or audit.producer.health().alive, audit.producer.health()
        await asyncio.sleep(0.001)


def begin_at(broker: FakeBroker, producer: Producer, sequence: int, partition: TopicPartition) -> None:
    """Make both sides believe that so many records were sent to the partition; one must have been acknowledged."""
    engine = producer._engine
    assert engine is not None
    state = engine.sequences._partitions[partition]
    state.next_sequence, state.last_acked = sequence, sequence - 1
    known = broker.cluster.partition(*partition).log.producers[state.producer_id].batches
    known[-1] = known[-1]._replace(first_sequence=sequence - 1, last_sequence=sequence - 1)


async def _burst(world: World, cancel: float) -> None:
    random, audit = world.random, world.audit
    topic, partition = world.partition
    for _ in range(random.randint(1, 12)):
        size = random.choice([40, 40, 120, 800])
        if random.random() >= cancel:
            await audit.enqueue(topic, partition, size)
            continue
        attempt = audit.attempt(topic, partition)
        task = asyncio.ensure_future(audit.producer.enqueue(topic, payload(*attempt.name, size), partition=partition))
        for _ in range(random.randint(0, 3)):
            await asyncio.sleep(0)
        task.cancel()
        try:
            audit.take(attempt, await task)  # it was buffered before the cancellation came
        except asyncio.CancelledError:
            audit.attempts.remove(attempt)  # and if it is in the log all the same, it is alien there
        except KafkaError as error:  # its time was over before
            attempt.outcome = error


@asynccontextmanager
async def healed(world: World) -> AsyncIterator[None]:
    """At the end nothing is wrong any more with the brokers."""
    try:
        yield
    finally:
        world.broker.clear_faults()
        for hold in world.holds:
            with suppress(RuntimeError):
                hold.release()
        for node in list(world.broker.cluster.nodes):
            world.broker.unmute(node)


def a_few_and_many(few: int = 4, many: int = 200, begin: int = 0) -> pytest.MarkDecorator:
    """Some seeds in every run, a dozen in the slow one, hundreds in the soak."""
    quick = [pytest.param(seed) for seed in range(begin, begin + few)]
    slow = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(begin + few, begin + 12)]
    soak = [pytest.param(seed, marks=pytest.mark.soak) for seed in range(begin + 12, begin + many)]
    return pytest.mark.parametrize("seed", quick + slow + soak)
