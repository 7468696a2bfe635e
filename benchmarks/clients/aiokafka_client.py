"""aiokafka: send, and await each future; send_and_wait."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any, Final

from benchmarks.cases import Workload
from benchmarks.clients.loops import blocking
from benchmarks.job import BATCH_SIZE, CONCURRENCY, Job
from benchmarks.measure import Figures, Stopwatch, concurrently, heartbeat, idleness, lone, throughput
from benchmarks.unavailable import optional

__all__ = ["WORKLOADS"]


@contextlib.asynccontextmanager
async def _producer(job: Job, **more: object) -> AsyncIterator[Any]:
    options: dict[str, object] = {"acks": "all", "enable_idempotence": True, **more}
    if not job.case.defaults:
        codec = None if job.case.codec == "none" else job.case.codec
        options |= {"max_batch_size": BATCH_SIZE, "linger_ms": job.case.linger_ms, "compression_type": codec}
    async with optional("aiokafka").AIOKafkaProducer(bootstrap_servers=job.servers, **options) as producer:
        yield producer


async def _buffered(producer: Any, job: Job, count: int) -> list[Any]:
    topic, values, send = job.topic, job.values(count), producer.send
    if job.case.keyed:
        return [await send(topic, value, key=key) for key, value in zip(job.keys(count), values, strict=True)]
    if job.case.spread:
        partitions = itertools.cycle(range(job.case.partitions))
        return [await send(topic, value, partition=next(partitions)) for value in values]
    return [await send(topic, value) for value in values]


async def _burst(producer: Any, job: Job, count: int) -> None:
    for future in await _buffered(producer, job, count):
        await future


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
                futures = await _buffered(producer, job, job.records)
                await producer.flush()
        for future in futures:
            await future
    return throughput(watch, job) | heart.figures()


async def _concurrent(job: Job) -> Figures:
    (value,) = job.values(1)
    async with _producer(job) as producer:
        one = partial(producer.send_and_wait, job.topic, value)
        await concurrently(one, job.warm_up, CONCURRENCY)
        with Stopwatch() as watch:
            await concurrently(one, job.records, CONCURRENCY)
    return throughput(watch, job)


async def _lone(job: Job) -> Figures:
    (value,) = job.values(1)
    async with _producer(job) as producer:
        one = partial(producer.send_and_wait, job.topic, value)
        await lone(one, job.warm_up)
        return await lone(one, job.records)


async def _transactions(job: Job) -> Figures:
    topic, records = job.topic, job.transaction()
    async with _producer(job, transactional_id=topic) as producer:

        async def one() -> None:
            async with producer.transaction():
                for value, partition in records:
                    await producer.send(topic, value, partition=partition)

        await lone(one, job.warm_up_transactions)
        return await lone(one, job.transactions)


async def _idle(job: Job) -> Figures:
    async with _producer(job) as producer:
        for value in job.values(job.sent):
            await producer.send_and_wait(job.topic, value)
        with Stopwatch() as watch:
            await asyncio.sleep(job.seconds)
    return idleness(watch)


WORKLOADS: Final[Mapping[Workload, Callable[[Job], Figures]]] = {
    Workload.PIPELINED: blocking(_pipelined),
    Workload.BULK: blocking(_pipelined),
    Workload.CONCURRENT: blocking(_concurrent),
    Workload.TRANSACTIONS: blocking(_transactions),
    Workload.LONE: blocking(_lone),
    Workload.IDLE: blocking(_idle),
    Workload.HEARTBEAT: blocking(_heartbeat),
}
