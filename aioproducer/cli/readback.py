"""Reads a topic from its first record to its last with a consumer that shares no code with us: confluent-kafka's."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, cast

from aioproducer.cli.verdict import Content, ReadRecord
from aioproducer.types import Header

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

__all__ = ["ReadBackFailed", "read_back"]

_POLL: Final = 0.2
_CHUNK: Final = 5000
_PATIENCE: Final = 30.0
#: With acks=1 consumers see a record a moment after it was acknowledged. Seconds to wait, for all partitions together.
_UNTIL_VISIBLE: Final = 10.0


class ReadBackFailed(Exception):
    """The consumer could not read everything; the message holds its error."""


def read_back(
    connection: Mapping[str, str],
    topic: str,
    ends: Mapping[int, int],
    on_progress: Callable[[int, int], object],
    patience: float = _PATIENCE,
) -> list[ReadRecord]:
    """All records of the topic, in the order of each partition.

    ``connection`` is librdkafka's configuration. ``ends`` maps each partition to the offset after its last acknowledged
    record. The broker's end offset is used instead if it is higher, since a duplicate could be there, or if it stays lower,
    since the rest is lost then.
    ``on_progress(read, of)`` is called now and then. Raises ReadBackFailed if the consumer reports an error, such as a
    wrong checksum, or gets nothing for ``patience`` seconds.
    """
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            **connection,
            "group.id": f"{topic}-read-back",
            "enable.auto.commit": False,
            "check.crcs": True,
            "auto.offset.reset": "error",
            "log_level": 3,  # errors only; what it would warn about, such as a lost broker, is raised as an exception
        }
    )
    try:
        until = time.monotonic() + min(patience, _UNTIL_VISIBLE)
        ranges = {
            partition: _range(consumer, topic, partition, end, patience, until) for partition, end in ends.items()
        }
        consumer.assign([TopicPartition(topic, partition, first) for partition, (first, _) in ranges.items()])
        return _read(
            consumer, {partition: end for partition, (_, end) in ranges.items()}, ranges, on_progress, patience
        )
    finally:
        consumer.close()


def _range(consumer: Consumer, topic: str, partition: int, end: int, patience: float, until: float) -> tuple[int, int]:
    """The first offset and the end offset, as the broker reports them; waits for ``end`` until the time ``until``."""
    from confluent_kafka import KafkaException, TopicPartition

    while True:
        try:
            asked = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=patience)
            answer = cast("tuple[int, int] | None", asked)  # None after the timeout, which the stub lacks
        except KafkaException as error:
            raise ReadBackFailed(f"The consumer could not read the offsets of {topic}-{partition}: {error}") from error
        if answer is not None and (answer[1] >= end or time.monotonic() > until):
            return answer
        time.sleep(_POLL)


def _read(
    consumer: Consumer,
    ends: dict[int, int],
    ranges: Mapping[int, tuple[int, int]],
    on_progress: Callable[[int, int], object],
    patience: float,
) -> list[ReadRecord]:
    unfinished = {partition for partition, (first, end) in ranges.items() if first < end}
    total = sum(end - first for first, end in ranges.values())
    read: list[ReadRecord] = []
    heard_at = time.monotonic()
    while unfinished:
        messages = consumer.consume(_CHUNK, _POLL)
        if messages:
            heard_at = time.monotonic()
        elif time.monotonic() - heard_at > patience:
            raise ReadBackFailed(
                f"The consumer got nothing for {patience:g} s, with {len(read):,} of {total:,} records read; partitions "
                f"{sorted(unfinished)} are not at their ends."
            )
        for message in messages:
            record = _record(message)
            if record.offset < ends[record.partition]:
                read.append(record)
            if record.offset >= ends[record.partition] - 1:
                unfinished.discard(record.partition)
        on_progress(len(read), total)
    return read


def _record(message: Message) -> ReadRecord:
    error = message.error()
    if error is not None:
        raise ReadBackFailed(f"The consumer reports an error: {error.str()}")
    partition, offset = message.partition(), message.offset()
    if partition is None or offset is None:
        raise ReadBackFailed("The consumer returned a record without partition or offset.")
    return ReadRecord(
        partition,
        offset,
        Content(message.key(), message.value(), _headers(message), message.timestamp()[1]),
    )


def _headers(message: Message) -> tuple[Header, ...]:
    headers = message.headers() or ()
    pairs = headers.items() if isinstance(headers, dict) else headers  # the stub allows both, librdkafka returns pairs
    return tuple((name, value.encode() if isinstance(value, str) else value) for name, value in pairs)
