"""Measurements of the own process: time, CPU, wake-ups, memory, and the gaps of an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Self

from benchmarks.job import Job

__all__ = [
    "Figures",
    "Heartbeat",
    "Stopwatch",
    "concurrently",
    "heartbeat",
    "idleness",
    "in_threads",
    "latencies",
    "lone",
    "lone_blocking",
    "lone_figures",
    "percentile",
    "throughput",
]

#: The results of one run, by name: ``records_per_s``, ``cpu_us`` (per record), ``p99_us`` ...
Figures = dict[str, float]

_BEAT: Final = 0.001


class Stopwatch:
    """Measures what happens inside of a ``with``: seconds, and those of the CPU in all threads of this process."""

    seconds: float
    cpu: float
    #: How often a thread of the process slept and was woken.
    wake_ups: int

    def __enter__(self) -> Self:
        self._usage = resource.getrusage(resource.RUSAGE_SELF)
        self._began = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._began
        before, after = self._usage, resource.getrusage(resource.RUSAGE_SELF)
        self.cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        self.wake_ups = after.ru_nvcsw - before.ru_nvcsw


def throughput(watch: Stopwatch, job: Job) -> Figures:
    """Records and megabytes of values a second, and the CPU of a record in microseconds."""
    records = job.records
    return {
        "records_per_s": records / watch.seconds,
        "mb_per_s": records * job.case.value_size / watch.seconds / 1e6,
        "cpu_us": watch.cpu / records * 1e6,
    }


def idleness(watch: Stopwatch) -> Figures:
    """The cost of idling, without the wake-up at the end of the measured sleep."""
    return {
        "wake_ups_per_s": max(watch.wake_ups - 1, 0) / watch.seconds,
        "cpu_percent": watch.cpu / watch.seconds * 100,
    }


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value that ``share`` (0 to 1) of the ordered values do not exceed."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def latencies(seconds: Sequence[float]) -> Figures:
    """The distribution of how long each record took, in microseconds."""
    ordered = sorted(seconds)
    shares = {"p50_us": 0.5, "p99_us": 0.99, "p999_us": 0.999}
    return {name: percentile(ordered, share) * 1e6 for name, share in shares.items()}


async def lone(one: Callable[[], Awaitable[object]], count: int) -> Figures:
    """Await one record after the other."""
    seconds = []
    clock = time.perf_counter
    with Stopwatch() as watch:
        for _ in range(count):
            began = clock()
            await one()
            seconds.append(clock() - began)
    return lone_figures(seconds, watch.cpu)


def lone_blocking(one: Callable[[], object], count: int) -> Figures:
    """The same for a call that blocks."""
    seconds = []
    clock = time.perf_counter
    with Stopwatch() as watch:
        for _ in range(count):
            began = clock()
            one()
            seconds.append(clock() - began)
    return lone_figures(seconds, watch.cpu)


def lone_figures(seconds: Sequence[float], cpu: float) -> Figures:
    """The distribution of their durations, their rate, and the CPU of one; ``cpu`` is that of all, in seconds."""
    count = len(seconds)
    return latencies(seconds) | {"cpu_us": cpu / count * 1e6, "per_s": count / sum(seconds)}


async def concurrently(one: Callable[[], Awaitable[object]], count: int, tasks: int) -> None:
    """So many tasks, which together await ``count`` records, each one after the other."""

    async def work(share: int) -> None:
        for _ in range(share):
            await one()

    async with asyncio.TaskGroup() as group:
        for number in range(tasks):
            group.create_task(work(count // tasks + (number < count % tasks)))


def in_threads(work: Callable[[int], object], count: int, threads: int) -> None:
    """Do the work in this many threads at once, each with its share of ``count`` records."""
    shares = [count // threads + (number < count % threads) for number in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(work, shares):
            pass


class Heartbeat:
    """The gaps between the beats of a task that sleeps for a millisecond each time."""

    def __init__(self) -> None:
        self._gaps: list[float] = []

    async def beat(self) -> None:
        """Until cancelled."""
        last = time.perf_counter()
        while True:
            await asyncio.sleep(_BEAT)
            now = time.perf_counter()
            self._gaps.append(now - last)
            last = now

    def figures(self) -> Figures:
        """The worst gap, and the one that 99 of 100 do not exceed, in milliseconds."""
        ordered = sorted(self._gaps)
        return {"worst_gap_ms": ordered[-1] * 1e3, "p99_gap_ms": percentile(ordered, 0.99) * 1e3}


@contextlib.asynccontextmanager
async def heartbeat() -> AsyncIterator[Heartbeat]:
    """A heart that beats during the block."""
    heart = Heartbeat()
    task = asyncio.create_task(heart.beat())
    await asyncio.sleep(10 * _BEAT)
    try:
        yield heart
    finally:
        task.cancel()
        await asyncio.wait([task])
