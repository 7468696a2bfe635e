"""One simulation: a seed decides the cluster, the producer's options, the program, and every fault."""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import time
from collections.abc import Awaitable, Generator, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final

from aioproducer import Producer
from aioproducer.accumulator.buffer_pool import BufferPool
from aioproducer.core.transactions.handle import TransactionHandle
from aioproducer.errors import KafkaError, NotWritten, ProducerStateError
from aioproducer.intake.hand_over import HandOver
from aioproducer.testing.broker.cluster_state import TopicSpec
from aioproducer.testing.broker.fake_cluster import FakeCluster
from aioproducer.testing.broker.log import TopicConfig
from aioproducer.transactions.client import TransactionCoordinatorClient
from aioproducer.types import TopicPartition
from tests.simulation.chaos import Chaos
from tests.simulation.faults import Dice, Story
from tests.simulation.judge import Rules, verdict
from tests.simulation.ledger import Ledger, Reported
from tests.simulation.loop import Livelock, SimulatedLoop
from tests.simulation.network import Network, Weather
from tests.simulation.numbers import hear, wear
from tests.simulation.shared import SharedTransactions
from tests.simulation.threads import Threads
from tests.simulation.traits import Traits
from tests.simulation.workload import Callers, Program, Transactions

__all__ = ["KINDS", "Outcome", "World", "simulate"]

#: The kinds of programs; a seed has one of them, unless it is chosen.
KINDS: Final = ("idempotent", "idempotent", "idempotent", "transactional", "transactional", "shared", "plain")

_TOPICS: Final = ("orders", "logs")
_TRANSACTIONAL_ID: Final = "shop"
#: Virtual seconds in which everything must be over once there are no more faults.
_PATIENCE_S: Final = 400.0
#: The bytes that the headers of the parts of split batches may owe: 61 bytes each, of a hundred parts.
_DEBT: Final = 6_100
#: One seed of so many looks for futures that nothing will ever end: that takes longer than most simulations.
_FUTURES_OF: Final = 50
#: The longest piece of work of a busy client, in virtual seconds.
_LONGEST_WORK_S: Final = 0.004
#: Virtual seconds in which a record must get to its partition then.
_SOON_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a seed. ``problems`` are the broken promises, ``faults`` the numbers of the faults that happened."""

    seed: int
    kind: str
    digest: str
    problems: Sequence[str]
    faults: Sequence[int]
    records: int
    seconds: float
    story: Sequence[str]


def simulate(
    seed: int,
    kind: str | None = None,
    *,
    left_out: Set[int] = frozenset(),
    keeps: bool = False,
    rules: Rules | None = None,
) -> Outcome:
    """Run a seed. ``left_out`` are faults that do not happen; ``keeps`` the story; ``rules`` other than the kind's."""
    world = World(seed, kind, left_out, keeps=keeps)
    problems = world.run()
    judged = rules or (Rules(once=False, ordered=False) if world.kind == "plain" else Rules())
    return Outcome(
        seed,
        world.kind,
        world.story.digest,
        [*problems, *verdict(world.cluster.logs(), world.ledger, judged, world.erased, world.chaos.lost)],
        world.dice.happened,
        len(world.ledger.entries),
        world.loop.time(),
        world.story.lines,
    )


