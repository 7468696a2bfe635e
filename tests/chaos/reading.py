"""Reads topics to their end with a client that is not ours: librdkafka's consumer, with both isolation levels."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from aioproducer.testing.broker.log import LoggedRecord

__all__ = ["ReadLog", "read_logs"]

#: Seconds in which brokers must have ended the transactions that a producer has left open.
_PATIENCE_S: Final = 90.0
_BATCH: Final = 5_000


@dataclass(frozen=True, slots=True)
class ReadLog:
    """A partition as two consumers have read it."""

    everything: Sequence[LoggedRecord]
    committed: Sequence[LoggedRecord]

    def records(self, *, committed: bool = False) -> Sequence[LoggedRecord]:
        """The records in order; with ``committed`` only those that read_committed allows."""
        return self.committed if committed else self.everything


def read_logs(bootstrap_servers: str, partitions: Mapping[str, int]) -> Sequence[ReadLog]:
    """Read every partition of the topics, given with their numbers of partitions.

    Raises TimeoutError if brokers do not serve one to its end.
    """
    wanted = [(topic, number) for topic, count in partitions.items() for number in range(count)]
    ends = _ends_without_open_transactions(bootstrap_servers, wanted)
    everything = _read(bootstrap_servers, "read_uncommitted", ends)
    committed = _read(bootstrap_servers, "read_committed", ends)
    return [ReadLog(everything[each], committed[each]) for each in wanted]


def _consumer(bootstrap_servers: str, isolation: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "judge",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": isolation,
            "check.crcs": True,
            "log_level": 0,
        }
    )


def _ends_without_open_transactions(
    bootstrap_servers: str, wanted: Sequence[tuple[str, int]]
) -> Mapping[tuple[str, int], int]:
    """The end of each partition, as soon as read_committed reaches it."""
    deadline = time.monotonic() + _PATIENCE_S
    ends: dict[tuple[str, int], int] = {}
    consumers = [_consumer(bootstrap_servers, level) for level in ("read_uncommitted", "read_committed")]
    try:
        for each in wanted:
            end, stable = -1, -2
            while end != stable:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{each} has an open transaction: it is stable to {stable} of {end}.")
                end, stable = (_end(consumer, each) for consumer in consumers)
                if end != stable:
                    time.sleep(0.2)
            ends[each] = end
    finally:
        for consumer in consumers:
            consumer.close()
    return ends


def _end(consumer: Consumer, each: tuple[str, int]) -> int:
    # None when the time is over, though confluent-kafka's stubs do not say so.
    watermarks: tuple[int, int] | None = consumer.get_watermark_offsets(TopicPartition(*each), timeout=30)
    if watermarks is None:  # pyright: ignore[reportUnnecessaryComparison]
        raise TimeoutError(f"No broker returned the end of {each}.")
    return watermarks[1]


def _read(
    bootstrap_servers: str, isolation: str, ends: Mapping[tuple[str, int], int]
) -> Mapping[tuple[str, int], Sequence[LoggedRecord]]:
    found: dict[tuple[str, int], list[LoggedRecord]] = {each: [] for each in ends}
    left = set(ends)
    consumer = _consumer(bootstrap_servers, isolation)
    deadline = time.monotonic() + _PATIENCE_S
    try:
        consumer.assign([TopicPartition(*each, OFFSET_BEGINNING) for each in ends])
        while left:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{sorted(left)} were not read to their ends.")
            for message in consumer.consume(_BATCH, 1.0):
                error = message.error()
                if error is None:
                    record = _record(message)
                    found[record.topic, record.partition].append(record)
                elif error.code() == KafkaError._PARTITION_EOF:  # pyright: ignore[reportPrivateUsage] - the only name
                    _reached(message, ends, left)
    finally:
        consumer.close()
    return found


def _reached(message: Any, ends: Mapping[tuple[str, int], int], left: set[tuple[str, int]]) -> None:
    where = (message.topic(), message.partition())
    if message.offset() >= ends[where]:
        left.discard(where)


def _record(message: Any) -> LoggedRecord:
    return LoggedRecord(
        message.topic(), message.partition(), message.offset(), message.timestamp()[1], message.key(), message.value()
    )
