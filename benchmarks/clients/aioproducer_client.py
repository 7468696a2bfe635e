"""This client: enqueue and await each delivery, send, send_many, and send_table where it exists."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Unpack

from aioproducer import Delivery, Producer
from aioproducer.config import ProducerOptions
from benchmarks.cases import Workload
from benchmarks.clients.loops import blocking
from benchmarks.job import BATCH_SIZE, BUFFER_MEMORY, CONCURRENCY, Job
from benchmarks.measure import Figures, Stopwatch, concurrently, heartbeat, idleness, lone, throughput
from benchmarks.memory import broker_paused, encoded_bytes, growth, resident_bytes
from benchmarks.unavailable import Unavailable, optional

__all__ = ["WORKLOADS"]


def _producer(job: Job, **more: Unpack[ProducerOptions]) -> Producer:
    options: ProducerOptions = {"acks": "all", "enable_idempotence": True, **more}
    if not job.case.defaults:
        options |= {"batch_size": BATCH_SIZE, "linger_ms": job.case.linger_ms, "buffer_memory": BUFFER_MEMORY}
        options["compression_type"] = job.case.codec
    return Producer(job.servers, **options)


async def _enqueued(producer: Producer, job: Job, count: int) -> list[Delivery]:
    topic, values, enqueue = job.topic, job.values(count), producer.enqueue
    if job.case.keyed:
        return [await enqueue(topic, value, key=key) for key, value in zip(job.keys(count), values, strict=True)]
    if job.case.spread:
        partitions = itertools.cycle(range(job.case.partitions))
        return [await enqueue(topic, value, partition=next(partitions)) for value in values]
    return [await enqueue(topic, value) for value in values]


async def _burst(producer: Producer, job: Job, count: int) -> None:
    for delivery in await _enqueued(producer, job, count):
        await delivery


async def _pipelined(job: Job) -> Figures:
    async with _producer(job) as producer:
        await _burst(producer, job, job.warm_up)
        with Stopwatch() as watch:
            await _burst(producer, job, job.records)
    return throughput(watch, job)


async def _heartbeat(job: Job) -> Figures:
    async with _producer(job) as producer:
        await _burst(producer, job, job.warm_up)
        async with heartbeat() as heart:
            with Stopwatch() as watch:
                deliveries = await _enqueued(producer, job, job.records)
                await producer.flush()
        for delivery in deliveries:  # not while the heart beats: this loop is the caller's own
            await delivery
    return throughput(watch, job) | heart.figures()


async def _concurrent(job: Job) -> Figures:
    (value,) = job.values(1)
    async with _producer(job) as producer:
        one = partial(producer.send, job.topic, value)
        await concurrently(one, job.warm_up, CONCURRENCY)
        with Stopwatch() as watch:
            await concurrently(one, job.records, CONCURRENCY)
    return throughput(watch, job)


async def _lone(job: Job) -> Figures:
    (value,) = job.values(1)
    async with _producer(job) as producer:
        one = partial(producer.send, job.topic, value)
        await lone(one, job.warm_up)
        return await lone(one, job.records)


async def _transactions(job: Job) -> Figures:
    topic, records = job.topic, job.transaction()
    async with _producer(job, transactional_id=topic) as producer:

        async def one() -> None:
            async with producer.transaction() as txn:
                for value, partition in records:
                    await txn.enqueue(topic, value, partition=partition)

        await lone(one, job.warm_up_transactions)
        return await lone(one, job.transactions)


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


async def _idle(job: Job) -> Figures:
    async with _producer(job) as producer:
        for value in job.values(job.sent):
            await producer.send(job.topic, value)
        with Stopwatch() as watch:
            await asyncio.sleep(job.seconds)
    return idleness(watch)


async def _memory(job: Job) -> Figures:
    values, encoded = job.values(), encoded_bytes(job)
    async with _producer(job) as producer:
        await _burst(producer, job, job.warm_up)
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
    Workload.PIPELINED: blocking(_pipelined),
    Workload.CONCURRENT: blocking(_concurrent),
    Workload.LONE: blocking(_lone),
    Workload.TRANSACTIONS: blocking(_transactions),
    Workload.BULK: blocking(_bulk),
    Workload.TABLE: blocking(_table),
    Workload.IDLE: blocking(_idle),
    Workload.MEMORY: blocking(_memory),
    Workload.HEARTBEAT: blocking(_heartbeat),
}