class World:
    """Everything of one simulation."""

    def __init__(self, seed: int, kind: str | None, left_out: Set[int], *, keeps: bool) -> None:
        self.seed = seed
        self.dice = dice = Dice(seed, left_out)
        chosen = dice.choice(KINDS)
        #: In fair weather nothing goes wrong, so the client has no reason to send anything twice.
        self.is_fair = dice.is_calm = dice.choice((True, False, False, False))
        self.kind = kind or chosen
        self.traits = Traits.of(seed, self.kind)
        self._work = Random(seed) if self.traits.is_busy else None
        self.story = Story(keeps=keeps)
        self.ledger = Ledger()
        self.loop = SimulatedLoop()
        self.cluster = FakeCluster(dice.choice((1, 3, 3)), auto_create_topics=False)
        self.cluster.transaction_version = dice.choice((0, 2))
        self.cluster.next_producer_epoch = dice.choice((0, 0, 32_766))
        for topic in _TOPICS:
            config = TopicConfig(max_message_bytes=dice.choice((1_048_588, 1_048_588, 400)))
            self.cluster.create_topic(topic, TopicSpec(dice.choice((1, 2, 5)), config=config))
        self.network = Network(self.loop, self.cluster, dice, Weather(dice), self.story)
        self.loop.network = self.network
        ids = [_TRANSACTIONAL_ID] if self.kind in ("transactional", "shared") else []
        self.chaos = Chaos(self.loop, self.cluster, self.network, dice, self.story, _TOPICS, ids, self.traits)
        self.pause_s = dice.choice((0.001, 0.05, 0.5))
        self.options = self._options()
        self.erased = self.chaos.erased
        self._pools: list[Any] = []
        self._producers: list[Producer] = []
        self._programs: list[Program] = []
        self._least_free = 0
        self._problems: list[str] = []

    def _options(self) -> Mapping[str, Any]:
        dice = self.dice
        request_ms = dice.choice((500, 2_000, 10_000))
        options: dict[str, Any] = {
            "linger_ms": dice.choice((0, 0, 5, 100)),
            "batch_size": dice.choice((150, 1_000, 262_144)),
            "buffer_memory": dice.choice((4_000, 100_000, 33_554_432)),
            "max_in_flight_requests_per_connection": dice.choice((1, 2, 5)),
            "request_timeout_ms": request_ms,
            "delivery_timeout_ms": request_ms + 100 + dice.choice((0, 3_000, 120_000)),
            "max_block_ms": dice.choice((50, 2_000, 60_000)),
            "retry_backoff_ms": dice.choice((10, 100)),
            "metadata_max_age_ms": dice.choice((500, 300_000)),
            "producer_id_expiration_ms": -1,
        }
        options["max_request_size"] = min(options["buffer_memory"], 1_048_576)
        options["batch_size"] = min(options["buffer_memory"], options["batch_size"])
        if self.kind == "shared":
            options["max_block_ms"] = 60_000
        elif self.kind == "transactional":
            options["transactional_id"] = _TRANSACTIONAL_ID
            options["max_block_ms"] = 60_000
        elif self.kind == "plain":
            options["enable_idempotence"] = False
            options["acks"] = dice.choice(("all", 1))
        return options

    def run(self) -> Sequence[str]:
        """Run the program; returns what went wrong beside the records."""
        self.loop.set_exception_handler(self._unhandled)
        with _clocks(self.loop, self._work):
            try:
                self.loop.run_until_complete(self._main())
            except Livelock as error:
                self._problems.append(f"stuck: {error}")
            except Exception as error:
                self._problems.append(f"raised: {type(error).__name__}: {error}")
        try:
            self._problems.extend(each for program in self._programs for each in program.problems)
            if self._least_free < -_DEBT:
                self._problems.append(f"overdrawn: {-self._least_free} bytes more than buffer_memory are in use")
            self._problems.extend(f"against the rules: {each}" for each in self.network.watch.problems)
            self._problems.extend(self._needless())
            self._problems.extend(self._left())
        finally:
            _end(self.loop)
        return self._problems

    def _look_at_memory(self, pool: BufferPool) -> None:
        self._least_free = min(self._least_free, pool.free)

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        self._problems.append(f"unhandled: {context.get('message')} {context.get('exception')!r}")

    def _make(self) -> Producer:
        return self._seeded(Producer(self.network.bootstrap_servers, **self.options))

    def _seeded(self, producer: Producer) -> Producer:
        producer._random.seed(self.dice.random.random())  # pyright: ignore[reportPrivateUsage]
        self._producers.append(producer)
        return producer

    async def _main(self) -> None:
        misfortunes = asyncio.create_task(self.chaos.run())
        calm = self.loop.call_later(self.dice.seconds(1.0, 30.0), self._calm, misfortunes)
        try:
            async with asyncio.timeout(10_000):
                await self._program()
        finally:
            calm.cancel()
            misfortunes.cancel()
            await asyncio.wait([misfortunes])

    def _calm(self, misfortunes: asyncio.Task[None]) -> None:
        misfortunes.cancel()
        self.chaos.mend()
        for program in self._programs if self.kind == "idempotent" else ():
            program.calm_since = self.loop.time()

    async def _program(self) -> None:
        common = (self.loop, self.dice, self.story, self.ledger, _TOPICS, self.pause_s)
        if self.kind == "transactional":
            await self._transactions(Transactions(*common))
            return
        if self.kind == "shared":
            await self._shared(SharedTransactions(*common))
            return
        producer = self._make()
        program = Callers(*common)
        callers = asyncio.create_task(
            program.run(await producer.start(), self.dice.choice((1, 3)), self.dice.choice((10, 80)))
        )
        engine = producer._engine  # pyright: ignore[reportPrivateUsage]
        assert engine is not None
        hear(engine.sequences, self.network.watch)
        if self.traits.is_worn:
            partitions = [TopicPartition(log.topic, log.partition) for log in self.cluster.logs()]
            wear(engine.sequences, self.cluster, self.network.watch, partitions, self.dice.choice((1, 20, 60)))
        hand_over = producer.hand_over if self.traits.has_threads else None
        threads = asyncio.sleep(0) if hand_over is None else self._run_threads(producer, hand_over, Threads(*common))
        self._pools.append(engine.pool)
        self.network.watch.look = partial(self._look_at_memory, engine.pool)
        self._programs.append(program)
        if self.dice.random.random() < 0.2:
            await asyncio.sleep(self.dice.seconds(0.0, 10.0))
            self.story.add(self.loop.time(), "the producer is closed")
            await producer.close(timeout=self.dice.seconds(0.0, 5.0))
        await callers
        await threads
        await self._finish(producer)
        if hand_over is not None:
            hand_over.end()

    def _run_threads(self, producer: Producer, hand_over: HandOver, threads: Threads) -> Awaitable[None]:
        self._programs.append(threads)
        count, records = self.dice.choice((1, 3)), self.dice.choice((10, 80))
        return asyncio.create_task(threads.run(producer, hand_over, count, records))

    async def _transactions(self, program: Transactions) -> None:
        """One program, or two that fence each other again and again."""
        async with asyncio.TaskGroup() as group:
            group.create_task(program.run(self._make, "shop", self.dice.choice((3, 8))))
            if self.dice.random.random() < 0.3:
                self.network.watch.has_rivals = True
                await asyncio.sleep(self.dice.seconds(0.0, 2.0))
                group.create_task(program.run(self._make, "rival", self.dice.choice((1, 4))))

    async def _shared(self, program: SharedTransactions) -> None:
        self.network.watch.has_rivals = True
        client = TransactionCoordinatorClient(
            self.network.bootstrap_servers, request_timeout_ms=self.options["request_timeout_ms"]
        )
        client._random.seed(self.dice.random.random())  # pyright: ignore[reportPrivateUsage]

        def attach(handle: TransactionHandle, writer: int) -> Producer:
            producer = Producer.attach(handle, self.network.bootstrap_servers, writer=writer, **self.options)
            return self._seeded(producer)

        async with client:
            await program.run(client, attach, _TRANSACTIONAL_ID, self.dice.choice((2, 5)))

    async def _finish(self, producer: Producer) -> None:
        """Once all is well, everything that was accepted must come to an end."""
        if not self.dice.is_calm:
            await asyncio.sleep(30.0)
        try:
            await producer.flush(timeout=_PATIENCE_S)
        except KafkaError as error:
            if isinstance(error, TimeoutError):
                self._problems.append(f"no progress: {error}")
        for topic in _TOPICS:
            for partition in range(len(self.cluster.topic(topic).partitions)):
                await self._prove(producer, topic, partition)
        await producer.close()

    async def _prove(self, producer: Producer, topic: str, partition: int) -> None:
        """Send a record; the first ones may find out that a connection is dead, but soon one must get there."""
        until = self.loop.time() + _SOON_S
        for number in itertools.count():
            entry = self.ledger.enter(f"last words for {partition}", number, topic, None)
            try:
                metadata = await producer.send(topic, entry.value, partition=partition, timestamp_ms=self.loop.now_ms())
            except ProducerStateError:  # it was closed in the middle of the program
                entry.reported = Reported.NOT_WRITTEN
                return
            except KafkaError as error:
                entry.reported = Reported.NOT_WRITTEN if isinstance(error, NotWritten) else Reported.UNKNOWN
                if self.loop.time() > until:
                    self._problems.append(f"no progress: {topic}-{partition} takes no records ({type(error).__name__})")
                    return
                await asyncio.sleep(0.1)
                continue
            entry.reported, entry.partition, entry.offset = Reported.WRITTEN, metadata.partition, metadata.offset
            return

    def _needless(self) -> Iterator[str]:
        retries = sum(producer.metrics()["record-retry-total"] for producer in self._producers)
        is_split = any(producer.metrics()["batch-split-total"] for producer in self._producers)
        has_failed = any(producer.metrics()["record-error-total"] for producer in self._producers)
        if self.is_fair and retries and not is_split and not has_failed:
            yield f"needless: {retries:g} records were sent again in fair weather"

    def _left(self) -> Iterator[str]:
        for task in asyncio.all_tasks(self.loop):
            yield f"left behind: the task {task.get_name()}"
        yield from (f"left behind: the timer {name}" for name in self.loop.timers())
        for pool in self._pools:
            if pool.used:
                yield f"left behind: {pool.used} bytes of buffer_memory"
        yield from (f"left behind: the connection to node {wire.node_id}" for wire in self.network.open)
        if self.seed % _FUTURES_OF == 0:
            yield from (f"left behind: {future!r}" for future in _pending(self.loop))


