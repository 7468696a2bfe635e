"""The project's own client: ``enqueue``, ``send``, both from threads, ``send_many``, and ``send_table`` if it exists."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Final, Unpack

from aioproducer import Producer, SyncProducer
from aioproducer.config import ProducerOptions
from benchmarks.cases import Workload
from benchmarks.clients.asynchronous import AsynchronousClient
from benchmarks.clients.loops import blocking
from benchmarks.job import BATCH_SIZE, BUFFER_MEMORY, Job
from benchmarks.measure import Figures, Stopwatch, in_threads, lone, throughput
from benchmarks.memory import broker_paused, encoded_bytes, growth, resident_bytes
from benchmarks.unavailable import Unavailable, optional

__all__ = ["WORKLOADS"]


def _producer(job: Job, **more: Unpack[ProducerOptions]) -> Producer:
    options: ProducerOptions = {"acks": "all", "enable_idempotence": True, **more}
    if not job.case.defaults:
        options |= {"batch_size": BATCH_SIZE, "linger_ms": job.case.linger_ms, "buffer_memory": BUFFER_MEMORY}
        options["compression_type"] = job.case.codec
    return Producer(job.servers, **options)


def _sync_producer(job: Job) -> SyncProducer:
    return SyncProducer(_producer(job).config)


_CLIENT: Final = AsynchronousClient(
    producer=_producer, put=attrgetter("enqueue"), send=attrgetter("send"), send_alone=attrgetter("send")
)


async def _transactions(job: Job) -> Figures:
    topic, records = job.topic, job.transaction()
    async with _producer(job, transactional_id=topic) as producer:

        async def one() -> None:
            async with producer.transaction() as txn:
                for value, partition in records:
                    await txn.enqueue(topic, value, partition=partition)

        await lone(one, job.warm_up_transactions)
        return await lone(one, job.transactions)


def _threads(job: Job) -> Figures:
    topic = job.topic
    with _sync_producer(job) as producer:

        def put(count: int) -> None:
            enqueue = producer.enqueue
            for delivery in [enqueue(topic, value) for value in job.values(count)]:
                delivery.result()

        in_threads(put, job.warm_up, job.case.threads)
        with Stopwatch() as watch:
            in_threads(put, job.records, job.case.threads)
    return throughput(watch, job)


def _threads_lone(job: Job) -> Figures:
    (value,) = job.values(1)
    with _sync_producer(job) as producer:

        def send(count: int) -> None:
            for _ in range(count):
                producer.send(job.topic, value)

        in_threads(send, job.warm_up, job.case.threads)
        with Stopwatch() as watch:
            in_threads(send, job.records, job.case.threads)
    return throughput(watch, job)


async def _bulk(job: Job) -> Figures:
    values = job.values()
    async with _producer(job) as producer:
        await producer.send_many(job.topic, values[: job.warm_up])
        with Stopwatch() as watch:
            result = await producer.send_many(job.topic, values)
    return throughput(watch, job) | {"counted": result.count}


async def _table(job: Job) -> Figures:
    send_table: Callable[..., Any] | None = getattr(Producer, "send_table", None)
    if send_table is None:
        raise Unavailable("This version of aioproducer has no Producer.send_table yet.")
    pyarrow = optional("pyarrow")
    columns = {"value": job.values()} | ({"key": job.keys()} if job.case.keyed else {})
    table = pyarrow.table({name: pyarrow.array(column, pyarrow.binary()) for name, column in columns.items()})
    names = {name: name for name in columns}
    async with _producer(job) as producer:
        await send_table(producer, job.topic, table.slice(0, job.warm_up), **names)
        with Stopwatch() as watch:
            await send_table(producer, job.topic, table, **names)
    return throughput(watch, job)


async def _memory(job: Job) -> Figures:
    values, encoded = job.values(), encoded_bytes(job)
    async with _producer(job) as producer:
        await _CLIENT.burst(producer, job, job.warm_up)
        with broker_paused(job):
            before = resident_bytes()
            kept = []
            for value in values:
                delivery = await producer.enqueue(job.topic, value)
                if job.case.keep:
                    kept.append(delivery)
            figures = growth(before, encoded)
        await producer.flush()
    return figures


WORKLOADS: Final[Mapping[Workload, Callable[[Job], Figures]]] = {
    **_CLIENT.workloads(),
    Workload.TRANSACTIONS: blocking(_transactions),
    Workload.THREADS: _threads,
    Workload.THREADS_LONE: _threads_lone,
    Workload.BULK: blocking(_bulk),
    Workload.TABLE: blocking(_table),
    Workload.MEMORY: blocking(_memory),
}
