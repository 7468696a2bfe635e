"""The same program with aiokafka's producer and with ours on real Kafka: it observes the same, and writes the same."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import aiokafka  # type: ignore[import-untyped]
import pytest
from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as Partition

from aioproducer.contrib import aiokafka as names
from aioproducer.testing.kafka import Kafka
from aioproducer.testing.plugin import TopicFactory
from tests.contrib.aiokafka_scenario import GROUP_POSITION, PARTITIONS, Program

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def written(kafka: Kafka, topic: str) -> list[tuple[object, ...]]:
    """The committed records of each partition in order, and the committed position of the program's group."""
    consumer: Any = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": topic,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    found: list[tuple[object, ...]] = []
    at_end = set[int]()
    try:
        consumer.assign([Partition(topic, each, 0) for each in range(PARTITIONS)])
        while len(at_end) < PARTITIONS:
            message = consumer.poll(60)
            assert message is not None, "librdkafka reached no end within a minute"
            if message.error() is None:
                place, time = (message.partition(), message.offset()), message.timestamp()
                found.append((*place, message.key(), message.value(), message.headers(), time))
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                at_end.add(message.partition())
        (position,) = consumer.committed([Partition(topic, 1)], 30)
        return [*sorted(found, key=lambda record: record[:2]), ("position", position.offset)]
    finally:
        consumer.close()


async def test_a_program_observes_and_writes_the_same_with_both_classes(
    kafka: Kafka, kafka_topic: TopicFactory
) -> None:
    theirs, ours = kafka_topic(PARTITIONS), kafka_topic(PARTITIONS)

    seen_by_theirs = await Program(
        aiokafka.AIOKafkaProducer, aiokafka.TopicPartition, kafka.bootstrap_servers, theirs
    ).run()
    gc.collect()  # aiokafka leaves failed futures, and logging them within an import breaks the compiler of Python 3.11
    seen_by_ours = await Program(names.AIOKafkaProducer, names.TopicPartition, kafka.bootstrap_servers, ours).run()

    assert seen_by_ours == seen_by_theirs
    written_by_theirs = await asyncio.to_thread(written, kafka, theirs)
    written_by_ours = await asyncio.to_thread(written, kafka, ours)
    assert written_by_ours == written_by_theirs
    assert written_by_ours[-1] == ("position", GROUP_POSITION)
    assert len(written_by_ours) > 80  # the program has written something


async def test_partitions_of_aiokafkas_consumers_are_accepted(kafka: Kafka, kafka_topic: TopicFactory) -> None:
    topic = kafka_topic(PARTITIONS)

    seen = await Program(names.AIOKafkaProducer, aiokafka.TopicPartition, kafka.bootstrap_servers, topic).run()

    assert ("offsets", None) in seen
    found = await asyncio.to_thread(written, kafka, topic)
    assert found[-1] == ("position", GROUP_POSITION)
