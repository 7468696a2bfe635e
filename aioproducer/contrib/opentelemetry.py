"""Traces and measures what producers send, with OpenTelemetry's API (``aioproducer[opentelemetry]``).

Names follow OpenTelemetry's semantic conventions for messaging and Kafka. A span lasts from the call until the record is
acknowledged or has failed, and the record carries its context to the consumer, in headers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any, ClassVar, Final, Literal, NamedTuple, TypeAlias, cast
from weakref import WeakKeyDictionary

from opentelemetry import context, propagate, trace
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider, get_meter
from opentelemetry.propagators.textmap import Setter, TextMapPropagator, default_setter
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, TracerProvider

from aioproducer._version import __version__
from aioproducer.errors import BrokerError, InvalidRecord, KafkaError, SendManyError, Unknown
from aioproducer.interceptors import (
    EndOfBulk,
    EndOfSend,
    EndOfTransaction,
    InterceptedProducer,
    ProducerInterceptor,
    add_global_interceptor,
    remove_global_interceptor,
)
from aioproducer.serializers import normalize_headers
from aioproducer.types import Header, Headers, ProducerRecord, RecordMetadata, SendManyResult, TransactionOutcome

__all__ = ["AioproducerInstrumentor", "OpenTelemetryInterceptor"]

_SCOPE: Final = "aioproducer"
#: The version of the conventions that names of spans, metrics and attributes follow.
_SCHEMA: Final = "https://opentelemetry.io/schemas/1.44.0"
#: The conventions' buckets of a duration in seconds.
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
#: How many sets of attributes to keep, so that they are not created for each record.
_MAX_KEPT: Final = 10_000

_Attributes: TypeAlias = dict[str, str | int | bool]

_SETTER: Final = cast("Setter[dict[str, str]]", default_setter)


@dataclass(slots=True)
class _Bulk:
    """A call that sends many, and the headers that its records carry."""

    producer: InterceptedProducer
    carrier: Mapping[str, str]
    is_open: bool = True


@dataclass(slots=True)
class _Open:
    """An open transaction: its span, and the span in which it was begun."""

    span: Span
    begun_in: SpanContext


@dataclass(slots=True)
class _Begun:
    """A record that was sent; called with its outcome. One object, because the garbage collector looks at each of them."""

    end: Callable[[_Begun, RecordMetadata | None, BaseException | None], object]
    span: Span
    common: _Attributes
    producer: InterceptedProducer
    at: float

    def __call__(self, metadata: RecordMetadata | None, error: BaseException | None) -> None:
        self.end(self, metadata, error)


class _Place(NamedTuple):
    """The attributes of a partition's acknowledged records, of their spans and of their measurements."""

    leader: tuple[str, int] | None
    of_span: _Attributes
    measured: _Attributes


