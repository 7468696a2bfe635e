"""Serializers inside a producer: the headers that they add, their configuration and their end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest
from confluent_kafka import schema_registry, serialization
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

from aioproducer import ConfigError, Producer, ProducerConfig, ProducerRecord, SyncProducer
from aioproducer.errors import SerializationError
from aioproducer.serializers import SerializationContext
from aioproducer.testing import FakeBroker
from aioproducer.types import Headers
from tests.conftest import opened

SCHEMA = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}'


class Java:
    """A serializer in the shape of Java's."""

    def __init__(self) -> None:
        self.configured: list[tuple[str, bool]] = []
        self.closed = 0

    def configure(self, config: ProducerConfig, is_key: bool) -> None:
        self.configured.append((config.bootstrap_servers[0], is_key))

    def serialize(self, topic: str, headers: list[tuple[str, bytes | None]], data: object) -> bytes:
        headers.append(("of", topic.encode()))
        return str(data).encode()

    def close(self) -> None:
        self.closed += 1


def by_context(data: object, ctx: SerializationContext) -> bytes:
    ctx.headers.append((ctx.field, str(len(ctx.headers)).encode()))
    return str(data).encode()


async def by_context_later(data: object, ctx: SerializationContext) -> bytes:
    await asyncio.sleep(0)
    return by_context(data, ctx)


def by_topic(topic: str, data: object) -> bytes:
    return f"{topic}:{data}".encode()


class ByTopic:
    """A serializer in the shape of kafka-python's."""

    def serialize(self, topic: str, data: object) -> bytes:
        return by_topic(topic, data)


@pytest.mark.parametrize("key_serializer", [by_context, by_context_later])
@pytest.mark.parametrize("value_serializer", [by_context, by_context_later])
async def test_serializers_add_headers_behind_those_of_the_record(
    broker: FakeBroker, key_serializer: Any, value_serializer: Any
) -> None:
    given = [("a", b"1")]

    async with opened(broker, key_serializer=key_serializer, value_serializer=value_serializer) as producer:
        await producer.send("orders", 1, key=2, headers=given)
        await (await producer.enqueue(ProducerRecord("orders", 1, 2, given)))
        await producer.send_many("orders", [1], key=lambda _: 2, headers=given)

    assert given == [("a", b"1")]
    for record in broker.records("orders"):
        assert record.headers == (("a", b"1"), ("key", b"1"), ("value", b"2"))


async def test_an_object_in_java_s_shape_serializes_and_adds_headers(broker: FakeBroker) -> None:
    java = Java()

    async with opened(broker, value_serializer=java, key_serializer=ByTopic()) as producer:
        await producer.send("orders", 5, key=6)

    (record,) = broker.records("orders")
    assert (record.key, record.value, record.headers) == (b"orders:6", b"5", (("of", b"orders"),))


async def test_interceptors_get_the_headers_that_were_sent(broker: FakeBroker) -> None:
    seen: list[Headers] = []

    class Watching:
        def on_acknowledgement(self, metadata: object, error: object, headers: Headers) -> None:
            seen.append(headers)

    async with opened(broker, value_serializer=by_context, interceptors=[Watching()]) as producer:
        await producer.send("orders", 5)

    assert [tuple(each) for each in seen] == [(("value", b"0"),)]


async def test_a_header_that_cannot_be_sent_is_the_serializer_s_fault(broker: FakeBroker) -> None:
    def bad(data: object, ctx: Any) -> bytes:
        ctx.headers.append(("a", 5))
        return b""

    async with opened(broker, value_serializer=bad) as producer:
        with pytest.raises(SerializationError, match=r"A serializer added a header.*'orders'.*'a' is of type int"):
            await producer.send("orders", 5)


async def test_other_headers_in_place_of_the_list_are_refused(broker: FakeBroker) -> None:
    def replacing(data: object, ctx: Any) -> bytes:
        ctx.headers = [("a", b"1")]
        return b""

    async with opened(broker, value_serializer=replacing) as producer:
        with pytest.raises(SerializationError, match="cannot assign to field 'headers'"):
            await producer.send("orders", 5)


def test_in_threads_headers_are_added_as_well(broker: FakeBroker) -> None:
    with SyncProducer(broker.bootstrap_servers, value_serializer=by_context) as producer:
        producer.send("orders", 5)

    assert broker.records("orders")[0].headers == (("value", b"0"),)


async def test_serializers_are_configured_once_and_closed_with_the_producer(broker: FakeBroker) -> None:
    both, later = Java(), []

    class Later:
        def __call__(self, data: object) -> bytes:
            return b""

        async def close(self) -> None:
            await asyncio.sleep(0)
            later.append(len(broker.records("orders")))

    async with opened(broker, key_serializer=both, value_serializer=both) as producer:
        await producer.send("orders", 5, key=6)
        assert both.closed == 0
    async with opened(broker, value_serializer=Later()) as producer:
        await producer.enqueue("orders", 5)

    assert both.configured == [(broker.bootstrap_servers, True), (broker.bootstrap_servers, False)]
    assert (both.closed, later) == (1, [2])


def test_a_configure_of_another_library_is_left_alone() -> None:
    class Other:
        def configure(self, client_conf: object, rule_conf: object) -> None:
            raise AssertionError

        def __call__(self, data: object) -> bytes:
            return b""

    Producer("localhost:9092", value_serializer=Other())


def test_a_configuration_that_fails_prevents_the_producer() -> None:
    class Serializer(Java):
        def configure(self, config: ProducerConfig, is_key: bool) -> None:
            raise LookupError("no schema")

    class Interceptor:
        def configure(self, config: ProducerConfig) -> None:
            raise LookupError("no tenant")

    with pytest.raises(ConfigError, match=r"value_serializer: .*configure\(\) failed: LookupError: no schema"):
        Producer("localhost:9092", value_serializer=Serializer())
    with pytest.raises(ConfigError, match=r"Interceptor\.configure\(\) failed: LookupError: no tenant"):
        Producer("localhost:9092", interceptors=[Interceptor()])


def test_interceptors_are_configured_with_the_producer_s_options() -> None:
    seen: list[Sequence[str]] = []

    class Interceptor:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return record

        def configure(self, config: ProducerConfig) -> None:
            seen.append(config.bootstrap_servers)

    Producer("localhost:9092", interceptors=[Interceptor()])

    assert seen == [("localhost:9092",)]


async def test_confluent_s_serializer_puts_the_schema_id_into_a_header(broker: FakeBroker) -> None:
    client = schema_registry.SchemaRegistryClient.new_client({"url": "mock://"})
    by_header: Any = {"schema.id.serializer": schema_registry.header_schema_id_serializer}
    serializer = AvroSerializer(client, SCHEMA, conf=by_header)

    async with opened(broker, value_serializer=serializer) as producer:
        await producer.send("orders", {"id": "number 5"}, headers=[("a", b"1")])

    (record,) = broker.records("orders")
    assert [name for name, _ in record.headers] == ["a", "__value_schema_id"]
    where: Any = serialization.SerializationContext(
        "orders", serialization.MessageField.VALUE, cast("Any", list(record.headers))
    )
    either_way: Any = {"schema.id.deserializer": schema_registry.dual_schema_id_deserializer}
    assert AvroDeserializer(client, conf=either_way)(cast("bytes", record.value), where) == {"id": "number 5"}
