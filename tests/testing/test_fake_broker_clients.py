"""Other people's clients take the fake broker for a Kafka broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer  # type: ignore[import-untyped]
from aiokafka import TopicPartition as AIOTopicPartition
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from aioproducer.testing import FakeBroker
from aioproducer.testing.raw_client import RawClient, produce, record_batch

RELEASES = ["2.1", "2.8", "3.9", "4.3"]
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
COUNT = 50


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(brokers=3, topics={"orders": 3}) as broker:
        yield broker


def fill(broker: FakeBroker) -> list[tuple[int, int, bytes | None]]:
    for partition in range(3):
        with RawClient(broker.addresses[broker.leader("orders", partition)]) as client:
            for number in range(3):
                values = [b"%d-%d-%d" % (partition, number, n) for n in range(4)]
                client.ask(produce("orders", {partition: record_batch(*values)}), 7)
    return [(record.partition, record.offset, record.value) for record in broker.records("orders")]


def confluent(broker: FakeBroker, **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, **more}


def read_with_confluent(broker: FakeBroker, count: int) -> list[tuple[int, int, bytes | None]]:
    consumer = Consumer(
        confluent(
            broker, **{"group.id": "g", "check.crcs": True, "enable.auto.commit": False, "auto.offset.reset": "error"}
        )
    )
    try:
        consumer.assign([TopicPartition("orders", partition, 0) for partition in range(3)])
        found: list[tuple[int, int, bytes | None]] = []
        deadline = time.monotonic() + 40
        while len(found) < count and time.monotonic() < deadline:
            message = consumer.poll(0.1)
            if message is not None:
                assert message.error() is None
                found.append((message.partition() or 0, message.offset() or 0, message.value()))
        return sorted(found)
    finally:
        consumer.close()


@pytest.mark.parametrize("release", RELEASES)
def test_confluents_consumer_reads_the_log_and_checks_every_crc(broker: FakeBroker, release: str) -> None:
    broker.set_versions(release)
    written = fill(broker)

    assert read_with_confluent(broker, len(written)) == written


@pytest.mark.parametrize("release", RELEASES)
async def test_aiokafkas_consumer_reads_the_log(broker: FakeBroker, release: str) -> None:
    broker.set_versions(release)
    written = fill(broker)

    consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.assign([AIOTopicPartition("orders", partition) for partition in range(3)])
        found = [await consumer.getone() for _ in written]
    finally:
        await consumer.stop()

    assert sorted((each.partition, each.offset, each.value) for each in found) == written


@pytest.mark.slow  # librdkafka asks for a producer id half a second after its start
@pytest.mark.parametrize("release", RELEASES)
def test_confluents_idempotent_producer_delivers(broker: FakeBroker, release: str) -> None:
    broker.set_versions(release)
    reported: list[tuple[int | None, int | None, bytes | None]] = []
    producer = Producer(confluent(broker, **{"enable.idempotence": True, "linger.ms": 0}))

    for number in range(COUNT):
        value = b"%d" % number
        producer.produce(
            "orders",
            value,
            key=b"k%d" % (number % 7),
            headers={"n": value},
            on_delivery=lambda error, message: reported.append(
                (message.partition(), message.offset(), message.value())
            ),
        )
    assert producer.flush(10) == 0

    assert sorted(reported) == [(record.partition, record.offset, record.value) for record in broker.records("orders")]
    assert len(reported) == COUNT
    assert {record.producer_id for record in broker.records("orders")} == {1000}


@pytest.mark.parametrize("codec", CODECS)
def test_confluents_codecs_are_read(broker: FakeBroker, codec: str) -> None:
    producer = Producer(confluent(broker, **{"compression.type": codec, "linger.ms": 20}))

    for _ in range(COUNT):
        producer.produce("orders", b"x" * 200, partition=0)
    assert producer.flush(10) == 0

    assert [record.value for record in broker.records("orders")] == [b"x" * 200] * COUNT
    assert broker.batches("orders")[0].header.codec == CODECS.index(codec)


@pytest.mark.slow  # librdkafka asks for a producer id half a second after its start
def test_confluents_producer_survives_faults_without_loss_or_duplicates(broker: FakeBroker) -> None:
    producer = Producer(
        confluent(
            broker,
            **{
                "enable.idempotence": True,
                "linger.ms": 0,
                "batch.num.messages": 5,
                "retry.backoff.ms": 1,
                "retry.backoff.max.ms": 10,
                "reconnect.backoff.ms": 1,
                "reconnect.backoff.max.ms": 10,
            },
        )
    )
    broker.fail("Produce", "NOT_ENOUGH_REPLICAS", times=2)
    broker.fail_after_apply("Produce", "REQUEST_TIMED_OUT", times=2)
    broker.drop_connection("Produce", when="after")

    for number in range(COUNT):
        producer.produce("orders", b"%d" % number, partition=number % 3)
        producer.poll(0)
    assert producer.flush(10) == 0

    for partition in range(3):
        expected = [b"%d" % number for number in range(COUNT) if number % 3 == partition]
        assert [record.value for record in broker.records("orders", partition)] == expected


@pytest.mark.parametrize("release", RELEASES)
async def test_aiokafkas_idempotent_producer_delivers(broker: FakeBroker, release: str) -> None:
    broker.set_versions(release)
    async with AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, enable_idempotence=True, compression_type="lz4"
    ) as producer:
        waiting = [await producer.send("orders", b"%d" % number, key=b"k%d" % (number % 7)) for number in range(COUNT)]
        reported = [await each for each in waiting]

    assert len({(each.partition, each.offset) for each in reported}) == COUNT
    assert sorted(int(record.value or b"") for record in broker.records("orders")) == list(range(COUNT))


async def test_aiokafkas_producer_survives_faults_without_loss_or_duplicates(broker: FakeBroker) -> None:
    broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER")
    broker.fail_after_apply("Produce", "REQUEST_TIMED_OUT")
    broker.drop_connection("Produce", when="after")
    async with AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, enable_idempotence=True, retry_backoff_ms=5
    ) as producer:
        for number in range(COUNT):
            await producer.send_and_wait("orders", b"%d" % number, partition=0)

    assert [record.value for record in broker.records("orders", 0)] == [b"%d" % number for number in range(COUNT)]


async def test_aiokafka_without_acks_is_not_answered(broker: FakeBroker) -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, acks=0) as producer:
        for number in range(COUNT):
            await producer.send_and_wait("orders", b"%d" % number)

    await broker.wait_for_async(COUNT, 40)


def test_confluents_admin_client_creates_and_deletes_topics(broker: FakeBroker) -> None:
    admin = AdminClient(confluent(broker))

    admin.create_topics([NewTopic("made", num_partitions=4, replication_factor=2)])["made"].result(40)
    assert len(admin.list_topics(timeout=40).topics["made"].partitions) == 4
    admin.delete_topics(["made"])["made"].result(40)

    assert "made" not in broker.cluster.topics
