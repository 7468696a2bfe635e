"""Judges the acknowledgements of a writer that shares its producer id and epoch with others: are they of its own batches?

A broker that takes a batch for a repeat of somebody else's acknowledges it and writes nothing. On a topic with CreateTime
such an acknowledgement betrays itself: it has a time, the latest timestamp of the batch that *is* in the log
(UnifiedLog.append), where one for news has none. So

- a batch that was sent once, and is acknowledged with a time, is not in the log;
- one that was sent again may be its own repeat, and then the time is that of its own latest record.

With LogAppendTime every acknowledgement has a time, so which kind a topic is of must be known: from an acknowledgement
without a time, or from its configuration. What is left for such topics is the shape of the first batches
(`writer_shape`), and the caller of commit, who compares what all writers report (`Written`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Protocol

from aioproducer.errors import SharedPartition
from aioproducer.types import TimestampType, TopicPartition, Written

__all__ = ["Acknowledged", "Ownership", "SharedWrites", "shared_partition"]


class Ownership(Enum):
    """Whose batch an acknowledgement is about."""

    OWN = auto()
    FOREIGN = auto()
    UNCLEAR = auto()  # as long as it is not known who stamps the topic's records


class Acknowledged(Protocol):
    """What this module needs to know of a batch."""

    partition: TopicPartition
    attempts: int

    @property
    def count(self) -> int: ...

    @property
    def latest_timestamp(self) -> int:
        """That of its latest record, in milliseconds."""
        ...


class SharedWrites:
    """What one writer got acknowledged, and what is known of the topics for that."""

    def __init__(self) -> None:
        self.written: dict[TopicPartition, Written] = {}
        self._stamps: dict[str, TimestampType] = {}

    def judge(self, batch: Acknowledged, base_offset: int, log_append_time_ms: int) -> Ownership:
        """Whose batch it is that the broker acknowledges with this offset and time, -1 where it tells none."""
        topic = batch.partition.topic
        if base_offset < 0:  # it remembers only a later sequence, not the batch: so the batch is not ours
            return Ownership.FOREIGN
        if log_append_time_ms < 0:
            self._stamps.setdefault(topic, TimestampType.CREATE_TIME)
            return Ownership.OWN
        stamped_by = self._stamps.get(topic)
        if stamped_by is TimestampType.LOG_APPEND_TIME:
            return Ownership.OWN
        if batch.attempts > 1 and log_append_time_ms == batch.latest_timestamp:
            return Ownership.OWN
        return Ownership.UNCLEAR if stamped_by is None else Ownership.FOREIGN

    def learn(self, configurations: Mapping[str, TimestampType]) -> None:
        """Take in who stamps the records of some topics."""
        self._stamps.update(configurations)

    def count(self, partition: TopicPartition, base_offset: int, records: int) -> None:
        """A batch of its own is in the log."""
        last = base_offset + records - 1
        so_far = self.written.get(partition)
        self.written[partition] = (
            Written(records, base_offset, last)
            if so_far is None
            else Written(so_far.records + records, min(so_far.first_offset, base_offset), max(so_far.last_offset, last))
        )


def shared_partition(partition: TopicPartition, how: str) -> SharedPartition:
    """The error for a partition in which there is another writer, as ``how`` shows."""
    return SharedPartition(
        f"Another writer of the same transaction wrote into {partition}: {how}. Abort the transaction; in the next one give "
        "each partition to one writer."
    )
