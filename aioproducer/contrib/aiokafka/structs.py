"""Values that aiokafka's producer takes and returns."""

from __future__ import annotations

from typing import NamedTuple

from aioproducer.types import TopicPartition

__all__ = ["BatchRecordMetadata", "OffsetAndMetadata", "RecordMetadata", "TopicPartition"]


class RecordMetadata(NamedTuple):
    """The partition, offset and timestamp of an acknowledged record.

    ``offset`` is -1 if the broker did not return it. ``timestamp`` is in milliseconds since 1970; ``timestamp_type`` is 0
    for the record's own, and 1 for the broker's (LogAppendTime). ``log_start_offset`` is always None: aioproducer does
    not keep it.
    """

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int | None
    timestamp_type: int
    log_start_offset: int | None


class OffsetAndMetadata(NamedTuple):
    """The position of a consumer group: the offset of the next record to read, and a text that is stored with it."""

    offset: int
    metadata: str


class BatchRecordMetadata(NamedTuple):
    """The place of a record in its batch: its index, its encoded size in bytes, and its timestamp in milliseconds."""

    offset: int
    crc: int | None
    size: int
    timestamp: int
