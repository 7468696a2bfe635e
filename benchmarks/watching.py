"""The overhead of watching a producer: scraped metrics, OpenTelemetry's spans, and an interceptor that does nothing.

    python -m benchmarks.watching --broker mock --rounds 5 --seconds 3 --json watching.json

Each run is a separate process with its own topic. Every producer has its default settings, with acks=all and
idempotence. A round runs all modes, in the opposite order of the round before; the first round is a warm-up, which is
dropped. Ratios and differences are those to ``plain`` in the same round; figures are medians. After each run an
independent consumer counts the records.

No spans are exported, and OpenTelemetry's metrics have the provider of its API, which does nothing. There are two floors of
tracing: a bare span, with the attributes of a record's span and no producer; and ``SDK alone``, a producer without
interceptors whose program calls the SDK for each record as an interceptor must - begin a span that is sampled out, inject
its context, end the span - and sends the record without it.

A scrape takes less than the noise between two runs, so its own CPU is counted as well, and set against the interval between
two scrapes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from aioproducer import Producer
from aioproducer.contrib.watching import Watch
from aioproducer.types import ProducerRecord
from benchmarks import CHECKOUT
from benchmarks.brokers import BROKERS, Broker, count_records
from benchmarks.clients.loops import run
from benchmarks.measure import Figures, Stopwatch
from benchmarks.tables import markdown
from benchmarks.unavailable import Unavailable, optional

__all__ = ["main"]

_PLAIN: Final = "plain"
_METRICS: Final = "metrics"
_SAMPLED_OUT: Final = "sampled out"
_RECORDED: Final = "recorded"
_NO_OP: Final = "no-op interceptor"
_SDK_ALONE: Final = "SDK alone"
_SPAN: Final = "bare span"

_PRODUCERS: Final = (_PLAIN, _METRICS, _SAMPLED_OUT, _RECORDED, _NO_OP, _SDK_ALONE)
#: The modes of each kind of run.
_KINDS: Final[Mapping[str, Sequence[str]]] = {
    "enqueue": _PRODUCERS,
    "send": _PRODUCERS,
    _SPAN: (_SAMPLED_OUT, _RECORDED),
}

_PARTITIONS: Final = 12
_VALUE: Final = random.Random(1).randbytes(100)
_EVERY_S: Final = 1.0
#: The longest warm-up of a run. The first scrape is in the middle of it, so each second of the measurement has one.
_WARM_UP_S: Final = 1.0
#: Records, or spans, between two looks at the clock.
_CHUNK: Final = 500
_PATIENCE_S: Final = 300.0


class _NoOp:
    """An interceptor that returns each record unchanged."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record


class _Scraper:
    """Reads a producer once a second, as Prometheus and the status page do."""

    def __init__(self, producer: Producer, first: float) -> None:
        client = optional("prometheus_client")
        from aioproducer.contrib.prometheus import register

        self._text: Callable[[Any], bytes] = client.generate_latest
        self._registry = client.CollectorRegistry()
        register(producer, self._registry)
        self._watch = Watch([producer])
        self._first = first
        self.count = 0
        self.cpu = 0.0

    async def scrape(self) -> None:
        """Scrape until cancelled."""
        await asyncio.sleep(self._first)
        while True:
            began = time.thread_time()
            self._text(self._registry)
            await self._watch.sample()  # suspends only while another viewer reads, and there is none
            self.cpu += time.thread_time() - began
            self.count += 1
            await asyncio.sleep(_EVERY_S)


def _provider(mode: str) -> Any:
    """A provider of tracers without an exporter."""
    samplers = optional("opentelemetry.sdk.trace.sampling")
    sampler = samplers.ALWAYS_ON if mode == _RECORDED else samplers.ALWAYS_OFF
    return optional("opentelemetry.sdk.trace").TracerProvider(sampler=sampler)


def _interceptors(mode: str) -> list[object]:
    if mode in (_PLAIN, _METRICS, _SDK_ALONE):
        return []
    if mode == _NO_OP:
        return [_NoOp()]
    provider = _provider(mode)
    from aioproducer.contrib.opentelemetry import OpenTelemetryInterceptor

    return [OpenTelemetryInterceptor(tracer_provider=provider)]


async def _enqueue(producer: Producer, topic: str, seconds: float, begin: _Begin | None) -> int:
    end, count = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        if begin is None:
            for _ in range(_CHUNK):
                await producer.enqueue(topic, _VALUE)
        else:
            for _ in range(_CHUNK):
                over = begin()
                await producer.enqueue(topic, _VALUE)
                over()
        count += _CHUNK
    await producer.flush()
    return count


async def _send(producer: Producer, topic: str, seconds: float, begin: _Begin | None) -> int:
    end, count = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        over = None if begin is None else begin()
        await producer.send(topic, _VALUE)
        if over is not None:
            over()
        count += 1
    return count


