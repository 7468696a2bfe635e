"""How many records a topic holds, as librdkafka's consumer sees it: none of the compared clients judges itself."""

from __future__ import annotations

from benchmarks.unavailable import optional

__all__ = ["count_records"]

_TIMEOUT = 30.0


def count_records(servers: str, topic: str) -> int:
    """The end offsets of all partitions, summed up; every run has a topic of its own, which begins at 0."""
    kafka = optional("confluent_kafka")
    consumer = kafka.Consumer({"bootstrap.servers": servers, "group.id": "benchmarks", "log_level": 3})
    try:
        partitions = consumer.list_topics(topic, timeout=_TIMEOUT).topics[topic].partitions
        ends = (
            consumer.get_watermark_offsets(kafka.TopicPartition(topic, partition), timeout=_TIMEOUT)[1]
            for partition in partitions
        )
        return sum(ends)
    finally:
        consumer.close()
