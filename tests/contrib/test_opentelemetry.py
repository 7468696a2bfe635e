"""Spans last until the acknowledgement, records carry their context, and measurements follow the conventions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from importlib.metadata import entry_points
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import CarrierT, Setter, TextMapPropagator, default_setter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import StatusCode

from aioproducer import ConfigError, DeliveryError, InvalidRecord, Producer, ProducerRecord, SendManyError, SyncProducer
from aioproducer.contrib.opentelemetry import AioproducerInstrumentor as Instrumentor
from aioproducer.contrib.opentelemetry import OpenTelemetryInterceptor
from aioproducer.testing import FakeBroker
from tests.conftest import QUICK, opened, turns, until
from tests.contrib.spans import Seen, carried, ids


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"orders": 2}) as broker:
        yield broker


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


class Silent(Fixed):
    def inject(
        self, carrier: CarrierT, context: Context | None = None, setter: Setter[CarrierT] = default_setter
    ) -> None:
        pass


class Raising(Fixed):
    def inject(
        self, carrier: CarrierT, context: Context | None = None, setter: Setter[CarrierT] = default_setter
    ) -> None:
        raise LookupError("inject")


async def test_any_propagator_may_be_used(broker: FakeBroker, seen: Seen) -> None:
    async with opened(broker, interceptors=[seen.interceptor(Fixed())]) as producer:
        await producer.send("orders", b"value")

    (record,) = broker.records("orders")
    assert record.headers == (("b3", b"it"),)


# -- calls that send many ---------------------------------------------------------------------------------------------

TABLE = pa.table({"value": pa.array([b"1", b"2", b"3"])})


async def send_many(producer: Producer) -> None:
    await producer.send_many("orders", [b"1", b"2", b"3"])


async def send_generated(producer: Producer) -> None:
    async def values() -> AsyncIterator[bytes]:
        for value in (b"1", b"2", b"3"):
            yield value

    await producer.send_many("orders", values())


async def send_table(producer: Producer) -> None:
    await producer.send_table("orders", TABLE, value="value")


@pytest.mark.parametrize("send", [send_many, send_generated, send_table])
async def test_a_call_that_sends_many_has_one_span_whose_context_all_records_carry(
    broker: FakeBroker, seen: Seen, send: Callable[[Producer], Awaitable[None]]
) -> None:
    async with opened(broker, client_id="shop", interceptors=[seen.interceptor()]) as producer:
        with seen.tracer.start_as_current_span("request") as request:
            await send(producer)
        await producer.send("orders", b"later")

    call, later = seen.spans
    assert call.parent is not None
    assert call.parent.span_id == request.get_span_context().span_id
    assert dict(call.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.client.id": "shop",
        "messaging.batch.message_count": 3,
    }
    assert sorted(carried(broker)) == sorted([ids(call)] * 3 + [ids(later)])


def test_a_thread_s_table_has_the_span_of_its_call(broker: FakeBroker, seen: Seen) -> None:
    with (
        SyncProducer(broker.bootstrap_servers, interceptors=[seen.interceptor()], **QUICK) as producer,
        seen.tracer.start_as_current_span("request") as request,
    ):
        producer.send_table("orders", TABLE, value="value")
        producer.send_many("orders", [b"value"])

    assert [span.parent and span.parent.span_id for span in seen.spans] == [request.get_span_context().span_id] * 2
    assert sorted(carried(broker)) == sorted([ids(seen.spans[0])] * 3 + [ids(seen.spans[1])])


async def test_each_record_of_a_call_may_have_its_span_below_that_of_the_call(broker: FakeBroker, seen: Seen) -> None:
    async with opened(broker, interceptors=[seen.interceptor(bulk="record")]) as producer:
        await send_many(producer)

    *records, call = seen.spans
    assert len(records) == 3
    assert {span.parent and span.parent.span_id for span in records} == {ids(call)[1]}
    assert sorted(carried(broker)) == sorted(map(ids, records))
    for measured in seen.measured("messaging.client.sent.messages", "messaging.client.operation.duration"):
        assert sum(measured.values()) == 3


@pytest.mark.parametrize("send", [send_many, send_table])
async def test_without_a_span_of_the_call_records_carry_the_context_of_the_caller(
    broker: FakeBroker, seen: Seen, send: Callable[[Producer], Awaitable[None]]
) -> None:
    async with opened(broker, interceptors=[seen.interceptor(bulk="none")]) as producer:
        with seen.tracer.start_as_current_span("request") as request:
            await send(producer)

    at = request.get_span_context()
    assert seen.spans == []
    assert carried(broker) == [(at.trace_id, at.span_id)] * 3


@pytest.mark.parametrize("send", [send_many, send_table])
async def test_a_call_that_sends_many_and_fails_ends_its_span_with_the_error(
    broker: FakeBroker, seen: Seen, send: Callable[[Producer], Awaitable[None]]
) -> None:
    broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", times=None)
    async with opened(broker, interceptors=[seen.interceptor()]) as producer:
        with pytest.raises(SendManyError):
            await send(producer)

    attributes = dict(seen.span.attributes or {})
    assert attributes["error.type"] == "TOPIC_AUTHORIZATION_FAILED"
    assert attributes["messaging.batch.message_count"] == 0


async def test_a_call_that_sends_many_is_measured_once(broker: FakeBroker, seen: Seen) -> None:
    async with opened(broker, interceptors=[seen.interceptor()]) as producer:
        await send_many(producer)
        await send_table(producer)

    sent, duration = seen.measured("messaging.client.sent.messages", "messaging.client.operation.duration")
    assert list(sent.values()) == [6]
    assert list(duration.values()) == [2]


@pytest.mark.parametrize(
    ("headers", "names"),
    [(None, []), ({"a": b"1"}, ["a"]), ([{"a": b"1"}, {"b": b"2"}], ["a", "b"]), ("pairs", ["c"])],
)
async def test_rows_of_a_table_keep_their_headers(
    broker: FakeBroker, seen: Seen, headers: Any, names: list[str]
) -> None:
    pairs = pa.array([[("c", b"1")]] * 3, pa.map_(pa.string(), pa.binary()))
    async with opened(broker, interceptors=[seen.interceptor()]) as producer:
        await producer.send_table("orders", TABLE.append_column("pairs", pairs), value="value", headers=headers)

    assert [[name for name, _ in record.headers] for record in broker.records("orders")] == [
        [*names, "traceparent"]
    ] * 3


async def test_a_table_needs_interceptors_that_take_calls_as_a_whole(broker: FakeBroker, seen: Seen) -> None:
    class SeesRecords:
        def begin_send(self, record: ProducerRecord, producer: object) -> object:
            return record, lambda metadata, error: None

    async with opened(broker, interceptors=[seen.interceptor(), SeesRecords()]) as producer:
        with pytest.raises(ConfigError, match="has interceptors="):
            await send_table(producer)

    assert (seen.span.attributes or {})["error.type"] == "ConfigError"


async def test_a_mapped_header_of_a_table_is_replaced_by_one_of_the_same_name(broker: FakeBroker, seen: Seen) -> None:
    async with opened(broker, interceptors=[seen.interceptor()]) as producer:
        headers = {"traceparent": b"00-old", "a": b"1"}
        await producer.send_table("orders", TABLE, value="value", headers=headers)

    assert [name for name, _ in broker.records("orders")[0].headers] == ["a", "traceparent"]
    assert carried(broker) == [ids(seen.span)] * 3


async def test_a_table_is_measured_whatever_is_chosen_for_records(broker: FakeBroker, seen: Seen) -> None:
    async with opened(broker, interceptors=[seen.interceptor(bulk="record")]) as producer:
        await send_table(producer)

    sent, duration = seen.measured("messaging.client.sent.messages", "messaging.client.operation.duration")
    assert (list(sent.values()), list(duration.values())) == ([3], [1])


async def test_a_task_that_outlives_the_call_has_spans_again(broker: FakeBroker, seen: Seen) -> None:
    go_on = asyncio.Event()
    tasks: list[asyncio.Task[object]] = []

    async def later(producer: Producer) -> None:
        await go_on.wait()
        await producer.send("orders", b"later")

    async with opened(broker, interceptors=[seen.interceptor()]) as producer:

        async def values() -> AsyncIterator[bytes]:
            tasks.append(asyncio.create_task(later(producer)))
            yield b"1"

        await producer.send_many("orders", values())
        go_on.set()
        await asyncio.gather(*tasks)

    assert len(seen.spans) == 2
    assert sorted(carried(broker)) == sorted(map(ids, seen.spans))


def test_another_choice_about_such_calls_is_refused() -> None:
    with pytest.raises(ValueError, match="must be 'call', 'record' or 'none'"):
        OpenTelemetryInterceptor(bulk="all")  # type: ignore[arg-type]


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


def refuse_key(key: object) -> bytes:
    return int(str(key)).to_bytes(8, "big")


def choose_by_key(topic: str, key: bytes | None, value: bytes | None, ids: object) -> int:
    return int(key or b"")


@pytest.mark.parametrize("options", [{"key_serializer": refuse_key}, {"partitioner": choose_by_key}])
async def test_a_key_that_the_text_of_an_error_shows_is_not_recorded(
    broker: FakeBroker, seen: Seen, options: dict[str, Any]
) -> None:
    async with opened(broker, interceptors=[seen.interceptor()], **options) as producer:
        with pytest.raises(InvalidRecord, match="secret"):
            await producer.send("orders", b"value", key="secret")

    assert seen.span.status.description == (seen.span.attributes or {})["error.type"]


async def test_values_that_raise_end_the_span_of_the_call_without_their_text(broker: FakeBroker, seen: Seen) -> None:
    def values() -> Iterator[bytes]:
        yield b"1"
        raise LookupError("secret")

    async with opened(broker, interceptors=[seen.interceptor()]) as producer:
        with pytest.raises(LookupError):
            await producer.send_many("orders", values())

    attributes = dict(seen.span.attributes or {})
    assert attributes["error.type"] == seen.span.status.description == "LookupError"
    assert "messaging.batch.message_count" not in attributes, "not known"
    assert len(broker.records("orders")) == 1


async def test_headers_that_can_be_read_only_once_are_read_only_once(broker: FakeBroker, seen: Seen) -> None:
    headers: Any = [("a", b"1"), ("b", 5), ("c", b"2")]
    async with opened(broker, interceptors=[seen.interceptor()]) as producer:
        with pytest.raises(InvalidRecord):
            await producer.send("orders", b"value", headers=iter(headers))
        await producer.send("orders", b"value", headers=iter(headers[:1]))

    (record,) = broker.records("orders")
    assert [name for name, _ in record.headers] == ["a", "traceparent"]


async def test_an_error_of_foreign_code_ends_the_span(broker: FakeBroker, seen: Seen) -> None:
    class Headers(dict[str, bytes]):
        def items(self) -> Any:
            raise LookupError("no headers")

    async with opened(broker, interceptors=[seen.interceptor(Silent())]) as producer:
        with pytest.raises(LookupError):
            await producer.send("orders", b"value", headers=Headers(a=b"1"))
        with pytest.raises(LookupError):
            producer.enqueue_nowait("orders", b"value", headers=Headers(a=b"1"))

    assert [(span.attributes or {})["error.type"] for span in seen.spans] == ["LookupError", "LookupError"]


async def test_a_propagator_that_raises_leaves_no_span_open(
    broker: FakeBroker, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(broker, interceptors=[seen.interceptor(Raising())]) as producer:
        await producer.send("orders", b"value")
        await send_table(producer)

    assert len(broker.records("orders")) == 4
    assert len(seen.spans) == 2
    assert "OpenTelemetryInterceptor.begin_send failed" in caplog.text
    assert "OpenTelemetryInterceptor.begin_bulk failed" in caplog.text


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
    durations, sent = seen.measured("messaging.client.operation.duration", "messaging.client.sent.messages")
    assert durations == {tuple(sorted(written.items())): 3, tuple(sorted(failed.items())): 1}
    assert sent == {tuple(sorted(written.items())): 3}


async def test_producers_may_share_one_interceptor(broker: FakeBroker, seen: Seen) -> None:
    shared = seen.interceptor()
    async with (
        opened(broker, client_id="a", interceptors=[shared]) as first,
        opened(broker, client_id="b", interceptors=[shared]) as second,
    ):
        await first.send("orders", b"value")
        await second.send("orders", b"value")

    assert [(span.attributes or {})["messaging.client.id"] for span in seen.spans] == ["a", "b"]


# -- all producers of a program ---------------------------------------------------------------------------------------


@pytest.fixture
def instrumentor() -> Iterator[Instrumentor]:
    (entry,) = entry_points(group="opentelemetry_instrumentor", name="aioproducer")
    instrumentor = entry.load()()
    yield instrumentor
    instrumentor.uninstrument()


async def test_one_call_instruments_all_producers_that_are_created_afterwards(
    broker: FakeBroker, seen: Seen, instrumentor: Instrumentor
) -> None:
    before = Producer(broker.bootstrap_servers)
    for _ in range(2):
        instrumentor.instrument(tracer_provider=seen.tracers, skip_dep_check=True)
    async with before, opened(broker, client_id="shop") as producer:
        await before.send("orders", b"value")
        await producer.send("orders", b"value")
        await send_table(producer)

    assert [(span.attributes or {})["messaging.client.id"] for span in seen.spans] == ["shop", "shop"]


async def test_a_producer_with_an_interceptor_of_the_same_class_does_not_get_a_second_one(
    broker: FakeBroker, seen: Seen, instrumentor: Instrumentor
) -> None:
    instrumentor.instrument(tracer_provider=seen.tracers)
    async with opened(broker, interceptors=[seen.interceptor()]) as producer:
        await producer.send("orders", b"value")

    assert len(seen.spans) == 1


async def test_producers_that_are_created_after_its_end_are_not_instrumented(
    broker: FakeBroker, seen: Seen, instrumentor: Instrumentor
) -> None:
    instrumentor.instrument(tracer_provider=seen.tracers)
    instrumentor.uninstrument()
    instrumentor.uninstrument()
    async with opened(broker) as producer:
        await producer.send("orders", b"value")

    assert seen.spans == []
