"""confluent-kafka's synchronous Producer: produce() with a delivery callback, and flush() after a lone record."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from benchmarks.cases import Workload
from benchmarks.clients.loops import blocking
from benchmarks.job import BATCH_SIZE, Job
from benchmarks.measure import Figures, Stopwatch, idleness, in_threads, lone_blocking, throughput
from benchmarks.memory import broker_paused, encoded_bytes, growth, resident_bytes
from benchmarks.steady import Done, steady
from benchmarks.unavailable import optional

__all__ = ["WORKLOADS", "Outcomes", "options", "produce", "produce_with"]

#: Callbacks run in poll(); calling it for each record costs more than calling it now and then.
_POLL_EVERY: Final = 1_000
_WAIT: Final = 0.01
_TICK: Final = 0.001


class Outcomes:
    """Counts delivery callbacks, and stops at the first that reports a failure."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, error: object, message: object) -> None:
        if error is not None:
            raise RuntimeError(f"confluent-kafka did not deliver a record: {error}.")
        self.count += 1


def options(job: Job) -> dict[str, Any]:
    """The configuration of librdkafka."""
    found: dict[str, Any] = {"bootstrap.servers": job.servers, "acks": "all", "enable.idempotence": True}
    if job.case.workload in (Workload.LONE, Workload.THREADS_LONE):
        found["linger.ms"] = 0
    if not job.case.defaults:
        found |= {"batch.size": BATCH_SIZE, "linger.ms": job.case.linger_ms, "compression.type": job.case.codec}
        # 10,000 is its default for this one; 100 B records would not fill a batch.
        found |= {"batch.num.messages": BATCH_SIZE // 100, "queue.buffering.max.messages": 2_000_000}
        found |= {"partitioner": "murmur2_random"}  # as everybody else does it, for the same work
    return found


def _producer(job: Job) -> Any:
    return optional("confluent_kafka").Producer(options(job))


def _burst(producer: Any, job: Job, count: int) -> None:
    outcomes = Outcomes()
    values = job.values(count)
    if job.case.keyed:
        arguments: Iterable[dict[str, Any]] | None = ({"key": key} for key in job.keys(count))
    elif job.case.spread:
        arguments = ({"partition": number} for number in itertools.cycle(range(job.case.partitions)))
    else:
        arguments = None
    if arguments is None:
        produce(producer, job.topic, values, outcomes)
    else:
        produce_with(producer, job.topic, values, outcomes, arguments)
    while outcomes.count < count:
        producer.poll(_WAIT)


def produce(producer: Any, topic: str, values: Iterable[bytes | str], outcomes: Callable[..., object]) -> None:
    """Call ``produce()`` for each value, and ``poll()`` now and then; the caller waits for the outcomes."""
    produce, poll = producer.produce, producer.poll
    for number, value in enumerate(values):
        while True:
            try:
                produce(topic, value, on_delivery=outcomes)
                break
            except BufferError:
                poll(_WAIT)
        if not number % _POLL_EVERY:
            poll(0)


def produce_with(
    producer: Any, topic: str, values: Iterable[bytes | str], outcomes: Outcomes, arguments: Iterable[dict[str, Any]]
) -> None:
    """The same, with keys or partitions."""
    produce, poll = producer.produce, producer.poll
    for number, (value, extra) in enumerate(zip(values, arguments, strict=False)):
        while True:
            try:
                produce(topic, value, on_delivery=outcomes, **extra)
                break
            except BufferError:
                poll(_WAIT)
        if not number % _POLL_EVERY:
            poll(0)


def _pipelined(job: Job) -> Figures:
    producer = _producer(job)
    _burst(producer, job, job.warm_up)
    with Stopwatch() as watch:
        _burst(producer, job, job.records)
    return throughput(watch, job)


def _lone(job: Job) -> Figures:
    (value,) = job.values(1)
    producer = _producer(job)
    outcomes = Outcomes()

    def one() -> None:
        producer.produce(job.topic, value, on_delivery=outcomes)
        producer.flush()

    lone_blocking(one, job.warm_up)
    return lone_blocking(one, job.records)


async def _steady(job: Job) -> Figures:
    """In an event loop, as a service would use it; callbacks run in poll(), which each turn of the pacing calls."""
    topic, values, keys = job.topic, job.values(), job.keys()
    producer = _producer(job)
    polling = asyncio.create_task(_poll(producer))

    async def put(number: int, done: Done) -> None:
        producer.produce(topic, values[number % len(values)], keys[number % len(keys)], on_delivery=done)

    figures = await steady(put, job.case.rate, job.warm_up, job.records)
    polling.cancel()
    return figures


async def _poll(producer: Any) -> None:
    while True:
        await asyncio.sleep(_TICK)
        producer.poll(0)


def _transactions(job: Job) -> Figures:
    topic, records = job.topic, job.transaction()
    producer = optional("confluent_kafka").Producer(options(job) | {"transactional.id": topic})
    outcomes = Outcomes()
    producer.init_transactions()

    def one() -> None:
        producer.begin_transaction()
        for value, partition in records:
            producer.produce(topic, value, partition=partition, on_delivery=outcomes)
        producer.commit_transaction()

    lone_blocking(one, job.warm_up_transactions)
    return lone_blocking(one, job.transactions)


def _threads(job: Job) -> Figures:
    producer = _producer(job)
    reported: deque[object] = deque()  # to which any thread may append

    def put(count: int) -> None:
        produce(producer, job.topic, job.values(count), lambda error, _: reported.append(error))

    def burst(count: int) -> None:
        reported.clear()
        in_threads(put, count, job.case.threads)
        while len(reported) < count:
            producer.poll(_WAIT)
        if any(reported):
            raise RuntimeError(f"confluent-kafka did not deliver a record: {next(filter(None, reported))}.")

    burst(job.warm_up)
    with Stopwatch() as watch:
        burst(job.records)
    return throughput(watch, job)


def _threads_lone(job: Job) -> Figures:
    (value,) = job.values(1)
    producer = _producer(job)
    reported: deque[object] = deque()

    def send(count: int) -> None:
        for _ in range(count):
            producer.produce(job.topic, value, on_delivery=lambda error, _: reported.append(error))
            producer.flush()

    in_threads(send, job.warm_up, job.case.threads)
    with Stopwatch() as watch:
        in_threads(send, job.records, job.case.threads)
    if any(reported):
        raise RuntimeError(f"confluent-kafka did not deliver a record: {next(filter(None, reported))}.")
    return throughput(watch, job)


def _idle(job: Job) -> Figures:
    producer = _producer(job)
    _burst(producer, job, job.sent)
    with Stopwatch() as watch:
        time.sleep(job.seconds)
    return idleness(watch)


def _memory(job: Job) -> Figures:
    values, encoded = job.values(), encoded_bytes(job)
    producer = _producer(job)
    outcomes = Outcomes()
    _burst(producer, job, job.warm_up)
    with broker_paused(job):
        before = resident_bytes()
        produce(producer, job.topic, values, outcomes)
        figures = growth(before, encoded)
    while outcomes.count < job.records:
        producer.poll(_WAIT)
    return figures


WORKLOADS: Final[Mapping[Workload, Callable[[Job], Figures]]] = {
    Workload.PIPELINED: _pipelined,
    Workload.BULK: _pipelined,
    Workload.TABLE: _pipelined,
    Workload.LONE: _lone,
    Workload.STEADY: blocking(_steady),
    Workload.TRANSACTIONS: _transactions,
    Workload.THREADS: _threads,
    Workload.THREADS_LONE: _threads_lone,
    Workload.IDLE: _idle,
    Workload.MEMORY: _memory,
}
