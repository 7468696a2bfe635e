"""Counts the records of a topic with librdkafka's consumer: none of the compared clients checks itself."""

from __future__ import annotations

import time

from benchmarks.unavailable import optional

__all__ = ["count_committed", "count_records", "wait_led"]

_TIMEOUT = 30.0
_PATIENCE = 5.0
_PAUSE = 0.05
_MOST = 10_000


def count_records(servers: str, topic: str, expected: int) -> int:
    """The end offsets of all partitions, summed up; every run has its own topic, which begins at 0.

    The markers of a transaction come after the answer to its commit, so what is expected is waited for, for some seconds.
    """
    kafka = optional("confluent_kafka")
    consumer = kafka.Consumer({"bootstrap.servers": servers, "group.id": "benchmarks", "log_level": 3})
    try:
        partitions = consumer.list_topics(topic, timeout=_TIMEOUT).topics[topic].partitions
        all_partitions = [kafka.TopicPartition(topic, partition) for partition in partitions]
        deadline = time.monotonic() + _PATIENCE
        while True:
            found = sum(consumer.get_watermark_offsets(each, timeout=_TIMEOUT)[1] for each in all_partitions)
            if found >= expected or time.monotonic() > deadline:
                return int(found)
            time.sleep(_PAUSE)
    finally:
        consumer.close()


def count_committed(servers: str, topic: str, expected: int) -> int:
    """The number of records that a read_committed consumer gets; transactions leave offsets without records.

    What is expected is waited for, for some seconds.
    """
    kafka = optional("confluent_kafka")
    settings = {"bootstrap.servers": servers, "group.id": "benchmarks", "isolation.level": "read_committed"}
    consumer = kafka.Consumer({**settings, "auto.offset.reset": "earliest", "log_level": 3})
    try:
        partitions = consumer.list_topics(topic, timeout=_TIMEOUT).topics[topic].partitions
        consumer.assign([kafka.TopicPartition(topic, partition, 0) for partition in partitions])
        found = 0
        while messages := consumer.consume(_MOST, _PATIENCE if found < expected else _PAUSE):
            for message in messages:
                if message.error() is not None:
                    raise kafka.KafkaException(message.error())
            found += len(messages)
        return found
    finally:
        consumer.close()


def wait_led(servers: str, topic: str) -> None:
    """Wait until the broker leads all partitions of a topic that was just made, which its metadata tell too early.

    Java's client, refused meanwhile, may wait for another leader until its records expire.
    """
    kafka = optional("confluent_kafka")
    deadline = time.monotonic() + _TIMEOUT
    while True:
        try:
            count_records(servers, topic, 0)
        except kafka.KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE)
        else:
            return
