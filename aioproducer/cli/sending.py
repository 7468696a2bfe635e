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

__all__ = ["NoBroker", "Pace", "SendReport", "content_size", "send_all"]

#: Latency from enqueue() to acknowledgement is sampled once per this many records: a callback for each would be slow.
_SAMPLE_EVERY: Final = 16
_PACE_INTERVAL: Final = 0.1
#: The last records are sent one at a time, to measure the latency of a single record too.
_SINGLES: Final = 200
#: The percentile shown while sending covers this many latest samples.
_LATEST: Final = 256
_READY_TIMEOUT: Final = 15.0


class NoBroker(Exception):
    """The producer found no broker; nothing was sent."""


class Pace(NamedTuple):
    """Progress: records and bytes acknowledged, records in flight, seconds so far, latest p99 in seconds."""

    acknowledged: int
    acknowledged_bytes: int
    pending: int
    elapsed: float
    p99: float


@dataclass(slots=True)
class SendReport:
    """The outcome of the records. Times are in seconds, latencies sorted.

    ``places`` are those of the acknowledged records, in the order of sending; all records if ``error`` is None.
    ``pipelined``, ``seconds``, ``latencies`` and ``metrics`` are of the acknowledged records that were sent without
    waiting, ``round_trips`` of the last few, each of which was awaited. ``retries`` counts records of both.
    """

    accepted: int = 0
    places: list[Place] = field(default_factory=list[Place])
    not_written: int = 0
    unknown: int = 0
    error: KafkaError | None = None
    pipelined: int = 0
    pipelined_bytes: int = 0
    seconds: float = 0.0
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
    """Send the records in order: nearly all without waiting for acknowledgements, the last few one at a time.

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
        self._latencies: list[float] = []
        self._failed = False
        self._average_size = sum(map(content_size, records)) / max(1, len(records))

    async def all(self) -> SendReport:
        report = self._report
        singles = min(_SINGLES, len(self._records) // 10)
        pipelined = self._records[: len(self._records) - singles]
        deliveries = await self._pipelined(pipelined)
        report.seconds = self._now() - self._began
        report.metrics = self._producer.metrics()
        for record, delivery in zip(pipelined, deliveries, strict=False):  # fewer deliveries where one failed
            self._count_in(record, delivery)
        if report.error is None:
            await self._one_at_a_time(self._records[len(pipelined) :])
        report.latencies = sorted(self._latencies)
        report.retries = int(self._producer.metrics()["record-retry-total"])
        return report

    async def _pipelined(self, records: Sequence[Content]) -> list[Delivery]:
        deliveries: list[Delivery] = []
        enqueue = self._producer.enqueue
        try:
            for number, (key, value, headers, timestamp_ms) in enumerate(records):
                on_delivery = partial(self._sampled, self._now()) if number % _SAMPLE_EVERY == 0 else None
                deliveries.append(
                    await enqueue(
                        self._topic,
                        value,
                        key=key,
                        headers=headers,
                        timestamp_ms=timestamp_ms,
                        on_delivery=on_delivery,
                    )
                )
                if self._failed:
                    break
        except KafkaError as error:
            self._report.error = error
        self._report.accepted = len(deliveries)
        try:
            await self._producer.flush()
        except KafkaError as error:  # the producer died; the deliveries hold what is known
            self._report.error = self._report.error or error
        return deliveries

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

    def _sampled(self, began: float, delivery: Delivery) -> None:
        if delivery.exception() is None:
            self._latencies.append(self._now() - began)
        else:
            self._failed = True

    def _count_in(self, record: Content, delivery: Delivery) -> None:
        error = delivery.exception() if delivery.done() else Unknown("No outcome was reported.")
        if error is None:
            self._report.pipelined += 1
            self._report.pipelined_bytes += content_size(record)
            self._count_place(delivery.result())
        else:
            self._count_error(error)

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
        latest = sorted(self._latencies[-_LATEST:])
        return Pace(
            acknowledged,
            int(acknowledged * self._average_size),
            int(metrics["records-pending"]),
            self._now() - self._began,
            latest[int(len(latest) * 0.99)] if latest else 0.0,
        )


async def _report_pace(run: _Run, on_pace: Callable[[Pace], object]) -> None:
    while True:
        await asyncio.sleep(_PACE_INTERVAL)
        on_pace(run.pace())
