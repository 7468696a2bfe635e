"""The record that a delivery callback gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aioproducer.contrib.confluent.errors import KafkaError
from aioproducer.types import Header

__all__ = ["TIMESTAMP_CREATE_TIME", "TIMESTAMP_LOG_APPEND_TIME", "TIMESTAMP_NOT_AVAILABLE", "Message"]

TIMESTAMP_NOT_AVAILABLE: Final = 0
TIMESTAMP_CREATE_TIME: Final = 1
TIMESTAMP_LOG_APPEND_TIME: Final = 2


class Message:
    """A record and its outcome, as confluent-kafka's class of this name.

    Unlike confluent-kafka, it has the headers of the record.
    """

    def __init__(
        self,
        topic: str | None = None,
        value: bytes | None = None,
        key: bytes | None = None,
        headers: Sequence[Header] | None = None,
        error: KafkaError | None = None,
        *,
        partition: int | None = None,
        offset: int | None = None,
        timestamp: tuple[int, int] = (TIMESTAMP_NOT_AVAILABLE, -1),
        latency: float | None = None,
    ) -> None:
        self._topic = topic
        self._value: object = value
        self._key: object = key
        self._headers = headers
        self._error = error
        self._place = (partition, offset)
        self._timestamp = timestamp
        self._latency = latency

    def topic(self) -> str | None:
        """Return the name of the topic."""
        return self._topic

    def partition(self) -> int | None:
        """Return the partition; None if the record failed before it had one."""
        return self._place[0]

    def offset(self) -> int | None:
        """Return the offset; None if the record failed, or the broker did not return it (``acks=0``)."""
        return self._place[1]

    def leader_epoch(self) -> int | None:
        """Return None: a producer does not learn it."""
        return None

    def delivery_count(self) -> int | None:
        """Return None: only consumers of share groups learn it."""
        return None

    def value(self) -> object:
        """Return the value as bytes, or None."""
        return self._value

    def key(self) -> object:
        """Return the key as bytes, or None."""
        return self._key

    def headers(self) -> list[Header] | None:
        """Return the headers as pairs, or None if the record has none."""
        return list(self._headers) if self._headers else None

    def timestamp(self) -> tuple[int, int]:
        """Return the type of the timestamp, and milliseconds since 1970; (0, -1) if the record failed."""
        return self._timestamp

    def latency(self) -> float | None:
        """Return the seconds between ``produce()`` and the outcome."""
        return self._latency

    def error(self) -> KafkaError | None:
        """Return the error, or None."""
        return self._error

    def set_error(self, error: KafkaError | None) -> None:
        """Replace the error."""
        self._error = error

    def set_topic(self, topic: str) -> None:
        """Replace the topic."""
        self._topic = topic

    def set_value(self, value: object) -> None:
        """Replace the value."""
        self._value = value

    def set_key(self, key: object) -> None:
        """Replace the key."""
        self._key = key

    def set_headers(self, headers: Sequence[Header] | None) -> None:
        """Replace the headers."""
        self._headers = headers

    def __len__(self) -> int:
        return len(self._value) if isinstance(self._value, bytes) else 0

    def __bool__(self) -> bool:
        return True
