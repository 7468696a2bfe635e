"""The primitive types of Kafka's protocol, and functions to read and write those that ``struct`` does not support.

A wire type is a value that describes bytes; ``message`` uses it in annotations and ``compiler`` compiles it.
Everything is big-endian. From its first *flexible* version on (KIP-482) a message writes lengths as unsigned varints of
length + 1, 0 being null, and ends every struct with tagged fields; before, a length is an int16 (strings) or an int32
(bytes, arrays), -1 being null.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple, NoReturn, TypeAlias

from aioproducer.errors import ProtocolError
from aioproducer.types import BytesLike

__all__ = [
    "BOOL",
    "BYTES",
    "FLOAT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "MAX_STRING",
    "NULLABLE_BYTES",
    "NULLABLE_STRING",
    "STRING",
    "UINT16",
    "UINT32",
    "UUID",
    "ZERO_UUID",
    "Blob",
    "Fixed",
    "RecordsInput",
    "Text",
    "WireType",
    "read_uvarint",
    "refuse_count",
    "refuse_length",
    "refuse_null",
    "refuse_text",
    "to_uuid",
    "write_uvarint",
]

#: Kafka's value for "no id"; also the id of every topic on brokers before 2.8.
ZERO_UUID: Final = uuid.UUID(int=0)

#: The maximum length of a string in bytes: Kafka's own readers refuse more, also in compact strings.
MAX_STRING: Final = 0x7FFF

#: The input of a ``records`` field: the bytes, or consecutive pieces, which are never joined.
RecordsInput: TypeAlias = BytesLike | Sequence[BytesLike]


class Fixed(NamedTuple):
    """A type of fixed length; ``code`` is its letter in a ``struct`` format."""

    code: str

    @property
    def size(self) -> int:
        """Its length in bytes."""
        return struct.calcsize(f">{self.code}")


class Text(NamedTuple):
    """A UTF-8 string of at most ``MAX_STRING`` bytes."""

    nullable: bool = False


class Blob(NamedTuple):
    """Bytes. ``is_records``: they are record batches, may be given in pieces and are not copied."""

    nullable: bool = False
    is_records: bool = False


WireType: TypeAlias = Fixed | Text | Blob

BOOL: Final = Fixed("?")
INT8: Final = Fixed("b")
INT16: Final = Fixed("h")
INT32: Final = Fixed("i")
INT64: Final = Fixed("q")
UINT16: Final = Fixed("H")
UINT32: Final = Fixed("I")
FLOAT64: Final = Fixed("d")
UUID: Final = Fixed("16s")
STRING: Final = Text()
NULLABLE_STRING: Final = Text(nullable=True)
BYTES: Final = Blob()
NULLABLE_BYTES: Final = Blob(nullable=True)
RECORDS: Final = Blob(nullable=True, is_records=True)

_UVARINT_BITS = 32


def write_uvarint(buffer: bytearray, value: int) -> None:
    """Append an unsigned varint: seven bits per byte, the lowest first, with the top bit set on all but the last."""
    while value > 0x7F:
        buffer.append(value & 0x7F | 0x80)
        value >>= 7
    buffer.append(value)


def read_uvarint(data: bytes, position: int) -> tuple[int, int]:
    """The unsigned varint at a position, and the position after it.

    Raises ProtocolError if it has more than 32 bits, and IndexError if the data end in it.
    """
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= _UVARINT_BITS + 3:
            raise ProtocolError("an unsigned varint has more than five bytes")
    if value >> _UVARINT_BITS:
        raise ProtocolError("an unsigned varint has more than 32 bits")
    return value, position


@lru_cache(maxsize=1024)
def to_uuid(data: bytes) -> uuid.UUID:
    """The UUID of 16 bytes; cached, because the same few topics recur and creating one is slow."""
    return uuid.UUID(bytes=data)


def refuse_length(length: int, remaining: int) -> NoReturn:
    """Raise ProtocolError for a string or bytes longer than the remaining data."""
    raise ProtocolError(f"a field has an announced length of {length} bytes, but {remaining} are left")


def refuse_text(length: int) -> NoReturn:
    """Raise ProtocolError for a string that is longer than Kafka allows."""
    raise ProtocolError(f"a string has {length} bytes; Kafka allows {MAX_STRING}")


def refuse_count(count: int, remaining: int) -> NoReturn:
    """Raise ProtocolError for an array with more elements than the remaining data can hold."""
    raise ProtocolError(f"an array has an announced count of {count} elements, but {remaining} bytes are left")


def refuse_null(length: int, name: str) -> NoReturn:
    """Raise ProtocolError for a null that is not allowed, or for a negative length other than null's."""
    if length == -1:
        raise ProtocolError(f"{name} is null, which is not allowed in this version")
    raise ProtocolError(f"{name} has the invalid length {length}")
