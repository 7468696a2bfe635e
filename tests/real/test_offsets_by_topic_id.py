"""A real coordinator takes the offsets of a transaction by topic id since Kafka 4.4, also those of a topic created again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from aioproducer import Producer, TopicPartition
from aioproducer.testing.kafka import KafkaCluster
from tests.real.losing_proxy import LosingProxy

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

_VERSION = "4.4.0"
_GROUP = "readers"
_PLACE = TopicPartition("input", 0)


@pytest.fixture
def proxy() -> Iterator[LosingProxy]:
    """The way to the broker, which sees the requests."""
    with LosingProxy() as proxy:
        yield proxy


@pytest.fixture
def kafka(proxy: LosingProxy) -> Iterator[KafkaCluster]:
    """One broker behind it, with a topic for the results of the transaction and one for its offsets."""
    with KafkaCluster(_VERSION, advertise=proxy.advertise) as kafka:
        for topic in ("output", _PLACE.topic):
            kafka.create_topic(topic, 1)
        yield kafka


async def test_offsets_go_by_id_also_if_the_topic_was_created_again(kafka: KafkaCluster, proxy: LosingProxy) -> None:
    producer = Producer(proxy.bootstrap_servers, transactional_id="shop", metadata_max_age_ms=3_600_000)
    async with producer:
        await producer.partitions_for(_PLACE.topic)
        await _commit(producer, 5)
        assert proxy.versions["TXN_OFFSET_COMMIT"] == 6
        assert await asyncio.to_thread(_committed, kafka) == 5

        kafka.delete_topic(_PLACE.topic)
        kafka.create_topic(_PLACE.topic, 1)
        before = proxy.seen["TXN_OFFSET_COMMIT"]
        await _commit(producer, 7)

    assert proxy.seen["TXN_OFFSET_COMMIT"] - before >= 2  # the old id is refused
    assert await asyncio.to_thread(_committed, kafka) == 7


async def _commit(producer: Producer, offset: int) -> None:
    async with producer.transaction() as transaction:
        await transaction.send("output", b"result")
        await transaction.send_offsets({_PLACE: offset}, _GROUP)


def _committed(kafka: KafkaCluster) -> int:
    """The position from which librdkafka's consumer would continue."""
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as Partition

    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": _GROUP})
    try:
        return int(consumer.committed([Partition(*_PLACE)], 30)[0].offset)
    finally:
        consumer.close()
