"""confluent-kafka's AIOProducer: each produce() is awaited for a future, which is awaited for the outcome."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

from benchmarks.cases import Workload
from benchmarks.clients.confluent import options
from benchmarks.clients.loops import blocking
from benchmarks.job import CONCURRENCY, Job
from benchmarks.measure import Figures, Stopwatch, concurrently, heartbeat, idleness, lone, throughput
from benchmarks.unavailable import optional

__all__ = ["WORKLOADS"]


@contextlib.asynccontextmanager
async def _producer(job: Job) -> AsyncIterator[Any]:
    settings: dict[str, Any] = {}
    if job.case.workload is Workload.CONCURRENT:
        # By default it sends a thousand at a time, or what there is after a second: fewer tasks would wait for that.
        settings = {"batch_size": 100, "buffer_timeout": 0.01}
    async with optional("confluent_kafka.aio").AIOProducer(options(job), **settings) as producer:
        yield producer


async def _buffered(producer: Any, job: Job, count: int) -> list[Any]:
    topic, values, produce = job.topic, job.values(count), producer.produce
    if job.case.keyed:
        return [await produce(topic, value, key=key) for key, value in zip(job.keys(count), values, strict=True)]
    if job.case.spread:
        partitions = itertools.cycle(range(job.case.partitions))
        return [await produce(topic, value, partition=next(partitions)) for value in values]
    return [await produce(topic, value) for value in values]


async def _burst(producer: Any, job: Job, count: int) -> None:
    futures = await _buffered(producer, job, count)
    await producer.flush()  # it sends a thousand at a time; the rest would wait for a second
    for future in futures:
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

        async def one() -> None:
            await (await producer.produce(job.topic, value))

        await concurrently(one, job.warm_up, CONCURRENCY)
        with Stopwatch() as watch:
            await concurrently(one, job.records, CONCURRENCY)
    return throughput(watch, job)


async def _lone(job: Job) -> Figures:
    (value,) = job.values(1)
    async with _producer(job) as producer:

        async def one() -> None:
            future = await producer.produce(job.topic, value)
            await producer.flush()
            await future

        await lone(one, job.warm_up)
        return await lone(one, job.records)


async def _idle(job: Job) -> Figures:
    async with _producer(job) as producer:
        await _burst(producer, job, job.sent)
        with Stopwatch() as watch:
            await asyncio.sleep(job.seconds)
    return idleness(watch)


WORKLOADS: Final[Mapping[Workload, Callable[[Job], Figures]]] = {
    Workload.PIPELINED: blocking(_pipelined),
    Workload.BULK: blocking(_pipelined),
    Workload.CONCURRENT: blocking(_concurrent),
    Workload.LONE: blocking(_lone),
    Workload.IDLE: blocking(_idle),
    Workload.HEARTBEAT: blocking(_heartbeat),
}