class OpenTelemetryInterceptor(ProducerInterceptor):
    """An interceptor that gives each record a span ``send TOPIC`` and its context, and measures it.

    ::

        Producer("localhost:9092", interceptors=[OpenTelemetryInterceptor()])

    The span's parent is the caller's current span, also for `SyncProducer` in threads. Its context goes into the record's
    headers (``traceparent``, or those of another configured propagator) and replaces one that is there. The span ends when
    the record is acknowledged, has failed, or its call was refused or cancelled. Keys and values are not recorded.

    ``bulk`` decides about `Producer.send_many` and `Producer.send_table`: with ``"call"`` each call has one span, whose
    context all of its records carry; with ``"record"`` each record of ``send_many`` also has one, below that of the call;
    with ``"none"`` there is no span, and the records carry the context of the caller.

    A transaction has a span as well, from `Producer.begin_transaction` until the coordinator's answer; those of its records
    are below it, with a link to the caller's span if the transaction was begun in another one. Its attribute
    ``aioproducer.transaction.outcome`` is "committed", "aborted", "prepared" or "unknown".

    The metrics are ``messaging.client.operation.duration`` and ``messaging.client.sent.messages``. Several producers may
    share one object. Providers and propagator are OpenTelemetry's global ones, unless they are given here.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        propagator: TextMapPropagator | None = None,
        bulk: Literal["call", "record", "none"] = "call",
    ) -> None:
        """Get tracer and meter from the providers. Raises ValueError for another ``bulk``."""
        if bulk not in ("call", "record", "none"):
            raise ValueError(f"Invalid bulk={bulk!r}: must be 'call', 'record' or 'none'.")
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
        self._bulk = bulk
        #: What the records of the call that sends many carry, and its producer.
        self._in_bulk: ContextVar[_Bulk | None] = ContextVar("bulk", default=None)
        self._kept: dict[tuple[str, str], _Attributes] = {}
        self._kept_places: dict[tuple[str, str, str, int], _Place] = {}
        self._transactions: WeakKeyDictionary[InterceptedProducer, _Open] = WeakKeyDictionary()

    def begin_send(self, record: ProducerRecord, producer: InterceptedProducer) -> tuple[ProducerRecord, EndOfSend]:
        """Begins the span of a record, and puts its context into the headers."""
        bulk = self._in_bulk.get()
        if bulk is not None and bulk.producer is producer and bulk.is_open:
            return _with_headers(record, bulk.carrier), _ignore
        began = perf_counter()
        common = self._common(producer.client_id, record.topic)
        attributes = common if record.value is not None else {**common, "messaging.kafka.message.tombstone": True}
        parent, links = self._parent(producer)
        span = self._tracer.start_span(f"send {record.topic}", parent, SpanKind.PRODUCER, attributes, links)
        try:
            record = _with_headers(record, self._carrier(trace.set_span_in_context(span, parent)))
        except BaseException:  # a propagator's
            span.end()
            raise
        return record, _Begun(self._end, span, common, producer, began)

    def begin_bulk(self, topic: str, producer: InterceptedProducer, is_table: bool) -> tuple[Headers, EndOfBulk]:
        """Begins the span of a call that sends many records."""
        began = perf_counter()
        common = self._common(producer.client_id, topic)
        inside, links = self._parent(producer)
        span: Span = trace.INVALID_SPAN
        if self._bulk != "none":
            span = self._tracer.start_span(f"send {topic}", inside, SpanKind.PRODUCER, common, links)
            inside = trace.set_span_in_context(span, inside)
        try:
            carrier = self._carrier(inside)
        except BaseException:  # a propagator's
            span.end()
            raise
        leave = self._enter(inside, producer, carrier)

        def end(result: SendManyResult | None, error: BaseException | None) -> None:
            try:
                leave()
            finally:
                # In other cases the records are measured one by one.
                measure = is_table or self._bulk != "record"
                self._end_bulk(span, common, perf_counter() - began if measure else None, result, error)

        return [(name, text.encode()) for name, text in carrier.items()], end

    def begin_transaction(self, producer: InterceptedProducer) -> EndOfTransaction:
        """Begins the span of a transaction, below the caller's."""
        attributes: _Attributes = {"messaging.system": "kafka", "messaging.client.id": producer.client_id}
        if producer.transactional_id is not None:
            attributes["aioproducer.transactional_id"] = producer.transactional_id
        caller = trace.get_current_span().get_span_context()
        span = self._tracer.start_span("transaction", attributes=attributes)
        begun = self._transactions[producer] = _Open(span, caller)

        def end(outcome: TransactionOutcome, error: BaseException | None) -> None:
            if self._transactions.get(producer) is begun:
                del self._transactions[producer]
            if span.is_recording():
                span.set_attribute("aioproducer.transaction.outcome", outcome)
                _set_error(span, error)
            span.end()

        return end

    def _parent(self, producer: InterceptedProducer) -> tuple[Context, Sequence[Link]]:
        """The context for the span of a record, and its links: the producer's open transaction, or the caller."""
        caller = context.get_current()
        begun = None if producer.transactional_id is None else self._transactions.get(producer)
        if begun is None:
            return caller, ()
        current = trace.get_current_span(caller).get_span_context()
        links = (Link(current),) if current.is_valid and current != begun.begun_in else ()
        return trace.set_span_in_context(begun.span, caller), links

    def _enter(
        self, inside: Context, producer: InterceptedProducer, carrier: Mapping[str, str]
    ) -> Callable[[], object]:
        """Let the records of a call that sends many be treated as ``bulk`` says, until what is returned is called."""
        if self._bulk == "record":
            return partial(context.detach, context.attach(inside))
        bulk = _Bulk(producer, carrier)
        token = self._in_bulk.set(bulk)

        def leave() -> None:
            bulk.is_open = False  # tasks that the call's iterable has started may still see it
            self._in_bulk.reset(token)

        return leave

    def _end_bulk(
        self,
        span: Span,
        common: _Attributes,
        seconds: float | None,
        result: SendManyResult | None,
        error: BaseException | None,
    ) -> None:
        if isinstance(error, SendManyError):
            result, error = error.result, error.error
        if span.is_recording():
            if result is not None:  # otherwise it is not known
                span.set_attribute("messaging.batch.message_count", result.count)
            _set_error(span, error)
        span.end()
        if seconds is None:
            return
        measured = _measured(common, {}, error)
        self._duration.record(seconds, measured)
        if result is not None and result.count:
            self._sent.add(result.count, _measured(common, {}, None))
        if result is not None and result.unknown:
            self._sent.add(result.unknown, measured)

    def _carrier(self, inside: Context) -> Mapping[str, str]:
        carrier: dict[str, str] = {}
        propagator = propagate.get_global_textmap() if self._propagator is None else self._propagator
        propagator.inject(carrier, inside, _SETTER)
        return carrier

    def _end(self, begun: _Begun, metadata: RecordMetadata | None, error: BaseException | None) -> None:
        span, common = begun.span, begun.common
        if metadata is None:
            at, offset = _place_of_failed(begun.producer, error), -1
            measured = _measured(common, at, error)
        else:
            (_, at, measured), offset = self._place(begun.producer, common, metadata), metadata.offset
        if span.is_recording():
            span.set_attributes(at if offset < 0 else {**at, "messaging.kafka.offset": offset})
            _set_error(span, error)
        span.end()
        self._duration.record(perf_counter() - begun.at, measured)
        if error is None or isinstance(error, Unknown):
            self._sent.add(1, measured)

    def _place(self, producer: InterceptedProducer, common: _Attributes, metadata: RecordMetadata) -> _Place:
        """The place of an acknowledged record."""
        named = cast("str", common["messaging.destination.name"])
        key = (producer.client_id, named, metadata.topic, metadata.partition)
        leader = producer.leader(metadata.topic, metadata.partition)
        kept = self._kept_places.get(key)
        if kept is None or kept.leader != leader:
            at = _at(metadata.partition, leader)
            kept = _Place(leader, at, _measured(common, at, None))
            if key in self._kept_places or len(self._kept_places) < _MAX_KEPT:
                self._kept_places[key] = kept
        return kept

    def _common(self, client_id: str, topic: str) -> _Attributes:
        """The attributes of all records of a topic."""
        kept = self._kept.get((client_id, topic))
        if kept is not None:
            return kept
        made: _Attributes = {
            "messaging.system": "kafka",
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.destination.name": topic,
            "messaging.client.id": client_id,
        }
        if len(self._kept) < _MAX_KEPT:
            self._kept[client_id, topic] = made
        return made