#: What the program itself does at the begin of each record; what it returns is called at the end.
_Begin = Callable[[], Callable[[], object]]
#: Send records for some seconds until all are acknowledged, and return their number.
_WORK: Final[Mapping[str, Callable[[Producer, str, float, _Begin | None], Awaitable[int]]]] = {
    "enqueue": _enqueue,
    "send": _send,
}


def _sdk_alone(topic: str) -> _Begin:
    """The calls of the SDK that no interceptor can do without."""
    tracer = _provider(_SAMPLED_OUT).get_tracer("aioproducer")
    trace, current = optional("opentelemetry.trace"), optional("opentelemetry.context").get_current
    inject = optional("opentelemetry.propagate").get_global_textmap().inject
    attributes = _attributes(topic)

    def begin() -> Callable[[], object]:
        inside = current()
        span = tracer.start_span(f"send {topic}", inside, trace.SpanKind.PRODUCER, attributes, ())
        inject({}, trace.set_span_in_context(span, inside))
        end: Callable[[], object] = span.end
        return end

    return begin


@contextlib.asynccontextmanager
async def _scraped(producer: Producer, mode: str, first: float) -> AsyncGenerator[_Scraper | None, None]:
    """Scrape the producer in a task during the block, if that is the mode."""
    if mode != _METRICS:
        yield None
        return
    scraper = _Scraper(producer, first)
    task = asyncio.create_task(scraper.scrape())
    try:
        yield scraper
    finally:
        task.cancel()
        await asyncio.wait([task])
    if not task.cancelled():
        task.result()  # raises the error that ended it


async def _produce(mode: str, kind: str, servers: str, topic: str, seconds: float) -> Figures:
    warm_up = min(_WARM_UP_S, seconds)
    async with (
        Producer(servers, interceptors=_interceptors(mode)) as producer,
        _scraped(producer, mode, warm_up / 2) as scraper,
    ):
        begin = _sdk_alone(topic) if mode == _SDK_ALONE else None
        earlier = await _WORK[kind](producer, topic, warm_up, begin)
        scraped, scraping = (scraper.count, scraper.cpu) if scraper else (0, 0.0)
        with Stopwatch() as watch:
            count = await _WORK[kind](producer, topic, seconds, begin)
        figures = _figures(watch, count) | {"sent": earlier + count}
        if scraper is None:
            return figures
        scrapes = scraper.count - scraped
        return figures | {"scrapes": scrapes, "scrape_cpu_ms": (scraper.cpu - scraping) / max(scrapes, 1) * 1e3}


def _figures(watch: Stopwatch, count: int) -> Figures:
    """The time and the CPU of one record, or of one span."""
    return {"time_us": watch.seconds / count * 1e6, "cpu_us": watch.cpu / count * 1e6}


def _attributes(topic: str) -> Mapping[str, str]:
    """The attributes that `OpenTelemetryInterceptor` gives a record's span at its begin."""
    return {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": topic,
        "messaging.client.id": "aioproducer",
    }


def _spans(mode: str, topic: str, seconds: float) -> Figures:
    """The cost of a span with the attributes that `OpenTelemetryInterceptor` sets."""
    tracer = _provider(mode).get_tracer("aioproducer")
    current, producer_kind = optional("opentelemetry.context").get_current, optional("opentelemetry.trace").SpanKind
    attributes = _attributes(topic)
    place = {"messaging.destination.partition.id": "0", "server.address": "127.0.0.1", "server.port": 9092}

    def work(lasting: float) -> int:
        end, count = time.perf_counter() + lasting, 0
        while time.perf_counter() < end:
            for offset in range(count, count + _CHUNK):
                span = tracer.start_span(f"send {topic}", current(), producer_kind.PRODUCER, attributes, ())
                if span.is_recording():
                    span.set_attributes({**place, "messaging.kafka.offset": offset})
                span.end()
            count += _CHUNK
        return count

    work(min(_WARM_UP_S, seconds))
    with Stopwatch() as watch:
        count = work(seconds)
    return _figures(watch, count)


def _one(mode: str, kind: str, servers: str, topic: str, seconds: float) -> Mapping[str, Any]:
    """The figures of this process, or the reason for having none."""
    try:
        return _spans(mode, topic, seconds) if kind == _SPAN else run(_produce(mode, kind, servers, topic, seconds))
    except Unavailable as error:
        return {"unavailable": str(error)}


def _run(broker: Broker, mode: str, kind: str, seconds: float) -> Figures:
    """The figures of a separate process, whose records were counted. Raises Unavailable if it lacks a package."""
    topic = f"watching-{uuid.uuid4().hex[:8]}"
    broker.create_topic(topic, _PARTITIONS)
    try:
        command = [sys.executable, "-m", "benchmarks.watching", "--seconds", str(seconds)]
        command += ["--one", mode, kind, broker.servers, topic]
        patience = _PATIENCE_S + 2 * seconds
        done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=patience, check=False)
        if done.returncode:
            raise SystemExit(f"{kind}, {mode}: {done.stderr}")
        figures = json.loads(done.stdout)
        if "unavailable" in figures:
            raise Unavailable(figures["unavailable"])
        expected = figures.get("sent", 0)
        found = count_records(broker.servers, topic, expected)
        if found != expected:
            raise SystemExit(f"{kind}, {mode}: {expected} records were acknowledged, {found} are in the log.")
    finally:
        broker.delete_topic(topic)
    measured: Figures = figures
    return measured


