"""Checks of keys, values and headers as aiokafka makes them, and the batch that a program fills by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias, cast

from aioproducer.contrib.aiokafka.structs import BatchRecordMetadata
from aioproducer.types import BytesLike, Header

__all__ = ["BatchBuilder", "BatchRecord", "Serializer", "checked_bytes", "checked_headers", "checked_timestamp"]

#: A serializer as aiokafka calls it: with the key or value alone.
Serializer: TypeAlias = Callable[..., object]

_BYTES_LIKE: Final = (bytes, bytearray, memoryview)
_BATCH_HEADER_SIZE: Final = 61


def checked_bytes(what: str, data: object) -> BytesLike | None:
    """Return the data; raise TypeError if they are neither bytes nor None."""
    if data is None or isinstance(data, _BYTES_LIKE):
        return cast("BytesLike | None", data)
    raise TypeError(
        f"Invalid {what} of type {type(data).__name__}: must be bytes or None; a serializer can convert it."
    )


def checked_headers(headers: Iterable[object] | None) -> list[Header]:
    """Return the headers as a list; raise TypeError or ValueError unless they are pairs of str and bytes (or None)."""
    checked: list[Header] = []
    if isinstance(headers, (Mapping, str, bytes)):
        kind = type(cast("object", headers)).__name__
        raise TypeError(f"Invalid headers of type {kind}: must be a list of pairs (str, bytes).")
    for header in headers or ():
        if not isinstance(header, (tuple, list)):
            raise TypeError(f"Invalid header {header!r}: must be a pair (str, bytes).")
        name, value = cast("Sequence[object]", header)
        if not isinstance(name, str):
            raise TypeError(f"Invalid name of header {header!r}: must be a str.")
        plain = checked_bytes("header", value)
        checked.append((name, None if plain is None else bytes(plain)))
    return checked


def checked_timestamp(timestamp: object) -> int | None:
    """Return milliseconds since 1970, or None for now; raise TypeError for other types, ValueError for negative numbers."""
    if timestamp is None:
        return None
    if not isinstance(timestamp, (int, float)):
        raise TypeError(
            f"Invalid timestamp={timestamp!r}: must be an integer, milliseconds since 1970, or None for now."
        )
    if timestamp < 0:
        raise ValueError(f"Invalid timestamp={timestamp!r}: must be at least 0, milliseconds since 1970.")
    return int(timestamp)


class BatchRecord(NamedTuple):
    """A record of a `BatchBuilder`, serialized."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]


class BatchBuilder:
    """Records for one partition, collected by the program; `AIOKafkaProducer.create_batch` creates it."""

    def __init__(
        self, batch_size: int, *, key_serializer: Serializer | None = None, value_serializer: Serializer | None = None
    ) -> None:
        self._batch_size = batch_size
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._records: list[BatchRecord] = []
        self._size = _BATCH_HEADER_SIZE
        self._closed = False

    def append(
        self, *, timestamp: float | None, key: object, value: object, headers: Iterable[object] | None = ()
    ) -> BatchRecordMetadata | None:
        """Add a record; returns its place, or None if the batch is closed or full, which closes it.

        The first record is accepted whatever its size. ``timestamp`` is in milliseconds; None means now. Raises TypeError
        for a key or value that is not bytes after serialization, and for invalid headers.
        """
        if self._closed:
            return None
        key_bytes = _frozen("key", key if self._key_serializer is None else self._key_serializer(key))
        value_bytes = _frozen("value", value if self._value_serializer is None else self._value_serializer(value))
        checked = checked_timestamp(timestamp)
        milliseconds = time.time_ns() // 1_000_000 if checked is None else checked
        record = BatchRecord(milliseconds, key_bytes, value_bytes, tuple(checked_headers(headers)))
        size = _encoded_size(record, milliseconds - (self._records or [record])[0].timestamp, len(self._records))
        if self._records and self._size + size > self._batch_size:
            self._closed = True
            return None
        self._records.append(record)
        self._size += size
        return BatchRecordMetadata(len(self._records) - 1, None, size, milliseconds)

    def close(self) -> None:
        """Accept no more records; `AIOKafkaProducer.send_batch` closes the batch as well."""
        self._closed = True

    def closed(self) -> bool:
        """Return whether it accepts no more records."""
        return self._closed

    def size(self) -> int:
        """Return the size of the batch in bytes, before compression."""
        return self._size

    def record_count(self) -> int:
        """Return the number of records."""
        return len(self._records)

    def records(self) -> Sequence[BatchRecord]:
        """Return the records in order; not part of aiokafka's API."""
        return self._records


def _frozen(what: str, data: object) -> bytes | None:
    checked = checked_bytes(what, data)
    return None if checked is None else bytes(checked)


def _encoded_size(record: BatchRecord, timestamp_delta: int, offset_delta: int) -> int:
    """The size of the record in a batch of format 2, with its length prefix."""
    size = 1 + _varint_size(timestamp_delta) + _varint_size(offset_delta) + _varint_size(len(record.headers))
    size += _field_size(record.key) + _field_size(record.value)
    size += sum(_field_size(name.encode()) + _field_size(value) for name, value in record.headers)
    return size + _varint_size(size)


def _field_size(data: bytes | None) -> int:
    return 1 if data is None else _varint_size(len(data)) + len(data)


def _varint_size(number: int) -> int:
    """The size of a zigzag varint."""
    return max(1, -(-((number << 1) ^ (number >> 63)).bit_length() // 7))
