"""A FastStream program that publishes with our producer: its records, its subscribers, and FastStream's test broker."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from faststream import BaseMiddleware, FastStream
from faststream.exceptions import IncorrectState
from faststream.kafka import KafkaBroker as FastStreamKafkaBroker
from faststream.kafka import TestKafkaBroker
from pydantic import BaseModel

from aioproducer.contrib.aiokafka import errors
from aioproducer.contrib.faststream import KafkaBroker, KafkaBrokerProducer
from aioproducer.testing import FakeBroker

AT = 1_700_000_000_000


class Order(BaseModel):
    number: int


class Shipped(BaseModel):
    number: int
    by: str


class Labelling(BaseMiddleware):
    """Adds a header to each record."""

    async def publish_scope(self, call_next: Callable[[Any], Any], cmd: Any) -> Any:
        cmd.headers["label"] = "red"
        return await call_next(cmd)


def always_second(key: bytes | None, everything: Sequence[int], available: Sequence[int]) -> int:
    """A partitioner as aiokafka calls it."""
    return 1


@asynccontextmanager
async def running(broker: FastStreamKafkaBroker) -> AsyncGenerator[FastStreamKafkaBroker]:
    """The broker, within a program of FastStream that was started and is stopped."""
    app = FastStream(broker)
    await app.start()
    try:
        yield broker
    finally:
        await app.stop()


def program(kind: type[FastStreamKafkaBroker], servers: str = "localhost:9092") -> tuple[Any, Any, Any]:
    """A broker with a subscriber of orders that publishes to another topic, its handler and its publisher."""
    broker = kind(servers, id_generator=lambda: "no-42")
    publisher = broker.publisher("shipped", key=b"key", headers={"kind": "new"})

    @publisher
    @broker.subscriber("orders", auto_offset_reset="earliest", group_id="shop")
    async def ship(order: Order) -> Shipped:
        return Shipped(number=order.number, by="truck")

    return broker, ship, publisher


async def publish_each_way(broker: FastStreamKafkaBroker, topic: str) -> list[tuple[int, int]]:
    """Publish records in all ways that FastStream has; return the partition and offset of each acknowledgement."""
    made: list[Any] = [
        await broker.publish("text", topic, key=b"key", headers={"trace": "1"}, correlation_id="a", timestamp_ms=AT),
        await broker.publish({"a": [1, None]}, topic, partition=2, timestamp_ms=AT + 1),
        await broker.publish(b"\x00\xff", topic, partition=1, reply_to="replies", timestamp_ms=AT + 2),
        await broker.publish(None, topic, key=b"gone", timestamp_ms=AT + 3),
        await broker.publish(None, topic, partition=0, timestamp_ms=AT + 4),
        await broker.publish(Order(number=7), topic, partition=0, timestamp_ms=AT + 5),
        await (await broker.publish("later", topic, partition=0, no_confirm=True, timestamp_ms=AT + 6)),
        await broker.publish_batch("x", {"y": 1}, b"z", topic=topic, partition=1, headers={"n": "3"}, timestamp_ms=AT),
        await broker.publisher(topic, key=b"own", headers={"by": "publisher"}).publish(
            "of a publisher", timestamp_ms=AT
        ),
    ]
    made += [await broker.publish("keyed", topic, key=b"%d" % number, timestamp_ms=AT) for number in range(50)]
    return [(each.partition, each.offset) for each in made]


async def test_each_record_is_the_same_as_with_faststream_s_own_producer(broker: FakeBroker) -> None:
    found: dict[str, list[tuple[object, ...]]] = {}
    acknowledged: dict[str, list[tuple[int, int]]] = {}
    for topic, kind in (("theirs", FastStreamKafkaBroker), ("ours", KafkaBroker)):
        broker.create_topic(topic, 3)
        publishing = kind(broker.bootstrap_servers, middlewares=[Labelling], id_generator=lambda: "no-42")
        async with running(publishing):
            assert isinstance(publishing.config.producer, KafkaBrokerProducer) == (topic == "ours")
            acknowledged[topic] = await publish_each_way(publishing, topic)
        found[topic] = [
            (each.partition, each.offset, each.timestamp_ms, each.key, each.value, each.headers)
            for each in broker.records(topic)
        ]

    assert len(found["ours"]) == 61
    assert found["ours"] == found["theirs"]
    assert acknowledged["ours"] == acknowledged["theirs"]
    (text,) = broker.assert_sent("ours", value=b"text", key=b"key")
    assert dict(text.headers) == {
        "content-type": b"text/plain",
        "correlation_id": b"a",
        "trace": b"1",
        "label": b"red",
    }
    assert {each.headers for each in broker.records("ours")} > {text.headers}, "headers are compared record by record"


async def test_a_subscriber_s_result_is_published_with_its_correlation_id(broker: FakeBroker) -> None:
    broker.create_topic("shipped", 1)
    shop, _, _ = program(KafkaBroker, broker.bootstrap_servers)
    async with running(shop):
        assert await shop.ping(timeout=60)
        assert not shop.config.producer.closed
        await shop.publish(Order(number=3), "orders", correlation_id="of the order")
        await broker.wait_for_async(1, topic="shipped")
    assert shop.config.producer.closed

    (shipped,) = broker.assert_sent("shipped", value=b'{"number":3,"by":"truck"}', key=b"key")
    assert dict(shipped.headers) == {
        "content-type": b"application/json",
        "correlation_id": b"of the order",
        "kind": b"new",
    }


@pytest.mark.parametrize("kind", [FastStreamKafkaBroker, KafkaBroker])
async def test_faststream_s_test_broker_needs_no_kafka(kind: type[FastStreamKafkaBroker]) -> None:
    shop, ship, publisher = program(kind)
    async with TestKafkaBroker(shop) as testing:
        await testing.publish(Order(number=3), "orders")
        ship.mock.assert_called_once_with({"number": 3})
        publisher.mock.assert_called_once_with({"number": 3, "by": "truck"})


async def test_the_program_of_a_test_broker_publishes_to_kafka_afterwards(broker: FakeBroker) -> None:
    broker.create_topic("shipped", 1)
    shop, _, publisher = program(KafkaBroker, broker.bootstrap_servers)
    async with TestKafkaBroker(shop) as testing:
        await testing.publish(Order(number=1), "orders")
    assert broker.records() == []

    async with running(shop):
        await publisher.publish(Shipped(number=2, by="ship"))
    assert broker.json("shipped") == [{"number": 2, "by": "ship"}]


async def test_a_test_broker_over_a_real_one_publishes_with_our_producer(broker: FakeBroker) -> None:
    broker.create_topic("shipped", 1)
    shop, ship, _ = program(KafkaBroker, broker.bootstrap_servers)
    async with TestKafkaBroker(shop, with_real=True) as testing:
        assert isinstance(testing.config.producer, KafkaBrokerProducer)
        await testing.publish(Order(number=3), "orders")
        await ship.wait_call(timeout=60)
        ship.mock.assert_called_once_with({"number": 3})
        await broker.wait_for_async(1, topic="shipped")
        await shop.stop()
    assert broker.json("shipped") == [{"number": 3, "by": "truck"}]


async def test_a_stopped_broker_can_start_again(broker: FakeBroker) -> None:
    shop = KafkaBroker(broker.bootstrap_servers)
    for number in range(2):
        async with running(shop):
            await shop.publish({"number": number}, "orders", partition=0)
        with pytest.raises(IncorrectState):
            await shop.publish("not connected", "orders")
    assert broker.json("orders") == [{"number": 0}, {"number": 1}]


async def test_options_reach_our_producer(broker: FakeBroker) -> None:
    shop = KafkaBroker(
        broker.bootstrap_servers,
        acks="all",
        enable_idempotence=True,
        compression_type="gzip",
        partitioner=always_second,
        client_id="shop",
        max_request_size=1_000,
    )
    async with running(shop):
        await shop.publish("text", "orders")
        with pytest.raises(errors.MessageSizeTooLargeError):
            await shop.publish("x" * 2_000, "orders")

    (record,) = broker.records("orders")
    assert (record.partition, record.sequence) == (1, 0), "the partitioner was called, and the producer is idempotent"
    assert broker.requests_of("Produce")[0].client_id == "shop"


async def test_a_broker_that_only_consumes_has_no_producer(broker: FakeBroker) -> None:
    shop = KafkaBroker(broker.bootstrap_servers, consumer_only=True)
    async with running(shop):
        with pytest.raises(IncorrectState):
            await shop.publish("text", "orders")
    assert not isinstance(shop.config.producer, KafkaBrokerProducer)


async def test_a_start_without_kafka_fails_with_aiokafka_s_exception() -> None:
    shop = KafkaBroker("localhost:1", request_timeout_ms=200)
    with pytest.raises(errors.KafkaConnectionError):
        await shop.start()
    await shop.stop()
