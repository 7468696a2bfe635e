"""The record encoder in plain Python: the small part of the record format that has a native twin.

This is the reference: the twin has the same names, returns the same bytes and raises the same errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioproducer.errors import InvalidRecord, ProducerStateError, RecordTooLarge

if TYPE_CHECKING:
    from aioproducer.types import BytesLike, Headers

    from .reader import Record

__all__ = ["BATCH_OVERHEAD", "RecordBatchBuilder", "record_size_upper_bound"]

#: Bytes of a batch before its first record.
BATCH_OVERHEAD: Final = 61

_MAX_TIMESTAMP: Final = (1 << 63) - 1
_MAX_FIELD: Final = (1 << 31) - 1  # lengths are int32 in Kafka

#: The maximum overhead of a record besides key, value and headers: length 5, attributes 1, timestamp delta 10, offset
#: delta 5, and 5 each for the lengths of key and value and for the number of headers.
_MAX_RECORD_OVERHEAD: Final = 36
_MAX_HEADER_OVERHEAD: Final = 10  # two lengths

_NULL: Final = b"\x01"  # the length -1, zigzag encoded
_ATTRIBUTES: Final = b"\x00"  # a record's attributes are unused
_NO_HEADERS: Final = b"\x00"


class _Varints(dict[int, bytes]):
    """Zigzag varints by value, each after the same prefix; caches nearly all that a stream of records needs."""

    __slots__ = ("_before",)

    def __init__(self, before: bytes = b"") -> None:
        self._before = before

    def __missing__(self, value: int) -> bytes:
        encoded = self._before + _encode_varint(value)
        if -8192 <= value < 16384:  # enough for the 100-byte records also of a 1 MB batch
            self[value] = encoded
        return encoded


def _encode_varint(value: int) -> bytes:
    zigzag = value << 1 if value >= 0 else ~(value << 1)
    if 0x3FFF < zigzag < 0x200000:  # the numbers of records in a large batch
        return bytes((zigzag & 0x7F | 0x80, zigzag >> 7 & 0x7F | 0x80, zigzag >> 14))
    encoded = bytearray()
    while zigzag > 0x7F:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)


_VARINTS: Final = _Varints()
_NO_KEY: Final = _Varints(_NULL)  # the length of the value, after that of a missing key
_join: Final = b"".join


class RecordBatchBuilder:
    """The records of an open batch, encoded in the uncompressed wire format.

    A record is complete or, if ``append`` raised, absent. The builder copies its input. It only has the limits of the
    format; the caller limits the size of a batch.

    ``expected_size``, in bytes with the batch header, is the size that the batch will rarely exceed: a hint that may save
    memory.
    """

    __slots__ = (
        "_body",
        "_head",
        "_open",
        "_timestamp",
        "base_timestamp",
        "count",
        "largest_record",
        "max_timestamp",
        "size",
    )

    #: The number of records.
    count: int
    #: The uncompressed size of the batch in bytes: header and records.
    size: int
    #: The size of the largest record in bytes, 0 before there is one.
    largest_record: int
    #: The timestamp of the first record, -1 before there is one.
    base_timestamp: int
    #: The latest timestamp of a record, -1 before there is one.
    max_timestamp: int

    def __init__(self, expected_size: int = 0) -> None:
        self.count = 0
        self.size = BATCH_OVERHEAD
        self.largest_record = 0
        self.base_timestamp = -1
        self.max_timestamp = -1
        self._body = bytearray()
        #: The buffer for records; None once the batch is closed.
        self._open: bytearray | None = self._body
        #: The start of a record with this timestamp, after its length: most have the previous record's timestamp.
        self._timestamp: int | None = None
        self._head = b""

    def append(self, timestamp_ms: int, key: BytesLike | None, value: BytesLike | None, headers: Headers = ()) -> int:
        """Append one record; returns its size in bytes.

        ``timestamp_ms`` is in milliseconds since 1970, 0 to 2**63 - 1; timestamps may go back within a batch. Header
        names may be empty and may repeat; their order is kept.

        Raises ``InvalidRecord`` for a timestamp out of range or a header name that is invalid in UTF-8,
        ``RecordTooLarge`` if the batch would exceed 2 GiB, ``ProducerStateError`` if the batch is closed.
        """
        body = self._open
        if body is None:
            raise _closed()
        if timestamp_ms != self._timestamp:
            self._begin_at(timestamp_ms)
        count = self.count
        varints = _VARINTS

        # One expression, because every further statement costs half as much again.
        if headers or type(value) is not bytes:
            record = self._head + varints[count] + _encode_fields(key, value, headers)
        elif key is None:
            record = _join((self._head, varints[count], _NO_KEY[len(value)], value, _NO_HEADERS))
        else:
            if type(key) is not bytes:
                key = memoryview(key).tobytes()  # not bytes(key), which turns the number n into n zero bytes
            record = _join(
                (self._head, varints[count], varints[len(key)], key, varints[len(value)], value, _NO_HEADERS)
            )

        length = len(record)
        prefix = varints[length]
        length += len(prefix)
        size = self.size + length
        if size > _MAX_FIELD:
            raise _too_large(length)
        next_count = count + 1  # now, before anything has changed: even a number may fail to allocate
        body += prefix
        try:
            body += record
        except MemoryError:
            del body[-len(prefix) :]
            raise
        if timestamp_ms > self.max_timestamp:
            if not count:
                self.base_timestamp = timestamp_ms
            self.max_timestamp = timestamp_ms
        if length > self.largest_record:
            self.largest_record = length
        self.count = next_count
        self.size = size
        return length

    def _begin_at(self, timestamp_ms: int) -> None:
        """Prepare for records with this timestamp."""
        if not 0 <= timestamp_ms <= _MAX_TIMESTAMP:
            raise _invalid_timestamp(timestamp_ms)
        head = _ATTRIBUTES + _VARINTS[timestamp_ms - self.base_timestamp if self.count else 0]
        self._timestamp, self._head = timestamp_ms, head

    def close(self) -> bytearray:
        """Close the batch; returns the encoded records, uncompressed; do not modify them. May be called again."""
        self._open = None
        return self._body

    def read_records(self) -> list[Record]:
        """Decode the records, with offsets from 0; open or closed."""
        from .reader import parse_records  # only failures and tests need it

        return parse_records(self._body, self.count, base_timestamp=self.base_timestamp)


def record_size_upper_bound(key: BytesLike | None, value: BytesLike | None, headers: Headers = ()) -> int:
    """The most bytes that this record can take in a batch, whatever its timestamp and position, without the batch header.

    This exceeds what ``append`` will return by at most 34 bytes, and 8 more for each header.
    """
    size = _MAX_RECORD_OVERHEAD
    if key is not None:
        size += len(key) if type(key) is not memoryview else key.nbytes
    if value is not None:
        size += len(value) if type(value) is not memoryview else value.nbytes
    return size + _headers_upper_bound(headers) if headers else size


def _headers_upper_bound(headers: Headers) -> int:
    size = 0
    for name, content in headers:
        # A lone surrogate counts like any character here: `append` refuses it.
        size += _MAX_HEADER_OVERHEAD + (len(name) if name.isascii() else len(name.encode("utf-8", "surrogatepass")))
        if content is not None:
            size += len(content) if type(content) is bytes else memoryview(content).nbytes
    return size


def _encode_fields(key: BytesLike | None, value: BytesLike | None, headers: Headers) -> bytes:
    """Key, value and headers, of any type."""
    varints = _VARINTS
    if key is None:
        key_length = _NULL
        key = b""
    else:
        if type(key) is not bytes:
            key = memoryview(key).tobytes()
        key_length = varints[len(key)]
    if value is None:
        value_length = _NULL
        value = b""
    else:
        if type(value) is not bytes:
            value = memoryview(value).tobytes()
        value_length = varints[len(value)]
    return _join((key_length, key, value_length, value, _encode_headers(headers) if headers else _NO_HEADERS))


def _encode_headers(headers: Headers) -> bytes:
    varints = _VARINTS
    parts = [varints[len(headers)]]
    for name, value in headers:
        try:
            encoded = name.encode()
        except UnicodeEncodeError as error:
            raise InvalidRecord(
                f"The header name {name!r} contains a lone surrogate (position {error.start}), which UTF-8 cannot encode; "
                "header names are Unicode text."
            ) from error
        parts.append(varints[len(encoded)])
        parts.append(encoded)
        if value is None:
            parts.append(_NULL)
        else:
            if type(value) is not bytes:
                value = memoryview(value).tobytes()
            parts.append(varints[len(value)])
            parts.append(value)
    return b"".join(parts)


def _closed() -> ProducerStateError:
    return ProducerStateError("The record batch is closed; it does not accept further records.")


def _invalid_timestamp(timestamp_ms: int) -> InvalidRecord:
    return InvalidRecord(
        f"invalid timestamp {timestamp_ms}: must be 0 to {_MAX_TIMESTAMP}, in milliseconds since 1970."
    )


def _too_large(size: int) -> RecordTooLarge:
    return RecordTooLarge(
        f"The record takes {size} bytes, and the batch would exceed {_MAX_FIELD} bytes, the limit of the record batch "
        "format."
    )
