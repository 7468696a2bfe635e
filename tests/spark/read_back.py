"""Reads a topic as a consumer does that only sees what was committed; librdkafka's, which shares nothing with us."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from tests.real.open_transactions import ending_transactions


def committed(bootstrap_servers: str, topic: str, partitions: int) -> Iterator[Message]:
    """The messages of all partitions, each in its order, up to the first record of a transaction that is open.

    With transaction.version 2 a commit is confirmed before its markers are written (KIP-890); those are waited for.
    """
    deadline = time.monotonic() + 60
    while ending := ending_transactions(bootstrap_servers):
        assert time.monotonic() < deadline, ending
        time.sleep(0.01)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": f"read-{uuid.uuid4()}",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    left = set(range(partitions))
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in left])
        while left:
            message = consumer.poll(60)
            assert message is not None, f"nothing came for a minute from partitions {left} of {topic}"
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition() or 0)
            else:
                raise AssertionError(str(error))
    finally:
        consumer.close()


def read_committed(bootstrap_servers: str, topic: str, partitions: int) -> Counter[int]:
    """The numbers in the values."""
    return Counter(int(message.value() or b"") for message in committed(bootstrap_servers, topic, partitions))
