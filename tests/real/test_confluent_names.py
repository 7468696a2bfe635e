"""The same program with confluent-kafka's producers and with ours on real Kafka: it observes and writes the same."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka import Producer as TheirProducer
from confluent_kafka.aio import AIOProducer as TheirAIOProducer

from aioproducer.contrib.confluent import AIOProducer, Producer
from aioproducer.testing.kafka import Kafka
from aioproducer.testing.plugin import TopicFactory
from tests.contrib.confluent_scenario import GROUP_POSITION, NOW_MS, PARTITIONS, AsyncProgram, Observed, Program

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def consumer_of(kafka: Kafka, group: str) -> Any:
    """An independent consumer."""
    return Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )


def written(kafka: Kafka, topic: str) -> list[tuple[object, ...]]:
    """The committed records of each partition in order, and the committed position of the program's group."""
    consumer = consumer_of(kafka, topic)
    found: list[tuple[Any, ...]] = []
    at_end = set[int]()
    try:
        consumer.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
        while len(at_end) < PARTITIONS:
            message = consumer.poll(60)
            assert message is not None, "librdkafka reached no end within a minute"
            if message.error() is None:
                kind, time_ms = message.timestamp()
                time = (kind, time_ms if time_ms < NOW_MS else "now")
                place = (message.partition(), message.offset())
                found.append((*place, message.key(), message.value(), message.headers(), time))
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                at_end.add(message.partition())
        (position,) = consumer.committed([TopicPartition(topic, 1)], 30)
        return [*sorted(found, key=lambda record: record[:2]), ("position", position.offset)]
    finally:
        consumer.close()


def run(kafka: Kafka, kind: Any, topic: str) -> list[Observed]:
    """Run the program, with the group of a real consumer."""
    consumer = consumer_of(kafka, topic)
    try:
        group = consumer.consumer_group_metadata()
        return Program(kind, TopicPartition, kafka.bootstrap_servers, topic, group).run()
    finally:
        consumer.close()


def test_a_program_observes_and_writes_the_same_with_both_classes(kafka: Kafka, kafka_topic: TopicFactory) -> None:
    theirs, ours = kafka_topic(PARTITIONS), kafka_topic(PARTITIONS)

    seen_by_theirs = run(kafka, TheirProducer, theirs)
    seen_by_ours = run(kafka, Producer, ours)

    assert seen_by_ours == seen_by_theirs
    written_by_ours = written(kafka, ours)
    assert written_by_ours == written(kafka, theirs)
    assert written_by_ours[-1] == ("position", GROUP_POSITION)
    assert len(written_by_ours) > 40  # the program has written something


async def test_an_async_program_observes_and_writes_the_same_with_both_classes(
    kafka: Kafka, kafka_topic: TopicFactory
) -> None:
    theirs, ours = kafka_topic(PARTITIONS), kafka_topic(PARTITIONS)

    seen_by_theirs = await AsyncProgram(TheirAIOProducer, kafka.bootstrap_servers, theirs).run()
    seen_by_ours = await AsyncProgram(AIOProducer, kafka.bootstrap_servers, ours).run()

    assert seen_by_ours == seen_by_theirs
    written_by_ours = await asyncio.to_thread(written, kafka, ours)
    assert [row[:1] + row[2:] for row in written_by_ours] == [
        row[:1] + row[2:] for row in await asyncio.to_thread(written, kafka, theirs)
    ]
    assert len(written_by_ours) == 12  # and the position
