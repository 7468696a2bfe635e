"""Sends the records of a run through a Producer, and reports the outcome and the latency."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from aioproducer import (
    BrokerConnectionError,
    Delivery,
    DeliveryError,
    KafkaError,
    KafkaTimeoutError,
    NotWritten,
    Producer,
    ProducerConfig,
    RecordMetadata,
    Unknown,
)
from aioproducer.cli.verdict import Content, Place

__all__ = ["STEADY_RATE", "NoBroker", "Pace", "SendReport", "content_size", "send_all"]

#: Records per second of the steady part.
STEADY_RATE: Final = 5000

#: In the flood the time to the acknowledgement is sampled once per this many records: a callback for each would be slow.
_SAMPLE_EVERY: Final = 16
_PACE_INTERVAL: Final = 0.1
#: After the flood these many records are sent at a steady rate, then these many one at a time, to measure their latency.
_STEADY: Final = 5000
_SINGLES: Final = 200
#: The most of all records that either may take.
_SHARE: Final = 10
_READY_TIMEOUT: Final = 15.0


class NoBroker(Exception):
    """The producer found no broker; nothing was sent."""


class Pace(NamedTuple):
    """Progress: records and bytes acknowledged, records in flight, seconds so far."""

    acknowledged: int
    acknowledged_bytes: int
    pending: int
    elapsed: float


@dataclass(slots=True)
class SendReport:
    """The outcome of the records. Times are in seconds, and sorted.

    ``places`` are those of the acknowledged records, in the order of sending; all records if ``error`` is None.
    ``pipelined``, ``seconds``, ``drain`` and ``metrics`` are of the acknowledged records of the flood, which were sent
    without waiting: such a record mostly waits for those before it. ``latencies`` are those at a steady rate, and
    ``round_trips`` those of the last few, each of which was awaited. ``retries`` counts records of all three.
    """

    accepted: int = 0
    places: list[Place] = field(default_factory=list[Place])
    not_written: int = 0
    unknown: int = 0
    error: KafkaError | None = None
    pipelined: int = 0
    pipelined_bytes: int = 0
    seconds: float = 0.0
    drain: Sequence[float] = ()
    latencies: Sequence[float] = ()
    round_trips: Sequence[float] = ()
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    retries: int = 0


async def send_all(
    config: ProducerConfig,
    topic: str,
    records: Sequence[Content],
    on_pace: Callable[[Pace], object],
) -> SendReport:
    """Send the records in order: nearly all as fast as possible, some at a steady rate, the last few one at a time.

    Stops early when a record fails; see the report. Raises NoBroker if no broker can be reached at the beginning.

    Cancellation: no further record is sent; what was accepted is still delivered before it ends.
    """
    async with Producer(config) as producer:
        try:
            await producer.ready(_READY_TIMEOUT)
        except (KafkaTimeoutError, BrokerConnectionError) as error:
            cause = f" {error.__cause__}" if error.__cause__ is not None else ""
            raise NoBroker(f"{error}{cause}") from error
        run = _Run(producer, topic, records)
        pace = asyncio.create_task(_report_pace(run, on_pace), name="aioproducer demo pace")
        try:
            return await run.all()
        finally:
            pace.cancel()
            with suppress(asyncio.CancelledError):
                await pace
            on_pace(run.pace())


def content_size(record: Content) -> int:
    """The size of key, value and headers in bytes."""
    size = len(record.key or b"") + len(record.value or b"")
    return size + sum(len(name) + len(value or b"") for name, value in record.headers)


class _Run:
    def __init__(self, producer: Producer, topic: str, records: Sequence[Content]) -> None:
        self._producer = producer
        self._topic = topic
        self._records = records
        self._now = time.perf_counter  # uvloop's loop.time() counts whole milliseconds
        self._began = self._now()
        self._report = SendReport()
        self._drain: list[float] = []
        self._latencies: list[float] = []
        self._failed = False
        self._average_size = sum(map(content_size, records)) / max(1, len(records))

    async def all(self) -> SendReport:
        report, records = self._report, self._records
        most = len(records) // _SHARE
        singles = len(records) - min(_SINGLES, most)
        steady = singles - min(_STEADY, most)
        deliveries = await self._pipelined(records[:steady])
        report.seconds = self._now() - self._began
        report.metrics = self._producer.metrics()
        for record, delivery in zip(records, deliveries, strict=False):  # fewer deliveries where one failed
            self._count_in(record, delivery)
        if report.error is None:
            await self._steadily(records[steady:singles])
        if report.error is None:
            await self._one_at_a_time(records[singles:])
        report.drain = sorted(self._drain)
        report.latencies = sorted(self._latencies)
        report.retries = int(self._producer.metrics()["record-retry-total"])
        return report

    async def _pipelined(self, records: Sequence[Content]) -> list[Delivery]:
        deliveries: list[Delivery] = []
        try:
            for number, record in enumerate(records):
                times = self._drain if number % _SAMPLE_EVERY == 0 else None
                deliveries.append(await self._enqueue(record, times))
                if self._failed:
                    break
        except KafkaError as error:
            self._report.error = error
        await self._flush(deliveries)
        return deliveries

    async def _steadily(self, records: Sequence[Content]) -> None:
        """Send so many records a second, as a service does that is neither idle nor flooded."""
        deliveries: list[Delivery] = []
        began = self._now()
        try:
            for number, record in enumerate(records):
                ahead = began + number / STEADY_RATE - self._now()
                if ahead > 0:
                    await asyncio.sleep(ahead)
                deliveries.append(await self._enqueue(record, self._latencies))
                if self._failed:
                    break
        except KafkaError as error:
            self._report.error = error
        await self._flush(deliveries)
        for record, delivery in zip(records, deliveries, strict=False):
            self._count_outcome(record, delivery)

    async def _enqueue(self, record: Content, times: list[float] | None) -> Delivery:
        return await self._producer.enqueue(
            self._topic,
            record.value,
            key=record.key,
            headers=record.headers,
            timestamp_ms=record.timestamp_ms,
            on_delivery=None if times is None else partial(self._sampled, times, self._now()),
        )

    async def _flush(self, deliveries: Sequence[Delivery]) -> None:
        self._report.accepted += len(deliveries)
        try:
            await self._producer.flush()
        except KafkaError as error:  # the producer died; the deliveries hold what is known
            self._report.error = self._report.error or error

    async def _one_at_a_time(self, records: Sequence[Content]) -> None:
        times: list[float] = []
        for record in records:
            began = self._now()
            try:
                metadata = await self._producer.send(
                    self._topic,
                    record.value,
                    key=record.key,
                    headers=record.headers,
                    timestamp_ms=record.timestamp_ms,
                )
            except KafkaError as error:
                self._count_error(error)
                break
            finally:
                self._report.accepted += 1
            times.append(self._now() - began)
            self._count_place(metadata)
        self._report.round_trips = sorted(times)

    def _sampled(self, times: list[float], began: float, delivery: Delivery) -> None:
        if delivery.exception() is None:
            times.append(self._now() - began)
        else:
            self._failed = True

    def _count_in(self, record: Content, delivery: Delivery) -> None:
        if self._count_outcome(record, delivery):
            self._report.pipelined += 1
            self._report.pipelined_bytes += content_size(record)

    def _count_outcome(self, record: Content, delivery: Delivery) -> bool:
        """Whether the record was acknowledged."""
        error = delivery.exception() if delivery.done() else Unknown("No outcome was reported.")
        if error is None:
            self._count_place(delivery.result())
        else:
            self._count_error(error)
        return error is None

    def _count_place(self, metadata: RecordMetadata) -> None:
        self._report.places.append(Place(metadata.partition, metadata.offset))

    def _count_error(self, error: KafkaError) -> None:
        self._report.error = self._report.error or error
        if isinstance(error, DeliveryError) and not isinstance(error, NotWritten):
            self._report.unknown += 1
        else:
            self._report.not_written += 1

    def pace(self) -> Pace:
        metrics = self._producer.metrics()
        acknowledged = int(metrics["record-delivered-total"])
        return Pace(
            acknowledged,
            int(acknowledged * self._average_size),
            int(metrics["records-pending"]),
            self._now() - self._began,
        )


async def _report_pace(run: _Run, on_pace: Callable[[Pace], object]) -> None:
    while True:
        await asyncio.sleep(_PACE_INTERVAL)
        on_pace(run.pace())
