"""A strict reader of record batches: for the test brokers, the audit, and the producer's own split of a batch.

Anything but a valid batch of format version 2 raises ``CorruptRecord``. Only the base offset and the partition leader epoch
are not covered by the checksum, and so not protected against a flipped bit: brokers set them later.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer.errors import CorruptRecord
from aioproducer.types import Header, TimestampType

from .checksum import crc32c
from .compression import Codec, decompress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproducer.types import BytesLike

__all__ = ["DEFAULT_MAX_SIZE", "Record", "RecordBatch", "parse_records", "read_batches"]

#: The default limit for the decompressed records of one batch, in bytes.
DEFAULT_MAX_SIZE: Final = 64 * 1024 * 1024


class Record(NamedTuple):
    """One record of a log; ``timestamp_ms`` is in milliseconds since 1970."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """One record batch: every field of its header, and its records."""

    base_offset: int
    partition_leader_epoch: int
    crc: int
    codec: Codec
    timestamp_type: TimestampType
    is_transactional: bool
    is_control: bool
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    #: The size of the batch as read: header and, compressed or not, the records.
    size: int
    records: list[Record] = field(repr=False)

    @property
    def count(self) -> int:
        """The number of records."""
        return len(self.records)

    @property
    def last_offset(self) -> int:
        """The offset of the last record."""
        return self.base_offset + self.last_offset_delta


_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_LENGTH_END: Final = 12  # the length counts from here
_CRC_END: Final = 21  # the checksum covers from here
_MIN_RECORD: Final = 7  # seven fields of one byte each
_MIN_HEADER: Final = 2
_MAX_INT64: Final = (1 << 63) - 1

_CODEC_MASK: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_UNUSED: Final = ~0x7F  # 0x40: the base timestamp is a delete horizon (KIP-534), set by compaction


def read_batches(
    data: BytesLike, *, max_size: int = DEFAULT_MAX_SIZE, partial_tail: bool = False, compacted: bool = False
) -> Iterator[RecordBatch]:
    """The consecutive batches in ``data``, each fully checked before it is returned.

    ``max_size`` limits the records of one batch after decompression, in bytes. A Fetch response may end within a batch:
    with ``partial_tail`` such an end is ignored. ``compacted``: the log cleaner may have removed records from a batch, even
    all of them (it keeps the batch itself for its producer's sequence).

    Raises ``CorruptRecord`` if a batch is truncated, is not version 2 of the format, fails its checksum, has fields that
    contradict each other or its records, or would become larger than ``max_size``; ``ConfigError`` if the library for
    its codec is not installed.
    """
    view = memoryview(data)
    position = 0
    while position < len(view):
        size = _batch_size(view, position)
        if size is None:
            if partial_tail:
                return
            raise CorruptRecord(f"The record batch at byte {position} is truncated to {len(view) - position} bytes.")
        yield _read_batch(view[position : position + size], max_size, compacted=compacted)
        position += size


def _batch_size(view: memoryview, position: int) -> int | None:
    """The size of the batch at ``position`` in bytes, or None if it is truncated."""
    if len(view) - position < _LENGTH_END:
        return None
    size = _LENGTH_END + int.from_bytes(view[position + 8 : position + _LENGTH_END], "big", signed=True)
    if size < _HEADER.size:
        raise CorruptRecord(
            f"The record batch at byte {position} has an announced size of {size} bytes, less than its header of "
            f"{_HEADER.size}."
        )
    return size if size <= len(view) - position else None


class _BatchHeader(NamedTuple):
    """The fields before the records, in order."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int


def _read_batch(view: memoryview, max_size: int, *, compacted: bool) -> RecordBatch:
    header = _read_header(view, compacted=compacted)
    attributes = header.attributes
    timestamp_type = TimestampType.LOG_APPEND_TIME if attributes & _LOG_APPEND_TIME else TimestampType.CREATE_TIME
    codec = Codec(attributes & _CODEC_MASK)
    records = parse_records(
        decompress(codec, view[_HEADER.size :], max_size=max_size),
        header.record_count,
        base_offset=header.base_offset,
        base_timestamp=header.base_timestamp,
        log_append_time=header.max_timestamp if timestamp_type is TimestampType.LOG_APPEND_TIME else None,
        last_delta=header.last_offset_delta if compacted else None,
    )
    latest = max((record.timestamp_ms for record in records), default=header.max_timestamp)
    if latest != header.max_timestamp:
        raise CorruptRecord(
            f"The record batch at offset {header.base_offset} has the latest timestamp {header.max_timestamp} in its "
            f"header, but {latest} in its records."
        )
    return RecordBatch(
        base_offset=header.base_offset,
        partition_leader_epoch=header.leader_epoch,
        crc=header.crc,
        codec=codec,
        timestamp_type=timestamp_type,
        is_transactional=bool(attributes & _TRANSACTIONAL),
        is_control=bool(attributes & _CONTROL),
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        size=len(view),
        records=records,
    )


def _read_header(view: memoryview, *, compacted: bool) -> _BatchHeader:
    """The checked header of a batch; also verifies the checksum."""
    header = _BatchHeader(*_HEADER.unpack_from(view))
    base_offset, attributes, count = header.base_offset, header.attributes, header.record_count
    if header.magic != 2:
        raise CorruptRecord(f"The record batch has format version (magic) {header.magic}; only version 2 is supported.")
    if base_offset < 0:
        raise CorruptRecord(f"The record batch has the negative base offset {base_offset}.")
    actual = crc32c(view[_CRC_END:])
    if actual != header.crc:
        raise CorruptRecord(
            f"The record batch at offset {base_offset} has the checksum {header.crc:#010x} in its header, but its bytes "
            f"have {actual:#010x}."
        )
    if attributes & _UNUSED or attributes & _CODEC_MASK > Codec.ZSTD:
        raise CorruptRecord(
            f"The record batch at offset {base_offset} has the attributes {attributes:#06x}, with undefined bits."
        )
    last_delta = header.last_offset_delta
    if not (0 <= count <= last_delta + 1) if compacted else (count < 1 or last_delta != count - 1):
        raise CorruptRecord(
            f"The record batch at offset {base_offset} has an announced count of {count} records, but offset delta "
            f"{last_delta}."
        )
    return header


def parse_records(
    body: BytesLike,
    count: int,
    *,
    base_offset: int = 0,
    base_timestamp: int,
    log_append_time: int | None = None,
    last_delta: int | None = None,
) -> list[Record]:
    """Decode the ``count`` uncompressed records of a batch.

    ``log_append_time`` is the broker's time if it stamped the records, and replaces their own. ``last_delta`` is for a
    batch of a compacted log: offset deltas then increase up to it, with gaps.

    Raises ``CorruptRecord`` if ``body`` is not exactly that many records with the offset deltas 0, 1, 2, ...
    """
    data = body if type(body) is bytes else bytes(body)
    if count * _MIN_RECORD > len(data):
        raise CorruptRecord(f"{len(data)} bytes cannot hold the announced {count} records of the batch.")
    records: list[Record] = []
    position = 0
    lowest = 0
    for index in range(count):
        try:
            length, start = _varint(data, position)
            end = start + length
            if length < _MIN_RECORD - 1 or end > len(data):
                raise _MalformedError(f"it has an announced length of {length} bytes, but {len(data) - start} remain")
            highest = lowest if last_delta is None else last_delta
            timestamp, delta, key, value, headers = _parse_record(data, start, end, lowest, highest)
        except (IndexError, _MalformedError, UnicodeDecodeError) as error:
            why = "it is truncated" if isinstance(error, IndexError) else error
            raise CorruptRecord(
                f"Record {index} of {count} in a batch, at byte {position}, is corrupt: {why}."
            ) from error
        timestamp += base_timestamp
        if not -1 <= timestamp <= _MAX_INT64:
            raise CorruptRecord(f"Record {index} of {count} in a batch has the invalid timestamp {timestamp}.")
        if log_append_time is not None:
            timestamp = log_append_time
        records.append(Record(base_offset + delta, timestamp, key, value, headers))
        position, lowest = end, delta + 1
    if position != len(data):
        raise CorruptRecord(f"{len(data) - position} bytes follow the last of {count} records in a batch.")
    return records


class _MalformedError(Exception):
    """Why a record cannot be read; raised to the caller as CorruptRecord, with the record's position."""


def _parse_record(
    data: bytes, position: int, end: int, lowest: int, highest: int
) -> tuple[int, int, bytes | None, bytes | None, tuple[Header, ...]]:
    if data[position]:
        raise _MalformedError(f"its attributes are {data[position]:#04x}, and none are defined")
    timestamp_delta, position = _varint(data, position + 1, 10)
    offset_delta, position = _varint(data, position)
    if not lowest <= offset_delta <= highest:
        raise _MalformedError(f"its offset delta is {offset_delta}")
    key, position = _nullable_bytes(data, position, end)
    value, position = _nullable_bytes(data, position, end)
    count, position = _varint(data, position)
    headers: tuple[Header, ...] = ()
    if count:
        if not 0 < count <= (end - position) // _MIN_HEADER:
            raise _MalformedError(f"it has an announced count of {count} headers in {end - position} bytes")
        headers, position = _parse_headers(data, position, end, count)
    if position != end:
        raise _MalformedError(
            f"its fields end {abs(end - position)} bytes {'before' if position < end else 'after'} its end"
        )
    return timestamp_delta, offset_delta, key, value, headers


def _parse_headers(data: bytes, position: int, end: int, count: int) -> tuple[tuple[Header, ...], int]:
    headers: list[Header] = []
    for _ in range(count):
        name, position = _nullable_bytes(data, position, end)
        if name is None:
            raise _MalformedError("the name of a header is null")
        value, position = _nullable_bytes(data, position, end)
        headers.append((name.decode(), value))
    return tuple(headers), position


def _nullable_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length = data[position]
    if length < 0x80 and not length & 1:  # most are small and not null: avoid a call
        length >>= 1
        position += 1
    else:
        length, position = _varint(data, position)
    if length < 0:
        if length != -1:
            raise _MalformedError(f"a field has the length {length}")
        return None, position
    stop = position + length
    if stop > end:
        raise _MalformedError(f"a field has an announced length of {length} bytes, but {end - position} remain")
    return data[position:stop], stop


def _varint(data: bytes, position: int, max_bytes: int = 5) -> tuple[int, int]:
    """The zigzag varint at ``position`` and its end; with 32 bits (5 bytes) or 64 (10 bytes)."""
    byte = data[position]
    position += 1
    zigzag = byte & 0x7F
    shift = 7
    while byte > 0x7F:
        if shift == 7 * max_bytes:
            raise _MalformedError(f"a number has more than {max_bytes} bytes")
        byte = data[position]
        position += 1
        zigzag |= (byte & 0x7F) << shift
        shift += 7
    if zigzag >> (64 if max_bytes == 10 else 32):
        raise _MalformedError(f"a number has more than {64 if max_bytes == 10 else 32} bits")
    return zigzag >> 1 ^ -(zigzag & 1), position
