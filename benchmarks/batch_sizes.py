"""Measures the effect of ``batch_size`` with other settings at their defaults: the table behind the default.

    python -m benchmarks.batch_sizes --broker kafka --rounds 3

Each run is a separate process with its own topic, the sizes in turn, round by round; figures are medians. After each
run the end offsets of the topic are counted by an independent consumer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import cycle
from typing import Any, Final, NamedTuple

from aioproducer import Producer
from benchmarks import CHECKOUT
from benchmarks.brokers import BROKERS, Broker, count_records
from benchmarks.cases import Payload
from benchmarks.clients.loops import run
from benchmarks.job import CONCURRENCY, payloads
from benchmarks.measure import Figures, Stopwatch, concurrently, latencies
from benchmarks.memory import resident_bytes

__all__ = ["main"]

_SIZES: Final = (16_384, 65_536, 262_144, 1_000_000)
_TICK_S: Final = 0.001
_SAMPLE: Final = 20


class _Case(NamedTuple):
    """A measurement that is made with each of the sizes."""

    title: str
    work: str
    records: int
    partitions: int = 12
    codec: str = "none"
    payload: Payload = Payload.TEXT
    value_size: int = 100
    #: How many records a second, where it is not as many as possible.
    rate: int = 0


_CASES: Final[Mapping[str, _Case]] = {
    "enqueue": _Case("enqueue, 100 B", "enqueue", 500_000),
    "enqueue-1": _Case("enqueue, 100 B, 1 partition", "enqueue", 500_000, 1),
    "enqueue-1000": _Case("enqueue, 100 B, evenly over 1,000 partitions", "spread", 500_000, 1_000),
    "enqueue-lz4": _Case("enqueue, 1 KiB JSON, lz4", "enqueue", 100_000, 12, "lz4", Payload.JSON, 1024),
    "enqueue-zstd": _Case("enqueue, 1 KiB JSON, zstd", "enqueue", 100_000, 12, "zstd", Payload.JSON, 1024),
    "send-many": _Case("send_many, 100 B", "many", 1_000_000),
    "send-table": _Case("send_table, 100 B", "table", 1_000_000),
    "tasks": _Case("1,000 tasks in send(), 100 B", "tasks", 200_000),
    "half": _Case("100,000 records a second, 100 B: delivery", "paced", 300_000, rate=100_000),
    "half-lz4": _Case("30,000 records a second, 1 KiB JSON, lz4: delivery", "paced", 90_000, 12, "lz4", Payload.JSON,
                      1024, 30_000),
    "memory": _Case("one record in each of 1,000 partitions, in flight", "held", 1_000, 1_000),
}  # fmt: skip


async def _enqueue(producer: Producer, topic: str, values: Sequence[bytes], case: _Case) -> Figures:
    for delivery in [await producer.enqueue(topic, value) for value in values]:
        await delivery
    return {}


async def _spread(producer: Producer, topic: str, values: Sequence[bytes], case: _Case) -> Figures:
    partitions = cycle(range(case.partitions))
    for delivery in [await producer.enqueue(topic, value, partition=next(partitions)) for value in values]:
        await delivery
    return {}


async def _many(producer: Producer, topic: str, values: Sequence[bytes], case: _Case) -> Figures:
    await producer.send_many(topic, values)
    return {}


async def _table(producer: Producer, topic: str, values: Sequence[bytes], case: _Case) -> Figures:
    import pyarrow as pa  # type: ignore[import-untyped]

    await producer.send_table(topic, pa.table({"value": pa.array(values, pa.binary())}), value="value")
    return {}


async def _tasks(producer: Producer, topic: str, values: Sequence[bytes], case: _Case) -> Figures:
    async def one() -> None:
        await producer.send(topic, values[0])

    await concurrently(one, len(values), CONCURRENCY)
    return {}


async def _paced(producer: Producer, topic: str, values: Sequence[bytes], case: _Case) -> Figures:
    """The time from ``enqueue`` to the acknowledgement, at a steady rate; only some records are measured."""
    seconds: list[float] = []
    began = time.perf_counter()

    def watch(at: float) -> Callable[[object], None]:
        return lambda delivery: seconds.append(time.perf_counter() - at)

    sent = 0
    while sent < len(values):
        due = min(len(values), int((time.perf_counter() - began) * case.rate))
        for number in range(sent, due):
            delivery = await producer.enqueue(topic, values[number])
            if number % _SAMPLE == 0:
                delivery.add_done_callback(watch(time.perf_counter()))
        sent = due
        await asyncio.sleep(_TICK_S)
    await producer.flush()
    return latencies(seconds)


async def _held(producer: Producer, topic: str, values: Sequence[bytes], case: _Case) -> Figures:
    """The growth of the process with an unsent record in each partition."""
    before = resident_bytes()
    for number, value in enumerate(values):
        await producer.enqueue(topic, value, partition=number)
    return {"grown_mb": (resident_bytes() - before) / 1e6}


_WORK: Final[Mapping[str, Callable[[Producer, str, Sequence[bytes], _Case], Awaitable[Figures]]]] = {
    "enqueue": _enqueue, "spread": _spread, "many": _many, "table": _table, "tasks": _tasks, "paced": _paced,
    "held": _held,
}  # fmt: skip


async def _measure(name: str, servers: str, topic: str, batch_size: int) -> Figures:
    case = _CASES[name]
    different = payloads(case.payload, case.value_size)
    values = [different[number % len(different)] for number in range(case.records)]
    options: dict[str, Any] = {"batch_size": batch_size, "compression_type": case.codec}
    if case.work == "held":
        options["linger_ms"] = 5_000
    async with Producer(servers, **options) as producer:
        if case.work != "held":
            await _enqueue(producer, topic, values[: case.records // 10], case)
        else:
            await producer.send(topic, values[0])
        with Stopwatch() as watch:
            figures = await _WORK[case.work](producer, topic, values, case)
    return {"records_per_s": case.records / watch.seconds, "cpu_us": watch.cpu / case.records * 1e6, **figures}


def _run(broker: Broker, name: str, batch_size: int) -> Figures:
    case = _CASES[name]
    topic = f"{name}-{batch_size}-{uuid.uuid4().hex[:8]}"
    broker.create_topic(topic, case.partitions)
    try:
        command = [
            sys.executable,
            "-m",
            "benchmarks.batch_sizes",
            "--one",
            name,
            str(batch_size),
            broker.servers,
            topic,
        ]
        done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        expected = case.records + (1 if case.work == "held" else case.records // 10)
        found = count_records(broker.servers, topic, expected)
        if found != expected:
            raise SystemExit(f"{name}: {expected} records were sent, {found} are in the log.")
    finally:
        broker.delete_topic(topic)
    figures: Figures = json.loads(done.stdout)
    return figures


def _reported(figures: Sequence[Figures]) -> str:
    middle = {name: statistics.median(each[name] for each in figures) for name in figures[0]}
    if "grown_mb" in middle:
        return f"{middle['grown_mb']:.1f} MB"
    if "p50_us" in middle:
        return f"p50 {middle['p50_us'] / 1000:.1f} ms, p99 {middle['p99_us'] / 1000:.1f} ms, {middle['cpu_us']:.2f} us"
    return f"{middle['records_per_s'] / 1e6:.2f} M/s, {middle['cpu_us']:.2f} us"


def main() -> None:
    """Measure all or the named cases, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.batch_sizes", description=__doc__)
    parser.add_argument("--broker", choices=BROKERS, default="kafka")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", default=",".join(_CASES))
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        name, size, servers, topic = arguments.one
        print(json.dumps(run(_measure(name, servers, topic, int(size)))))
        return
    print("| | " + " | ".join(f"{size:,}" for size in _SIZES) + " |\n|---" * 1 + "|---" * len(_SIZES) + "|", flush=True)
    with BROKERS[arguments.broker]() as broker:
        _run(broker, "enqueue", _SIZES[0])  # so that the broker is warm
        for name in arguments.cases.split(","):
            figures: dict[int, list[Figures]] = {size: [] for size in _SIZES}
            for _ in range(arguments.rounds):
                for size in _SIZES:
                    figures[size].append(_run(broker, name, size))
            print(
                f"| {_CASES[name].title} | " + " | ".join(_reported(figures[size]) for size in _SIZES) + " |",
                flush=True,
            )


if __name__ == "__main__":
    main()