@contextmanager
def _clocks(loop: SimulatedLoop, work: Random | None) -> Generator[None]:
    """Let the clocks of `time` be simulated; no other way in exists, and none is wanted in the producer.

    The producer stamps records by `time.time_ns`, and measures how long its own work takes by `time.perf_counter`: here it
    takes no time, or up to four milliseconds each time that it looks.
    """

    def perf_counter() -> float:
        if work is not None:
            loop.stall(round(work.random() * _LONGEST_WORK_S, 6))
        return loop.time()

    originals, disabled = (time.time_ns, time.perf_counter, time.monotonic), logging.root.manager.disable
    time.time_ns, time.perf_counter, time.monotonic = loop.time_ns, perf_counter, loop.time
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        time.time_ns, time.perf_counter, time.monotonic = originals
        logging.disable(disabled)


def _pending(loop: SimulatedLoop) -> Sequence[asyncio.Future[Any]]:
    gc.collect()
    # By its type: `isinstance` would ask each object for its class, and Django's settings, for example, raise then.
    futures: list[asyncio.Future[Any]] = [each for each in gc.get_objects() if issubclass(type(each), asyncio.Future)]
    return [each for each in futures if each.get_loop() is loop and not each.done()]


def _ignore(loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
    """The exceptions of tasks that had to be cancelled."""


def _end(loop: SimulatedLoop) -> None:
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.set_exception_handler(_ignore)
        try:
            loop.run_until_complete(asyncio.wait(left, timeout=60.0))
        except Livelock:
            gc.collect()
    loop.close()
