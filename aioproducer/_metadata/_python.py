"""Where the broker put a record, in plain Python: what it does is right by definition for the native twin."""

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
    """Who stamped a record (bit 3 of a record batch's attributes)."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


@final
@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Where the broker put a record.

    ``offset`` is -1 where the broker does not tell it: with ``acks=0``, and when an earlier attempt whose answer was
    lost had already written the batch. ``timestamp_ms`` is the broker's time where the topic uses LogAppendTime and the
    record's own otherwise. The sizes are those of the serialized key and value in bytes, -1 for None.

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
        """The partition as a value of its own."""
        return TopicPartition(self.topic, self.partition)

    @property
    def has_offset(self) -> bool:
        """Whether the broker told the offset."""
        return self.offset >= 0

    def _asdict(self) -> dict[str, Any]:
        """The attributes by their names, for logs and for JSON."""
        return {name: getattr(self, name) for name in self.__match_args__}

    def __iter__(self) -> Iterator[Any]:
        return iter(self._asdict().values())

    def __reduce__(self) -> tuple[Callable[..., RecordMetadata], tuple[Any, ...]]:
        from aioproducer._metadata import restored

        return restored, tuple(self)


# Where users import them from, so that pickles and tracebacks name no module that may move.
for kind in (TopicPartition, TimestampType, RecordMetadata):
    kind.__module__ = "aioproducer.types"
