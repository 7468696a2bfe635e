"""Reads producers for the status page: snapshots now, windows between two of them, and the points of its charts.

Nothing runs by itself: a request reads, and those that watch the page share one reading a second.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from heapq import nsmallest
from typing import Any, Final, TypeAlias

from aioproducer.contrib.diagnosis import Options, Snapshot, Window, diagnose
from aioproducer.contrib.open_producers import AnyProducer
from aioproducer.contrib.reading import in_thread
from aioproducer.producer import Producer
from aioproducer.types import Health, HealthStatus

__all__ = ["EVERY_S", "Json", "Watch", "Watched", "is_ready"]

Json: TypeAlias = dict[str, Any]

#: Times in seconds: between two readings of the page, of the window of a diagnosis, and of a chart.
EVERY_S: Final = 1.0
_WINDOW_S: Final = 2.5
_CHART_S: Final = 300.0
#: Earlier readings begin a window if they are neither older nor younger than this.
_OLDEST_S: Final = 60.0
_YOUNGEST_S: Final = 0.5
#: A chart has no point for a longer time: the page was not watched in it.
_LONGEST_POINT_S: Final = 3.0
#: The patience with a producer's thread, and the topics that the page shows, those with the most records.
_PATIENCE_S: Final = 1.0
_MOST_TOPICS: Final = 50


class Watched:
    """One producer, with its latest readings."""

    def __init__(self, producer: AnyProducer, clock: Callable[[], float]) -> None:
        self.producer = producer
        self._clock = clock
        self._snapshots: deque[Snapshot] = deque(maxlen=8)
        self._points: deque[tuple[int, Json]] = deque(maxlen=round(_CHART_S / EVERY_S))
        self._reading: asyncio.Future[Snapshot] | None = None
        self._reading_since = 0.0
        config = producer.config
        self._servers = [f"{host}:{port}" for host, port in config.bootstrap_addresses]
        self._options = Options(
            config.linger_ms,
            config.batch_size,
            config.max_in_flight_requests_per_connection,
            config.buffer_memory,
        )

    def _read_now(self) -> Snapshot:
        return replace(self._numbers(), by_topic=self.producer.metrics_by_topic())

    def _numbers(self) -> Snapshot:
        """All but the topics, of which there may be thousands."""
        producer = self.producer
        return Snapshot(
            self._clock(),
            producer.health(),
            producer.metrics(),
            {},
            producer.metrics_by_broker(),
            producer.metric_histograms(),
            {each: found["request-latency"] for each, found in producer.metric_histograms_by_broker().items()},
            self._options,
        )

    async def health(self) -> Health:
        """The health now, without all other numbers. That of a `SyncProducer` comes from its thread."""
        return self.producer.health() if isinstance(self.producer, Producer) else (await self._read()).health

    async def _read(self) -> Snapshot:
        """Read all numbers. Those of a `SyncProducer` come from its thread, for which the event loop must not wait.

        Cancellation: nothing is read.
        """
        if isinstance(self.producer, Producer):
            numbers = self._numbers()
            return replace(numbers, by_topic=await in_thread(self.producer.metrics_by_topic))
        reading = self._reading
        if reading is None or reading.done() or reading.get_loop() is not asyncio.get_running_loop():
            self._reading_since = self._clock()
            reading = self._reading = in_thread(self._read_now)
        await asyncio.wait({reading}, timeout=_PATIENCE_S)
        if reading.done():
            if self._reading is reading:
                self._reading = None
            return reading.result()
        now = self._clock()
        silent = now - self._reading_since
        last = self._snapshots[-1] if self._snapshots else Snapshot(now, Health(HealthStatus.STARTING))
        return replace(last, time=now, options=self._options, silent_s=silent)

    async def window(self) -> Window:
        """The window that ends now, and begins at an earlier reading if there is one that is recent enough."""
        after = await self._read()
        before: Snapshot | None = None
        for each in reversed(self._snapshots):
            age = after.time - each.time
            if age > _OLDEST_S:
                break
            if age >= _YOUNGEST_S:
                before = each
            if age >= _WINDOW_S:
                break
        is_due = not self._snapshots or after.time - self._snapshots[-1].time >= _YOUNGEST_S
        if is_due and not after.silent_s:  # old numbers with a new time would give rates that are too high
            self._snapshots.append(after)
        return Window(before, after)

    async def sample(self, number: int, at_ms: int) -> Json:
        """Read, and add a point to the charts; returns what the page shows now."""
        last = self._snapshots[-1] if self._snapshots else None
        window = await self.window()
        if last is not None and 0 < window.after.time - last.time <= _LONGEST_POINT_S:
            self._points.append((number, _point(Window(last, window.after), at_ms)))
        return self.view(window)

    def points(self, since: int) -> list[Json]:
        """The points of the charts after the sample with this number."""
        return [point for number, point in self._points if number > since]

    def view(self, window: Window) -> Json:
        """The numbers of this window as the page shows them; rates are by the second, times in milliseconds."""
        health = window.after.health
        topics = list(_topics(window))
        return {
            "client_id": self.producer.client_id,
            "servers": self._servers,
            "ready": is_ready(window),
            "alive": health.alive,
            "health": health.as_dict(),
            "findings": [asdict(each) for each in diagnose(window.before, window.after)],
            "window_s": round(window.seconds, 3),
            "now": _numbers(window),
            "brokers": list(_brokers(window)),
            "topics": topics,
            "more_topics": len(window.after.by_topic) - len(topics),
            "totals": {
                "written": window.after.metrics.get("record-send-total", 0.0),
                "not_written": window.after.metrics.get("record-not-written-total", 0.0),
                "unknown": window.after.metrics.get("record-unknown-total", 0.0),
                "retried": window.after.metrics.get("record-retry-total", 0.0),
            },
        }


def is_ready(window: Window) -> bool:
    """Whether the producer is ready for traffic: connected to a broker, and without a problem in this window."""
    findings = diagnose(window.before, window.after)
    return window.after.health.ready and all(each.level != "problem" for each in findings)


def _per_second(growth: float, window: Window) -> float:
    return round(growth / window.seconds, 3) if window.seconds else 0.0


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 3)


def _numbers(window: Window) -> Json:
    metrics, health = window.after.metrics, window.after.health
    latency, queue = window.spread("request-latency"), window.spread("record-queue-time")
    return {
        "records_per_s": _per_second(window.grown("record-send-total"), window),
        "bytes_per_s": _per_second(window.grown("byte-total"), window),
        "failed_per_s": _per_second(
            window.grown("record-not-written-total") + window.grown("record-unknown-total"), window
        ),
        "retried_per_s": _per_second(window.grown("record-retry-total"), window),
        "latency_p50_ms": _ms(latency.p50) if latency.count else None,
        "latency_p99_ms": _ms(latency.p99) if latency.count else None,
        "queue_p50_ms": _ms(queue.p50) if queue.count else None,
        "queue_p99_ms": _ms(queue.p99) if queue.count else None,
        "loop_lag_ms": _ms(window.longest_block_s),
        "buffer_share": round(health.pressure, 4),
        "buffer_bytes": round(health.pressure * window.after.options.buffer_memory),
        "buffer_total_bytes": window.after.options.buffer_memory,
        "waiting_callers": health.waiting_senders,
        "pending_records": health.pending_records,
        "oldest_pending_s": round(health.oldest_pending_s, 3),
        "requests_in_flight": metrics.get("requests-in-flight", 0.0),
    }


def _brokers(window: Window) -> Iterator[Json]:
    connected = window.after.health.connected_brokers
    full = window.grown_by_broker("in-flight-full-time-ns-total")
    for broker, numbers in sorted(window.after.by_broker.items()):
        latency = window.latency(broker)
        yield {
            "broker": broker,
            "connected": broker in connected,
            "requests_in_flight": numbers.get("requests-in-flight", 0.0),
            "oldest_request_s": round(numbers.get("oldest-request-age", 0.0), 3),
            "answers_per_s": _per_second(latency.count, window),
            "latency_mean_ms": _ms(latency.mean) if latency.count else None,
            "latency_p99_ms": _ms(latency.p99) if latency.count else None,
            "full_share": round(min(1.0, full.get(broker, 0.0) / 1e9 / window.seconds), 3) if window.seconds else 0.0,
        }


def _topics(window: Window) -> Iterator[Json]:
    """The topics with failures first, and then those with the most records in the window."""
    by_topic = window.after.by_topic
    sent, sizes = window.grown_by_topic("record-send-total"), window.grown_by_topic("byte-total")

    def place(topic: str) -> tuple[float, float, str]:
        return -by_topic[topic].get("record-error-total", 0.0), -sent.get(topic, 0.0), topic

    for topic in nsmallest(_MOST_TOPICS, by_topic, key=place):
        numbers = by_topic[topic]
        yield {
            "topic": topic,
            "records_per_s": _per_second(sent.get(topic, 0.0), window),
            "bytes_per_s": _per_second(sizes.get(topic, 0.0), window),
            "failed_total": numbers.get("record-error-total", 0.0),
            "retried_total": numbers.get("record-retry-total", 0.0),
        }


def _point(window: Window, at_ms: int) -> Json:
    numbers = _numbers(window)
    shown = (
        "records_per_s",
        "bytes_per_s",
        "latency_p50_ms",
        "latency_p99_ms",
        "buffer_share",
        "requests_in_flight",
        "loop_lag_ms",
        "failed_per_s",
        "retried_per_s",
    )
    return {"at_ms": at_ms, **{name: numbers[name] for name in shown}}


class Watch:
    """The producers of one status page, and the reading that its viewers share.

    ``clock`` never goes back; all of it runs in the event loop of the page.
    """

    def __init__(self, producers: Sequence[AnyProducer], clock: Callable[[], float] = time.monotonic) -> None:
        self.producers = [Watched(producer, clock) for producer in producers]
        self.clock = clock
        #: Another one in each process, so that a viewer who reaches another worker notices.
        self.instance = secrets.token_hex(4)
        self.number = 0  # of the last sample
        self._due = 0.0
        self._sampling = asyncio.Lock()
        self._views: list[Json] = []

    async def windows(self) -> list[Window]:
        """The window of each producer that ends now."""
        return [await each.window() for each in self.producers]

    async def sample(self) -> None:
        """Read all producers, unless another viewer has done so within the last second."""
        async with self._sampling:  # one viewer reads for all
            now = self.clock()
            if self._views and now < self._due:
                return
            number, at_ms = self.number + 1, round(time.time() * 1e3)
            views = [await each.sample(number, at_ms) for each in self.producers]
            self.number, self._views, self._due = number, views, now + EVERY_S * 0.9

    def event(self, since: str) -> tuple[str, Json]:
        """The id and the content of an event, with the points after the event with the id ``since``."""
        instance, _, number = since.partition("-")
        known = int(number) if instance == self.instance and number.isdecimal() else 0
        shown = [
            {**view, "points": each.points(known)} for each, view in zip(self.producers, self._views, strict=False)
        ]
        return f"{self.instance}-{self.number}", {"instance": self.instance, "producers": shown}
