"""The types of producers, by their serializers. Checked by mypy and pyright, and never run.

An ignored error is a promise as well: both type checkers report a comment that ignores nothing.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true, reportUnusedFunction=false

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, assert_type

from aioproducer import (
    BytesSerializer,
    IntegerSerializer,
    JsonSerializer,
    LongSerializer,
    Producer,
    ProducerConfig,
    ProducerRecord,
    SerializationContext,
    StringSerializer,
    SyncProducer,
)
from aioproducer.config import ProducerOptions
from aioproducer.serializers import Serializer
from aioproducer.testing import MockProducer
from aioproducer.transactions.context import Transaction
from aioproducer.types import BytesLike, Plain


@dataclass
class Order:
    """A value that a program sends."""

    number: int


def to_bytes(order: Order) -> bytes:
    """A plain serializer."""
    return json.dumps(order.number).encode()


async def to_bytes_later(order: Order) -> bytes:
    """An async serializer."""
    return to_bytes(order)


def with_context(order: Order, ctx: SerializationContext) -> bytes:
    """A serializer that gets the context."""
    return to_bytes(order)


async def with_context_later(order: Order, ctx: SerializationContext) -> bytes:
    """An async one."""
    return to_bytes(order)


def with_optional_context(order: Order, context: SerializationContext | None = None) -> bytes:
    """As confluent-kafka's are."""
    return to_bytes(order)


def with_keyword_ctx(order: Order, *, ctx: SerializationContext) -> bytes:
    """A serializer that gets the context by its name."""
    return to_bytes(order)


def with_keyword_context(order: Order, *, context: SerializationContext) -> bytes:
    """Its other name."""
    return to_bytes(order)


class JavaShaped:
    """A serializer with Java's method."""

    def serialize(self, topic: str, headers: list[tuple[str, bytes | None]], data: Order) -> bytes:
        """Return bytes."""
        return to_bytes(data)


class TopicShaped:
    """A serializer with Java's older method."""

    def serialize(self, topic: str, data: Order) -> bytes:
        """Return bytes."""
        return to_bytes(data)


def without_serializers() -> None:
    """Bytes and text."""
    assert_type(Producer("localhost:9092"), Producer[Plain, Plain])
    assert_type(Producer(["localhost:9092"], linger_ms=5), Producer[Plain, Plain])
    assert_type(SyncProducer("localhost:9092"), SyncProducer[Plain, Plain])
    assert_type(MockProducer(), MockProducer[Plain, Plain])


def built_in_serializers() -> None:
    """Each takes what its Java twin takes."""
    assert_type(Producer("a:1", value_serializer=JsonSerializer()), Producer[Plain, object])
    assert_type(Producer("a:1", value_serializer=StringSerializer()), Producer[Plain, str])
    assert_type(Producer("a:1", value_serializer=BytesSerializer()), Producer[Plain, BytesLike])
    assert_type(Producer("a:1", key_serializer=IntegerSerializer()), Producer[int, Plain])
    assert_type(
        Producer("a:1", key_serializer=LongSerializer(), value_serializer=JsonSerializer()), Producer[int, object]
    )


def functions() -> None:
    """The type of the first parameter."""
    assert_type(Producer("a:1", value_serializer=to_bytes), Producer[Plain, Order])
    assert_type(Producer("a:1", value_serializer=to_bytes_later), Producer[Plain, Order])
    assert_type(Producer("a:1", value_serializer=with_context), Producer[Plain, Order])
    assert_type(Producer("a:1", value_serializer=with_context_later), Producer[Plain, Order])
    assert_type(Producer("a:1", value_serializer=with_optional_context), Producer[Plain, Order])
    assert_type(Producer("a:1", value_serializer=with_keyword_ctx), Producer[Plain, Order])
    assert_type(Producer("a:1", value_serializer=with_keyword_context), Producer[Plain, Order])
    assert_type(Producer("a:1", value_serializer=str.encode), Producer[Plain, str])
    assert_type(Producer("a:1", value_serializer=json.dumps), Producer[Plain, Any])
    assert_type(SyncProducer("a:1", key_serializer=str.encode, value_serializer=to_bytes), SyncProducer[str, Order])
    assert_type(MockProducer(key_serializer=str.encode, value_serializer=to_bytes), MockProducer[str, Order])


def objects() -> None:
    """Java's shapes."""
    assert_type(Producer("a:1", value_serializer=JavaShaped()), Producer[Plain, Order])
    assert_type(Producer("a:1", value_serializer=TopicShaped()), Producer[Plain, Order])


def whole_configurations(options: ProducerOptions, config: ProducerConfig, keywords: dict[str, Any]) -> None:
    """Their types do not show the serializers."""
    assert_type(Producer(config), Producer[Any, Any])
    assert_type(Producer("a:1", **options), Producer[Any, Any])
    assert_type(Producer("a:1", **keywords), Producer[Any, Any])
    assert_type(Producer.from_url("kafka://a:1"), Producer[Any, Any])
    assert_type(SyncProducer(config), SyncProducer[Any, Any])
    assert_type(SyncProducer.from_env(), SyncProducer[Any, Any])


