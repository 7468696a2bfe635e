"""A trace goes on in a consumer of another client: aiokafka's, with OpenTelemetry's own instrumentation of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition  # type: ignore[import-untyped]
from opentelemetry.instrumentation.aiokafka import AIOKafkaInstrumentor
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind

from aioproducer import Producer
from aioproducer.testing import FakeBroker
from tests.conftest import opened
from tests.contrib.spans import Seen, ids

Consumer: Any = AIOKafkaConsumer  # without types


@pytest.fixture
def seen() -> Iterator[Seen]:
    """The spans of producers and of aiokafka's consumers, which are instrumented until the end of the test."""
    seen, original = Seen(), Consumer.getone
    instrumentor = AIOKafkaInstrumentor()
    instrumentor.instrument(tracer_provider=seen.tracers)
    assert Consumer.getone is not original, "aiokafka is instrumented"
    try:
        yield seen
    finally:
        instrumentor.uninstrument()
    assert Consumer.getone is original


async def read(broker: FakeBroker, count: int) -> list[Any]:
    consumer = Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.assign([TopicPartition("orders", partition) for partition in range(3)])
        return [await consumer.getone() for _ in range(count)]
    finally:
        await consumer.stop()


def parent_of(span: ReadableSpan) -> tuple[int, int]:
    assert span.parent is not None
    return span.parent.trace_id, span.parent.span_id


def consumed(seen: Seen) -> list[ReadableSpan]:
    """The spans of the consumer."""
    return [span for span in seen.spans_of.get_finished_spans() if span.kind is SpanKind.CONSUMER]


async def test_the_consumer_s_span_is_below_that_of_the_send(broker: FakeBroker, seen: Seen) -> None:
    async with opened(broker, interceptors=[seen.interceptor()]) as producer:
        with seen.tracer.start_as_current_span("request") as request:
            await producer.send("orders", b"value", key=b"key", headers={"kind": b"new"})

    (record,) = await read(broker, 1)
    (received,) = consumed(seen)
    at = request.get_span_context()
    assert (record.value, record.key, dict(record.headers)["kind"]) == (b"value", b"key", b"new")
    assert seen.span.name == "send orders"
    assert parent_of(seen.span) == (at.trace_id, at.span_id)
    assert parent_of(received) == ids(seen.span)
    assert received.parent is not None
    assert received.parent.is_remote, "the parent comes from the record's headers"
    sent, got = dict(seen.span.attributes or {}), dict(received.attributes or {})
    assert got["messaging.destination.name"] == sent["messaging.destination.name"] == "orders"
    assert got["messaging.destination.partition.id"] == sent["messaging.destination.partition.id"]
    assert got["messaging.kafka.message.offset"] == sent["messaging.kafka.offset"] == 0


async def send_one_by_one(producer: Producer) -> None:
    for value in (b"1", b"2", b"3"):
        await producer.send("orders", value)


async def send_at_once(producer: Producer) -> None:
    await producer.send_many("orders", [b"1", b"2", b"3"])


@pytest.mark.parametrize(("send", "spans"), [(send_one_by_one, 3), (send_at_once, 1)])
async def test_each_record_leads_back_to_the_span_that_sent_it(
    broker: FakeBroker, seen: Seen, send: Callable[[Producer], Awaitable[None]], spans: int
) -> None:
    async with opened(broker, interceptors=[seen.interceptor()]) as producer:
        with seen.tracer.start_as_current_span("request") as request:
            await send(producer)

    await read(broker, 3)
    parents = [parent_of(span) for span in consumed(seen)]
    assert len(parents) == 3
    assert set(parents) == {ids(span) for span in seen.spans}
    assert len(set(parents)) == spans
    assert {trace for trace, _ in parents} == {request.get_span_context().trace_id}
