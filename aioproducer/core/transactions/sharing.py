"""Checks whether acknowledgements are about a writer's own batches, if it shares its producer id and epoch with others.

A broker that mistakes a batch for a duplicate of another writer's acknowledges it and writes nothing. On a topic with
CreateTime such an acknowledgement can be recognised: it has a time, the latest timestamp of the batch that *is* in the
log (UnifiedLog.append); one for a new batch has none. So

- a batch that was sent once, and is acknowledged with a time, is not in the log;
- one that was sent again may be its own duplicate, and then the time is that of its latest record.

With LogAppendTime every acknowledgement has a time, so the topic's kind must be known: from an acknowledgement without
a time, or from its configuration. Such topics are left with the shape of the first batches (`writer_shape`), and with
the caller of commit, who compares the reports of all writers (`Written`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Protocol

from aioproducer.errors import SharedPartition
from aioproducer.types import TimestampType, TopicPartition, Written

__all__ = ["Acknowledged", "Ownership", "SharedWrites", "shared_partition"]


class Ownership(Enum):
    """The owner of the acknowledged batch."""

    OWN = auto()
    FOREIGN = auto()
    UNCLEAR = auto()  # while the topic's timestamp type is unknown


class Acknowledged(Protocol):
    """The part of a batch that this module uses."""

    partition: TopicPartition
    attempts: int

    @property
    def count(self) -> int: ...

    @property
    def latest_timestamp(self) -> int:
        """The timestamp of its latest record, in milliseconds."""
        ...


class SharedWrites:
    """The acknowledged batches of one writer, and the timestamp types of their topics."""

    def __init__(self) -> None:
        self.written: dict[TopicPartition, Written] = {}
        self._stamps: dict[str, TimestampType] = {}

    def owner_of(self, batch: Acknowledged, base_offset: int, log_append_time_ms: int) -> Ownership:
        """Return whose batch the broker acknowledges with this offset and time; -1 if it gives none."""
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
        """Learn the timestamp types of some topics."""
        self._stamps.update(configurations)

    def count(self, partition: TopicPartition, base_offset: int, records: int) -> None:
        """Count one of this writer's batches that is in the log."""
        last = base_offset + records - 1
        so_far = self.written.get(partition)
        self.written[partition] = (
            Written(records, base_offset, last)
            if so_far is None
            else Written(so_far.records + records, min(so_far.first_offset, base_offset), max(so_far.last_offset, last))
        )


def shared_partition(partition: TopicPartition, how: str) -> SharedPartition:
    """Return the error for a partition with another writer, as ``how`` shows."""
    return SharedPartition(
        f"Another writer of the same transaction wrote into {partition}: {how}. Abort the transaction; in the next one give "
        "each partition to one writer."
    )