#: The figures of each round, by kind and mode.
_Runs = Mapping[str, Mapping[str, Sequence[Figures]]]


def _measure(broker: Broker, rounds: int, seconds: float) -> _Runs:
    """Run all modes in all rounds; a mode that lacks a package is reported and left out."""
    runs: dict[str, dict[str, list[Figures]]] = {kind: {mode: [] for mode in modes} for kind, modes in _KINDS.items()}
    for number in range(rounds + 1):
        for kind, by_mode in runs.items():
            for mode in list(by_mode) if number % 2 else list(reversed(by_mode)):
                try:
                    figures = _run(broker, mode, kind, seconds)
                except Unavailable as error:
                    print(f"{kind}, {mode}: not measured. {error}", flush=True)
                    del by_mode[mode]
                    continue
                if number:
                    by_mode[mode].append(figures)
    return runs


@dataclass(frozen=True, slots=True)
class _Row:
    """The medians of a mode in microseconds, and of its ratios and differences to ``plain``; a bare span has none."""

    kind: str
    mode: str
    time_us: float
    cpu_us: float
    time_ratio: float | None = None
    cpu_ratio: float | None = None
    more_time_us: float | None = None
    more_cpu_us: float | None = None

    def cells(self) -> list[str]:
        """The row of the table."""
        ratios = ["-" if ratio is None else f"{ratio:.2f} x" for ratio in (self.time_ratio, self.cpu_ratio)]
        more = ["-" if us is None else f"{us:+.2f} us" for us in (self.more_time_us, self.more_cpu_us)]
        time_cells = [f"{self.time_us:.2f} us", ratios[0], more[0]]
        return [f"{self.kind}, {self.mode}", *time_cells, f"{self.cpu_us:.2f} us", ratios[1], more[1]]


def _row(kind: str, mode: str, figures: Sequence[Figures], plain: Sequence[Figures]) -> _Row:
    time_us, cpu_us = (statistics.median(each[name] for each in figures) for name in ("time_us", "cpu_us"))
    if not plain:
        return _Row(kind, mode, time_us, cpu_us)
    pairs = list(zip(figures, plain, strict=True))
    ratios = [statistics.median(a[name] / b[name] for a, b in pairs) for name in ("time_us", "cpu_us")]
    more = [statistics.median(a[name] - b[name] for a, b in pairs) for name in ("time_us", "cpu_us")]
    return _Row(kind, mode, time_us, cpu_us, *ratios, *more)


_TITLES: Final = ("", "time each", "x plain", "more than plain", "CPU each", "x plain", "more than plain")


def main(words: Sequence[str] | None = None) -> None:
    """Measure all modes, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.watching", description=__doc__)
    parser.add_argument("--broker", choices=BROKERS, default="kafka")
    parser.add_argument("--rounds", type=int, default=5, help="how many are measured, after the warm-up")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each run is measured")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args(words)
    if arguments.rounds < 1 or arguments.seconds <= 0:
        parser.error("--rounds must be at least 1, and --seconds more than 0")
    if arguments.one:
        mode, kind, servers, topic = arguments.one
        print(json.dumps(_one(mode, kind, servers, topic, arguments.seconds)))
        return
    try:
        with BROKERS[arguments.broker]() as broker:
            about = f"{broker.title}; {os.cpu_count()} processors; Python {platform.python_version()}"
            about += f"; medians of {arguments.rounds} rounds, {arguments.seconds:g} s a run"
            print(about, flush=True)
            runs = _measure(broker, arguments.rounds, arguments.seconds)
    except Unavailable as error:
        raise SystemExit(str(error)) from None
    rows = [
        _row(kind, mode, figures, by_mode.get(_PLAIN, ()))
        for kind, by_mode in runs.items()
        for mode, figures in by_mode.items()
    ]
    print(markdown(_TITLES, [row.cells() for row in rows]))
    for kind in ("enqueue", "send"):
        costs = [each["scrape_cpu_ms"] for each in runs[kind].get(_METRICS, ()) if each["scrapes"]]
        if costs:
            cost = statistics.median(costs)
            share = cost / (_EVERY_S * 1e3)
            print(
                f"{kind}: a scrape takes {cost:.2f} ms of CPU; once in {_EVERY_S:g} s, that is {share:.2%} of a core."
            )
    if arguments.json:
        found = {"about": about, "medians": [asdict(row) for row in rows], "runs": runs}
        arguments.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
