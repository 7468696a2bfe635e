"""Checks of records and positions as confluent-kafka makes them, and the record that waits for its outcome."""

# librdkafka's names of its own codes begin with an underscore.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from aioproducer.contrib.confluent.errors import KafkaError, error_of, exception_of
from aioproducer.contrib.confluent.message import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Message,
)
from aioproducer.types import (
    ConsumerGroupMetadata,
    Header,
    OffsetAndMetadata,
    RecordMetadata,
    TimestampType,
    TopicPartition,
)

__all__ = ["DeliveryCallback", "Pending", "checked_group", "checked_positions", "checked_record"]

#: Called with the error, or None, and the record.
DeliveryCallback: TypeAlias = Callable[[Any, Any], object]

#: The bytes that a record takes besides its key, value and headers, at most.
_OVERHEAD: Final = 70
_MAGIC: Final = b"CGMDv2:"


@dataclass(slots=True, eq=False)
class Pending:
    """A record that was accepted by ``produce()``; ``produced_at`` is in the time of `time.monotonic`."""

    topic: str
    value: bytes | None
    key: bytes | None
    headers: Sequence[Header] | None
    partition: int | None
    timestamp_ms: int | None
    on_delivery: DeliveryCallback | None
    produced_at: float

    @property
    def size(self) -> int:
        """The bytes that it takes in a batch, roughly."""
        headers = sum(len(name.encode()) + len(value or b"") for name, value in self.headers or ())
        return len(self.key or b"") + len(self.value or b"") + headers + _OVERHEAD

    def delivered(self, found: RecordMetadata, now: float) -> Message:
        """Return the message for an acknowledged record."""
        kind = TIMESTAMP_LOG_APPEND_TIME if found.timestamp_type is TimestampType.LOG_APPEND_TIME else None
        return Message(
            self.topic,
            self.value,
            self.key,
            self.headers,
            partition=found.partition,
            offset=found.offset if found.has_offset else None,
            timestamp=(kind or TIMESTAMP_CREATE_TIME, found.timestamp_ms),
            latency=now - self.produced_at,
        )

    def failed(self, error: KafkaError, partition: int | None, now: float) -> Message:
        """Return the message for a record that failed."""
        return Message(
            self.topic,
            self.value,
            self.key,
            self.headers,
            error,
            partition=self.partition if partition is None else partition,
            timestamp=(TIMESTAMP_NOT_AVAILABLE, -1),
            latency=now - self.produced_at,
        )


def checked_record(
    topic: object,
    value: object,
    key: object,
    partition: object,
    on_delivery: DeliveryCallback | None,
    timestamp: object,
    headers: object,
    now: float,
) -> Pending:
    """Return the record; raise TypeError for a wrong type, and `KafkaException` for a negative partition."""
    if not isinstance(topic, str):
        raise TypeError(f"Invalid topic {topic!r}: must be str.")
    number, time_ms = operator.index(cast("int", partition)), operator.index(cast("int", timestamp))
    if number < -1:
        raise exception_of(
            error_of(
                KafkaError._UNKNOWN_PARTITION, f"Unable to produce message: invalid partition={number}: must be >= -1."
            )
        )
    return Pending(
        topic,
        _checked_bytes("value", value),
        _checked_bytes("key", key),
        _checked_headers(headers),
        None if number == -1 else number,
        time_ms or None,
        on_delivery,
        now,
    )


def _checked_bytes(name: str, data: object) -> bytes | None:
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return data.encode()
    raise TypeError(f"Invalid {name} of type {type(data).__name__}: must be bytes, str or None.")


def _checked_headers(headers: object) -> list[Header] | None:
    if headers is None:
        return None
    if isinstance(headers, Mapping):
        pairs: Iterable[object] = cast("Mapping[object, object]", headers).items()
    elif isinstance(headers, list):
        pairs = cast("list[object]", headers)
    else:
        raise TypeError(f"Invalid headers of type {type(headers).__name__}: must be a dict, or a list of pairs.")
    return [_checked_header(pair) for pair in pairs]


def _checked_header(pair: object) -> Header:
    if not isinstance(pair, tuple) or len(cast("tuple[object, ...]", pair)) != 2:
        raise TypeError(f"Invalid header {pair!r}: headers must be a list of (key, value) tuples.")
    name, value = cast("tuple[object, object]", pair)
    if not isinstance(name, str):
        raise TypeError(f"Invalid header {pair!r}: the key must be str.")
    return name, _checked_bytes("header value", value)


def checked_positions(positions: object) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return positions given as confluent-kafka's TopicPartitions; logical offsets such as OFFSET_INVALID are left out."""
    if not isinstance(positions, list):
        raise TypeError("Invalid positions: must be a list of TopicPartition.")
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    listed: Iterable[Any] = cast("Iterable[Any]", positions)
    for each in listed:
        if not all(hasattr(each, name) for name in ("topic", "partition", "offset")):
            raise TypeError(f"Invalid position {each!r}: must be a TopicPartition.")
        if each.offset >= 0:
            text = getattr(each, "metadata", None) or ""
            found[TopicPartition(each.topic, each.partition)] = OffsetAndMetadata(each.offset, metadata=text)
    return found


def checked_group(group: object) -> ConsumerGroupMetadata | str:
    """Return the group: the bytes of ``Consumer.consumer_group_metadata()``, aioproducer's metadata, or a group id."""
    if isinstance(group, ConsumerGroupMetadata | str):
        return group
    if not isinstance(group, bytes):
        raise TypeError(f"Invalid group_metadata of type {type(group).__name__}: must be that of a consumer.")
    try:
        return _read_group(group)
    except (ValueError, IndexError, struct.error) as error:
        raise exception_of(
            error_of(KafkaError._BAD_MSG, "The consumer group metadata cannot be read."), error
        ) from error


def _read_group(data: bytes) -> ConsumerGroupMetadata:
    """Read librdkafka's format: a magic word, the generation, group id, member id and, if there is one, instance id."""
    if not data.startswith(_MAGIC):
        raise ValueError("wrong magic word")
    at = len(_MAGIC)
    (generation,) = struct.unpack_from("=i", data, at)
    group_id, member_id, rest = data[at + 4 :].split(b"\0", 2)
    instance = None if rest[0] else rest[1:].split(b"\0", 1)[0].decode()
    return ConsumerGroupMetadata(group_id.decode(), generation, member_id.decode(), instance)