def _ignore(metadata: RecordMetadata | None, error: BaseException | None) -> None:
    """The outcome of a record whose call has the span."""


def _set_error(span: Span, error: BaseException | None) -> None:
    if error is not None:
        span.set_attribute("error.type", error_type(error))
        span.set_status(Status(StatusCode.ERROR, _description(error)))


def _measured(common: _Attributes, place: _Attributes, error: BaseException | None) -> _Attributes:
    """The attributes of a measurement: without the client id, of which there may be any number."""
    measured = {**common, **place}
    del measured["messaging.client.id"]
    if error is not None:
        measured["error.type"] = error_type(error)
    return measured


def _with_headers(record: ProducerRecord, carrier: Mapping[str, str]) -> ProducerRecord:
    """The record with these headers, and no others of the same names."""
    if not carrier:
        return record
    headers: list[Header] = [(name, text.encode()) for name, text in carrier.items()]
    given = cast("object", record.headers)
    if given is not None:
        if not isinstance(given, (Mapping, Sequence)):
            given = tuple(cast("Iterable[Any]", given))  # may be read only once
            record = replace(record, headers=given)
        try:
            headers[:0] = [each for each in normalize_headers(cast("object", given)) if each[0] not in carrier]
        except InvalidRecord:
            return record  # the call will raise it
    if type(record) is not ProducerRecord:
        return replace(record, headers=headers)
    # Not dataclasses.replace(), which takes as long as the rest.
    return ProducerRecord(record.topic, record.value, record.key, headers, record.partition, record.timestamp_ms)


class AioproducerInstrumentor:
    """Instruments all producers that are created afterwards: `opentelemetry-instrument` finds it by its entry point.

    ::

        AioproducerInstrumentor().instrument()
    """

    _interceptor: ClassVar[OpenTelemetryInterceptor | None] = None

    def instrument(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        bulk: Literal["call", "record", "none"] = "call",
        **_: object,
    ) -> None:
        """Give each new producer an `OpenTelemetryInterceptor`; a second call does nothing."""
        if AioproducerInstrumentor._interceptor is None:
            made = OpenTelemetryInterceptor(tracer_provider=tracer_provider, meter_provider=meter_provider, bulk=bulk)
            AioproducerInstrumentor._interceptor = made
            add_global_interceptor(made)

    def uninstrument(self, **_: object) -> None:
        """Give it to no further producer; those that have it keep it."""
        if AioproducerInstrumentor._interceptor is not None:
            remove_global_interceptor(AioproducerInstrumentor._interceptor)
            AioproducerInstrumentor._interceptor = None


def error_type(error: BaseException) -> str:
    """Kafka's name of the broker's error that a record failed with, else the name of the exception's class."""
    broker_error = error if isinstance(error, BrokerError) else error.__cause__
    return broker_error.name if isinstance(broker_error, BrokerError) else type(error).__name__


def _place_of_failed(producer: InterceptedProducer, error: BaseException | None) -> _Attributes:
    """The partition of a record that failed and the broker that leads it, as far as they are known."""
    topic, partition = getattr(error, "topic", None), getattr(error, "partition", None)
    return {} if topic is None or partition is None else _at(partition, producer.leader(topic, partition))


def _at(partition: int, leader: tuple[str, int] | None) -> _Attributes:
    at: _Attributes = {"messaging.destination.partition.id": str(partition)}
    if leader is not None:
        at["server.address"], at["server.port"] = leader
    return at


def _description(error: BaseException) -> str:
    """The text of the error, or only the name of its class where the text may show a key or a value."""
    shows = (InvalidRecord, SendManyError)  # also with the text of a serializer or a partitioner
    is_safe = isinstance(error, KafkaError) and not isinstance(error, shows) and not isinstance(error.__cause__, shows)
    return str(error) if is_safe else type(error).__name__
