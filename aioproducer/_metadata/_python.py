"""The metadata of an acknowledged record, in plain Python: it defines the correct behaviour of the native twin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, final

__all__ = ["RecordMetadata", "TimestampType", "TopicPartition"]


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TimestampType(IntEnum):
    """The origin of a record's timestamp (bit 3 of a record batch's attributes)."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


@final
@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """The partition, offset and timestamp of an acknowledged record.

    ``offset`` is -1 if the broker does not return it: with ``acks=0``, and if an earlier attempt whose response was lost
    had already written the batch. ``timestamp_ms`` is the broker's time if the topic uses LogAppendTime, and the record's
    own otherwise. The sizes are those of the serialized key and value in bytes, -1 for None.

    It can be unpacked, in the order of its attributes.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    serialized_key_size: int = -1
    serialized_value_size: int = -1
    timestamp_type: TimestampType = TimestampType.CREATE_TIME

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition as a separate value."""
        return TopicPartition(self.topic, self.partition)

    @property
    def has_offset(self) -> bool:
        """Whether the broker returned the offset."""
        return self.offset >= 0

    def _asdict(self) -> dict[str, Any]:
        """The attributes by name, for logs and JSON."""
        return {name: getattr(self, name) for name in self.__match_args__}

    def __iter__(self) -> Iterator[Any]:
        return iter(self._asdict().values())

    def __reduce__(self) -> tuple[Callable[..., RecordMetadata], tuple[Any, ...]]:
        from aioproducer._metadata import restored

        return restored, tuple(self)


# The module from which users import them, so that pickles and tracebacks do not name one that may move.
for kind in (TopicPartition, TimestampType, RecordMetadata):
    kind.__module__ = "aioproducer.types"
