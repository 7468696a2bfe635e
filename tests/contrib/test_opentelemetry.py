"""Spans last until the acknowledgement, records carry their context, and measurements follow the conventions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import CarrierT, Setter, TextMapPropagator, default_setter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from aioproducer import DeliveryError, InvalidRecord, Producer, ProducerRecord, SyncProducer
from aioproducer.contrib.opentelemetry import OpenTelemetryInterceptor
from aioproducer.testing import FakeBroker
from tests.conftest import QUICK, opened, turns, until


class Seen:
    """The spans and measurements that an SDK exports of a producer."""

    def __init__(self) -> None:
        self.spans_of = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.spans_of))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])
        self.tracer = self.tracers.get_tracer("test")

    def interceptor(self, propagator: TextMapPropagator | None = None) -> OpenTelemetryInterceptor:
        return OpenTelemetryInterceptor(tracer_provider=self.tracers, meter_provider=self.meters, propagator=propagator)

    @property
    def spans(self) -> list[ReadableSpan]:
        """The spans of records that have ended."""
        return [span for span in self.spans_of.get_finished_spans() if span.kind is SpanKind.PRODUCER]

    @property
    def span(self) -> ReadableSpan:
        (span,) = self.spans
        return span

    def measured(self, name: str) -> Mapping[tuple[tuple[str, object], ...], float]:
        """The number of measurements of an instrument, by attributes."""
        data = self.reader.get_metrics_data()
        assert data is not None
        found: dict[tuple[tuple[str, object], ...], float] = {}
        for resource in data.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in metric.data.data_points if metric.name == name else ():
                        assert isinstance(point, HistogramDataPoint | NumberDataPoint)
                        key = tuple(sorted((point.attributes or {}).items()))
                        found[key] = point.count if isinstance(point, HistogramDataPoint) else point.value
        return found


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"orders": 2}) as broker:
        yield broker


def ids(span: ReadableSpan) -> tuple[int, int]:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


def carried(broker: FakeBroker) -> list[tuple[int, int]]:
    """The trace and span that each record carries."""
    found: list[tuple[int, int]] = []
    for record in broker.records("orders"):
        carrier = {name: value.decode() for name, value in record.headers if value is not None}
        context = TraceContextTextMapPropagator().extract(carrier)
        at = trace.get_current_span(context).get_span_context()
        found.append((at.trace_id, at.span_id))
    return found


async def test_a_span_has_the_attributes_of_the_conventions(broker: FakeBroker, seen: Seen) -> None:
    async with opened(broker, client_id="shop", interceptors=[seen.interceptor()]) as producer:
        await producer.send("orders", b"first", partition=1)
        await producer.send("orders", b"value", key=b"secret", partition=1)

    span = seen.spans[1]
    host, port = broker.bootstrap_servers.split(":")
    assert span.name == "send orders"
    assert dict(span.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "1",
        "messaging.kafka.offset": 1,
        "messaging.client.id": "shop",
        "server.address": host,
        "server.port": int(port),
    }
    assert span.status.status_code is StatusCode.UNSET


async def test_a_tombstone_is_named(broker: FakeBroker, seen: Seen) -> None:
    async with opened(broker, interceptors=[seen.interceptor()]) as producer:
        await producer.send("orders", key=b"key")

    assert (seen.span.attributes or {})["messaging.kafka.message.tombstone"] is True


async def test_the_span_ends_with_the_acknowledgement(broker: FakeBroker, seen: Seen) -> None:
    async with opened(broker, interceptors=[seen.interceptor()]) as producer:
        with broker.hold("Produce") as held:
            delivery = await producer.enqueue("orders", b"value")
            await until(lambda: held.waiting)
            assert seen.spans == []
        await delivery
        assert len(seen.spans) == 1


@pytest.mark.parametrize("call", ["send", "enqueue", "enqueue_nowait", "send_many"])
async def test_records_carry_the_context_of_their_span_whose_parent_is_that_of_the_caller(
    broker: FakeBroker, seen: Seen, call: str
) -> None:
    async with opened(broker, interceptors=[seen.interceptor()]) as producer:
        await producer.partitions_for("orders")
        with seen.tracer.start_as_current_span("request") as request:
            match call:
                case "send":
                    await producer.send("orders", b"value")
                case "enqueue":
                    await producer.enqueue("orders", b"value")
                case "enqueue_nowait":
                    producer.enqueue_nowait("orders", b"value")
                case _:
                    await producer.send_many("orders", [b"value"])
        await producer.flush()

    parent = seen.span.parent
    assert parent is not None
    assert parent.span_id == request.get_span_context().span_id
    assert carried(broker) == [ids(seen.span)]


def test_a_thread_s_span_is_the_parent(broker: FakeBroker, seen: Seen) -> None:
    with (
        SyncProducer(broker.bootstrap_servers, interceptors=[seen.interceptor()], **QUICK) as producer,
        seen.tracer.start_as_current_span("request") as request,
    ):
        producer.send("orders", b"value")
        producer.enqueue_nowait("orders", b"value").result()
        producer.send_many("orders", [b"value"])

    assert {span.parent and span.parent.span_id for span in seen.spans} == {request.get_span_context().span_id}
    assert sorted(carried(broker)) == sorted(map(ids, seen.spans))
    assert len(seen.spans) == 3


async def test_other_headers_stay_and_one_of_the_same_name_is_replaced(broker: FakeBroker, seen: Seen) -> None:
    async with opened(broker, interceptors=[seen.interceptor()]) as producer:
        headers = [("a", b"1"), ("traceparent", b"00-old"), ("a", b"2")]
        await producer.send("orders", b"value", headers=headers)

    (record,) = broker.records("orders")
    assert [name for name, _ in record.headers] == ["a", "a", "traceparent"]
    assert carried(broker) == [ids(seen.span)]


class Fixed(TextMapPropagator):
    def extract(self, carrier: CarrierT, context: Context | None = None, getter: object = None) -> Context:
        raise NotImplementedError

    def inject(
        self, carrier: CarrierT, context: Context | None = None, setter: Setter[CarrierT] = default_setter
    ) -> None:
        setter.set(carrier, "b3", "it")

    @property
    def fields(self) -> set[str]:
        return {"b3"}


async def test_any_propagator_may_be_used(broker: FakeBroker, seen: Seen) -> None:
    async with opened(broker, interceptors=[seen.interceptor(Fixed())]) as producer:
        await producer.send("orders", b"value")

    (record,) = broker.records("orders")
    assert record.headers == (("b3", b"it"),)


# -- failures ---------------------------------------------------------------------------------------------------------


async def test_a_failed_record_ends_its_span_with_kafka_s_name_of_the_error(broker: FakeBroker, seen: Seen) -> None:
    broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", times=None)
    async with opened(broker, interceptors=[seen.interceptor()]) as producer:
        with pytest.raises(DeliveryError) as failed:
            await producer.send("orders", b"value", partition=0)

    attributes = dict(seen.span.attributes or {})
    assert attributes["error.type"] == "TOPIC_AUTHORIZATION_FAILED"
    assert attributes["messaging.destination.partition.id"] == "0"
    assert "messaging.kafka.offset" not in attributes
    assert seen.span.status.status_code is StatusCode.ERROR
    assert seen.span.status.description == str(failed.value)


async def test_a_record_that_is_refused_ends_its_span_without_its_key(broker: FakeBroker, seen: Seen) -> None:
    async with opened(broker, interceptors=[seen.interceptor()], max_request_size=1000) as producer:
        with pytest.raises(InvalidRecord):
            await producer.send("orders", b"x" * 2000, key=b"secret")

    assert (seen.span.attributes or {})["error.type"] == "RecordTooLarge"
    assert seen.span.status.description == "RecordTooLarge"


async def test_a_call_that_is_cancelled_while_it_waits_ends_its_span(seen: Seen) -> None:
    async with Producer("127.0.0.1:1", interceptors=[seen.interceptor()], close_timeout_ms=100) as producer:
        task = asyncio.create_task(producer.send("orders", b"value"))
        await turns()
        assert seen.spans == []
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    assert (seen.span.attributes or {})["error.type"] == "CancelledError"


async def test_a_serializer_that_raises_ends_the_span(broker: FakeBroker, seen: Seen) -> None:
    def serialize(value: object) -> bytes:
        raise LookupError("no schema")

    async with opened(broker, interceptors=[seen.interceptor()], value_serializer=serialize) as producer:
        with pytest.raises(InvalidRecord):
            await producer.send("orders", b"value")

    assert (seen.span.attributes or {})["error.type"] == "SerializationError"


async def test_a_record_that_close_gives_up_ends_its_span(broker: FakeBroker, seen: Seen) -> None:
    async with opened(broker, interceptors=[seen.interceptor()], close_timeout_ms=0, linger_ms=60_000) as producer:
        await producer.partitions_for("orders")
        with broker.hold("Produce"):
            deliveries = [await producer.enqueue("orders", b"value") for _ in range(3)]
            await producer.close()

    assert len(seen.spans) == 3
    assert all(delivery.exception() for delivery in deliveries)


async def test_a_header_that_is_invalid_is_an_error_of_the_call_and_not_a_line_in_the_log(
    broker: FakeBroker, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(broker, interceptors=[seen.interceptor()]) as producer:
        with pytest.raises(InvalidRecord):
            await producer.send("orders", b"value", headers={"a": 1})  # type: ignore[dict-item]

    assert (seen.span.attributes or {})["error.type"] == "InvalidRecord"
    assert caplog.messages == []


# -- sampling and measurements ----------------------------------------------------------------------------------------


async def test_a_span_that_is_not_sampled_still_hands_on_the_decision(broker: FakeBroker, seen: Seen) -> None:
    never = OpenTelemetryInterceptor(tracer_provider=TracerProvider(sampler=ALWAYS_OFF), meter_provider=seen.meters)
    async with opened(broker, interceptors=[never]) as producer:
        await producer.send("orders", b"value")

    (record,) = broker.records("orders")
    flags = (dict(record.headers)["traceparent"] or b"").split(b"-")[-1]
    assert not int(flags, 16) & 1
    assert seen.spans == []


async def test_without_an_sdk_records_are_unchanged(broker: FakeBroker) -> None:
    async with opened(broker, interceptors=[OpenTelemetryInterceptor()]) as producer:
        await producer.send(ProducerRecord("orders", b"value", headers={"a": b"1"}))

    (record,) = broker.records("orders")
    assert record.headers == (("a", b"1"),)


async def test_measurements_count_each_record_once(broker: FakeBroker, seen: Seen) -> None:
    broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", times=1)
    async with opened(broker, interceptors=[seen.interceptor()]) as producer:
        with pytest.raises(DeliveryError):
            await producer.send("orders", b"value", partition=0)
        for _ in range(3):
            await producer.send("orders", b"value", partition=0)

    host, port = broker.bootstrap_servers.split(":")
    written = {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "server.address": host,
        "server.port": int(port),
    }
    failed = {**written, "error.type": "TOPIC_AUTHORIZATION_FAILED"}
    assert seen.measured("messaging.client.operation.duration") == {
        tuple(sorted(written.items())): 3,
        tuple(sorted(failed.items())): 1,
    }
    assert seen.measured("messaging.client.sent.messages") == {tuple(sorted(written.items())): 3}


async def test_producers_may_share_one_interceptor(broker: FakeBroker, seen: Seen) -> None:
    shared = seen.interceptor()
    async with (
        opened(broker, client_id="a", interceptors=[shared]) as first,
        opened(broker, client_id="b", interceptors=[shared]) as second,
    ):
        await first.send("orders", b"value")
        await second.send("orders", b"value")

    assert [(span.attributes or {})["messaging.client.id"] for span in seen.spans] == ["a", "b"]
