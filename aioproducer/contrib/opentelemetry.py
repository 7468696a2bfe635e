"""Traces and measures what producers send, with OpenTelemetry's API (``aioproducer[opentelemetry]``).

Names follow OpenTelemetry's semantic conventions for messaging and Kafka. A span lasts from the call until the record is
acknowledged or has failed, and the record carries its context to the consumer, in headers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from time import perf_counter
from typing import Final

from opentelemetry import context, propagate, trace
from opentelemetry.metrics import MeterProvider, get_meter
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider

from aioproducer._version import __version__
from aioproducer.errors import BrokerError, InvalidRecord, RecordTooLarge, Unknown
from aioproducer.interceptors import EndOfSend, InterceptedProducer, ProducerInterceptor
from aioproducer.serializers import normalize_headers
from aioproducer.types import ProducerRecord, RecordMetadata

__all__ = ["OpenTelemetryInterceptor"]

_SCOPE: Final = "aioproducer"
#: The version of the conventions that names of spans, metrics and attributes follow.
_SCHEMA: Final = "https://opentelemetry.io/schemas/1.44.0"
#: The conventions' buckets of a duration in seconds.
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
#: How many sets of attributes to keep, so that they are not created for each record.
_MAX_KEPT: Final = 10_000

_Attributes = dict[str, str | int | bool]


class OpenTelemetryInterceptor(ProducerInterceptor):
    """An interceptor that gives each record a span ``send TOPIC`` and its context, and measures it.

    ::

        Producer("localhost:9092", interceptors=[OpenTelemetryInterceptor()])

    The span's parent is the caller's current span, also for `SyncProducer` in threads. Its context goes into the record's
    headers (``traceparent``, or those of another configured propagator) and replaces one that is there. The span ends when
    the record is acknowledged, has failed, or its call was refused or cancelled. Keys and values are not recorded.

    The metrics are ``messaging.client.operation.duration`` and ``messaging.client.sent.messages``. Several producers may
    share one object. Providers and propagator are OpenTelemetry's global ones, unless they are given here.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        propagator: TextMapPropagator | None = None,
    ) -> None:
        """Get tracer and meter from the providers."""
        self._tracer = trace.get_tracer(_SCOPE, __version__, tracer_provider, _SCHEMA)
        meter = get_meter(_SCOPE, __version__, meter_provider, _SCHEMA)
        self._duration = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "Duration of messaging operation initiated by a producer or consumer client.",
            explicit_bucket_boundaries_advisory=_BUCKETS,
        )
        self._sent = meter.create_counter(
            "messaging.client.sent.messages",
            "{message}",
            "Number of messages producer attempted to send to the broker.",
        )
        self._propagator = propagator
        self._kept: dict[tuple[str, str], _Attributes] = {}

    def begin_send(self, record: ProducerRecord, producer: InterceptedProducer) -> tuple[ProducerRecord, EndOfSend]:
        """Begins the span of a record, and puts its context into the headers."""
        began = perf_counter()
        common = self._common(producer.client_id, record.topic)
        attributes = common if record.value is not None else {**common, "messaging.kafka.message.tombstone": True}
        parent = context.get_current()
        span = self._tracer.start_span(f"send {record.topic}", parent, SpanKind.PRODUCER, attributes)
        carrier: dict[str, str] = {}
        inject = propagate.inject if self._propagator is None else self._propagator.inject
        inject(carrier, trace.set_span_in_context(span, parent))
        if carrier:
            record = _with_headers(record, carrier)

        def end(metadata: RecordMetadata | None, error: BaseException | None) -> None:
            self._end(span, common, producer, began, metadata, error)

        return record, end

    def _end(
        self,
        span: Span,
        common: _Attributes,
        producer: InterceptedProducer,
        began: float,
        metadata: RecordMetadata | None,
        error: BaseException | None,
    ) -> None:
        place = _place(producer, metadata, error)
        if span.is_recording():
            span.set_attributes(place)
            if metadata is not None and metadata.offset >= 0:
                span.set_attribute("messaging.kafka.offset", metadata.offset)
            if error is not None:
                span.set_attribute("error.type", error_type(error))
                span.set_status(Status(StatusCode.ERROR, _description(error)))
        span.end()
        measured = {**common, **place}
        del measured["messaging.client.id"]
        if error is not None:
            measured["error.type"] = error_type(error)
        self._duration.record(perf_counter() - began, measured)
        if error is None or isinstance(error, Unknown):
            self._sent.add(1, measured)

    def _common(self, client_id: str, topic: str) -> _Attributes:
        """The attributes of all records of a topic."""
        found = self._kept.get((client_id, topic))
        if found is None:
            found = {
                "messaging.system": "kafka",
                "messaging.operation.name": "send",
                "messaging.operation.type": "send",
                "messaging.destination.name": topic,
                "messaging.client.id": client_id,
            }
            if len(self._kept) < _MAX_KEPT:
                self._kept[client_id, topic] = found
        return found


def _with_headers(record: ProducerRecord, carrier: Mapping[str, str]) -> ProducerRecord:
    """The record with these headers, and no others of the same names."""
    try:
        headers = normalize_headers(record.headers)
    except InvalidRecord:
        return record  # the call will raise it
    kept = [each for each in headers if each[0] not in carrier]
    added = [(name, text.encode()) for name, text in carrier.items()]
    return ProducerRecord(
        record.topic, record.value, record.key, (*kept, *added), record.partition, record.timestamp_ms
    )


def error_type(error: BaseException) -> str:
    """Kafka's name of the broker's error that a record failed with, else the name of the exception's class."""
    broker_error = error if isinstance(error, BrokerError) else error.__cause__
    return broker_error.name if isinstance(broker_error, BrokerError) else type(error).__name__


def _place(producer: InterceptedProducer, metadata: RecordMetadata | None, error: BaseException | None) -> _Attributes:
    """The partition of a record and the broker that leads it, as far as they are known."""
    topic = getattr(error, "topic", None) if metadata is None else metadata.topic
    partition = getattr(error, "partition", None) if metadata is None else metadata.partition
    if topic is None or partition is None:
        return {}
    place: _Attributes = {"messaging.destination.partition.id": str(partition)}
    leader = producer.leader(topic, partition)
    if leader is not None:
        place["server.address"], place["server.port"] = leader
    return place


def _description(error: BaseException) -> str:
    """The text of the error; only the name of its class where the text shows the record's key."""
    shows_key = isinstance(error, RecordTooLarge) or isinstance(error.__cause__, RecordTooLarge)
    return type(error).__name__ if shows_key or isinstance(error, asyncio.CancelledError) else str(error)