async def unknown_serializers(serializer: Serializer, may_be: Serializer | None) -> None:
    """A type checker that cannot infer the objects accepts all."""
    await Producer("a:1", value_serializer=serializer).send("orders", Order(1))
    await Producer("a:1", value_serializer=may_be).send("orders", Order(1))
    await Producer("a:1", value_serializer=lambda order: json.dumps(order)).send("orders", Order(1), key="k")
    await Producer("a:1", key_serializer=lambda key: str(key).encode()).send("orders", "v", key=5)
    await Producer("a:1", key_serializer=None, value_serializer=None).send("orders", b"v", key="k")


async def plain_records(producer: Producer[Plain, Plain]) -> None:
    """Bytes, text and None need no serializer."""
    await producer.send("orders", b"value", key="key")
    await producer.send("orders", bytearray(b"value"), key=memoryview(b"key"))
    await producer.send("orders", None, key=b"key")
    await producer.send("orders", 5)  # type: ignore[arg-type]
    await producer.send("orders", b"value", key=5)  # type: ignore[arg-type]
    await producer.send("orders", {"order": 5})  # type: ignore[arg-type]


async def orders(producer: Producer[str, Order]) -> None:
    """A producer of one kind of value."""
    await producer.send("orders", Order(1), key="1")
    await producer.enqueue("orders", Order(1), key="1")
    producer.enqueue_nowait("orders", Order(1), key="1")
    await producer.send("orders", key="1")
    await producer.send(ProducerRecord("orders", Order(1)))
    await producer.send_many("orders", [Order(1), None, ProducerRecord("", Order(2))], key=lambda order: "1")
    await producer.send("orders", 5)  # type: ignore[arg-type]
    await producer.send("orders", Order(1), key=b"1")  # type: ignore[arg-type]
    await producer.enqueue("orders", b"1")  # type: ignore[arg-type]
    producer.enqueue_nowait("orders", "1")  # type: ignore[arg-type]
    numbers: Iterable[int] = range(5)
    await producer.send_many("orders", numbers)  # type: ignore[arg-type]
    async with producer as entered, entered.transaction() as transaction:
        assert_type(entered, Producer[str, Order])
        assert_type(transaction, Transaction[str, Order])
        await transaction.send("orders", Order(1))
        await transaction.enqueue("orders", 5)  # type: ignore[arg-type]


def orders_of_threads(producer: SyncProducer[str, Order]) -> None:
    """The same for threads."""
    producer.send("orders", Order(1), key="1")
    producer.send("orders", None, key=None)
    producer.send_many("orders", [Order(1)])
    producer.send("orders", 5)  # type: ignore[arg-type]
    producer.enqueue("orders", Order(1), key=b"1")  # type: ignore[arg-type]
    producer.enqueue_nowait("orders", "1")  # type: ignore[arg-type]
    with producer as entered, entered.transaction() as transaction:
        transaction.send("orders", Order(1))
        transaction.send("orders", 5)  # type: ignore[arg-type]


async def bare(producer: Producer, threads: SyncProducer) -> None:
    """Annotations without parameters accept everything."""
    assert_type(producer, Producer[Any, Any])
    await producer.send("orders", Order(1), key=5)
    threads.send("orders", Order(1), key=5)


async def passed_on(
    of_orders: Producer[str, Order], of_objects: Producer[object, object], anything: Producer, mock: MockProducer
) -> None:
    """A producer that takes more can stand for one that takes less."""
    await bare(of_orders, SyncProducer("a:1"))
    await orders(of_objects)
    await orders(anything)
    await orders(mock)
    await orders(Producer("a:1", key_serializer=str.encode, value_serializer=to_bytes))
    await plain_records(of_orders)  # type: ignore[arg-type]


class Orders(Producer[str, Order]):
    """A class of producers."""


class Anything(Producer):
    """One whose objects are not named."""


async def subclasses() -> None:
    """They keep their types."""
    mine = assert_type(Orders("a:1", key_serializer=str.encode, value_serializer=to_bytes), Orders)
    await mine.send("orders", Order(1), key="1")
    await mine.send("orders", 5)  # type: ignore[arg-type]
    await Anything("a:1", value_serializer=to_bytes).send("orders", 5)


def wrong_options() -> None:
    """A wrong option is one short error, as without type parameters."""
    Producer("a:1", value_serializer=5)  # type: ignore[arg-type]
    Producer("a:1", value_serializer=lambda: b"")  # type: ignore[arg-type]
    Producer("a:1", linger_ms="5")  # type: ignore[arg-type]
    Producer("a:1", lingerms=5)  # type: ignore[call-arg]
    Producer(5)  # type: ignore[arg-type]


async def named_parameters(config: ProducerConfig) -> None:
    """A program names what the type of a whole configuration does not show."""
    declared: Producer[str, Order] = Producer(config)
    await orders(declared)
    await Orders(config).send("orders", Order(1))
    assert_type(Orders.from_url("kafka://a:1"), Orders)
    await Producer[str, Order](config).send("orders", Order(1), key="1")
    await SyncProducerOf(config).take(SyncProducer[str, Order](config))


class SyncProducerOf(SyncProducer[str, Order]):
    """A class of producers for threads."""

    async def take(self, other: SyncProducer[str, Order]) -> None:
        """Take another one."""
