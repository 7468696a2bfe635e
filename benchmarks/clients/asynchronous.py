"""The workloads that every asynchronous client has; clients differ in their producers, and in the names of its methods."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.cases import Workload
from benchmarks.clients.loops import blocking
from benchmarks.job import CONCURRENCY, Job
from benchmarks.measure import Figures, Stopwatch, concurrently, heartbeat, idleness, lone, throughput
from benchmarks.steady import Done, steady

__all__ = ["AsynchronousClient"]


@dataclass(frozen=True)
class AsynchronousClient:
    """The way to use a client: its producer, and the names of its methods.

    ``put`` takes a record, and what it answers when awaited is awaited for the outcome. ``send`` and ``send_alone`` await
    the outcome of a record, among others or with none beside it. ``hurry`` has everything sent that was put in.
    """

    producer: Callable[[Job], AbstractAsyncContextManager[Any]]
    put: Callable[[Any], Callable[..., Awaitable[Awaitable[object]]]]
    send: Callable[[Any], Callable[[str, bytes], Awaitable[object]]]
    send_alone: Callable[[Any], Callable[[str, bytes], Awaitable[object]]]
    hurry: Callable[[Any], Callable[[], Awaitable[object]]] | None = None

    def workloads(self) -> Mapping[Workload, Callable[[Job], Figures]]:
        """Those that need no more than that; a list goes in record by record, where a client has nothing better."""
        return {
            Workload.PIPELINED: blocking(self._pipelined),
            Workload.BULK: blocking(self._pipelined),
            Workload.CONCURRENT: blocking(self._concurrent),
            Workload.LONE: blocking(self._lone),
            Workload.STEADY: blocking(self._steady),
            Workload.IDLE: blocking(self._idle),
            Workload.HEARTBEAT: blocking(self._heartbeat),
        }

    async def buffered(self, producer: Any, job: Job, count: int) -> list[Awaitable[object]]:
        """Put so many records in."""
        topic, values, put = job.topic, job.values(count), self.put(producer)
        if job.case.keyed:
            return [await put(topic, value, key=key) for key, value in zip(job.keys(count), values, strict=True)]
        if job.case.spread:
            partitions = itertools.cycle(range(job.case.partitions))
            return [await put(topic, value, partition=next(partitions)) for value in values]
        return [await put(topic, value) for value in values]

    async def burst(self, producer: Any, job: Job, count: int) -> None:
        """Put so many records in, and await each."""
        outcomes = await self.buffered(producer, job, count)
        if self.hurry is not None:
            await self.hurry(producer)()
        for outcome in outcomes:
            await outcome

    async def _pipelined(self, job: Job) -> Figures:
        async with self.producer(job) as producer:
            await self.burst(producer, job, job.warm_up)
            with Stopwatch() as watch:
                await self.burst(producer, job, job.records)
        return throughput(watch, job)

    async def _heartbeat(self, job: Job) -> Figures:
        async with self.producer(job) as producer:
            await self.burst(producer, job, job.warm_up)
            async with heartbeat() as heart:
                with Stopwatch() as watch:
                    outcomes = await self.buffered(producer, job, job.records)
                    await producer.flush()
            for outcome in outcomes:  # not while the heart beats: this loop is the caller's own
                await outcome
        return throughput(watch, job) | heart.figures()

    async def _concurrent(self, job: Job) -> Figures:
        (value,) = job.values(1)
        async with self.producer(job) as producer:
            one = partial(self.send(producer), job.topic, value)
            await concurrently(one, job.warm_up, CONCURRENCY)
            with Stopwatch() as watch:
                await concurrently(one, job.records, CONCURRENCY)
        return throughput(watch, job)

    async def _lone(self, job: Job) -> Figures:
        (value,) = job.values(1)
        async with self.producer(job) as producer:
            one = partial(self.send_alone(producer), job.topic, value)
            await lone(one, job.warm_up)
            return await lone(one, job.records)

    async def _steady(self, job: Job) -> Figures:
        topic, values, keys = job.topic, job.values(), job.keys()
        async with self.producer(job) as producer:
            enqueue = self.put(producer)

            async def put(number: int, done: Done) -> None:
                outcome: Any = await enqueue(topic, values[number % len(values)], key=keys[number % len(keys)])
                outcome.add_done_callback(done)

            return await steady(put, job.case.rate, job.warm_up, job.records)

    async def _idle(self, job: Job) -> Figures:
        async with self.producer(job) as producer:
            for value in job.values(job.sent):
                await self.send_alone(producer)(job.topic, value)
            with Stopwatch() as watch:
                await asyncio.sleep(job.seconds)
        return idleness(watch)
