"""The primitive types of Kafka's protocol, and the reading and writing of those that ``struct`` does not know.

A wire type is a value that describes bytes; ``message`` puts it into annotations and ``compiler`` turns it into code.
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

#: What Kafka sends for "no id"; also the id of every topic on brokers before 2.8.
ZERO_UUID: Final = uuid.UUID(int=0)

#: The longest string in bytes: Kafka's own readers refuse more, in compact strings too.
MAX_STRING: Final = 0x7FFF

#: What a ``records`` field takes: the bytes, or pieces that stand for them in order and are never copied together.
RecordsInput: TypeAlias = BytesLike | Sequence[BytesLike]


class Fixed(NamedTuple):
    """A type of fixed length; ``code`` is its letter in the language of ``struct``."""

    code: str

    @property
    def size(self) -> int:
        """Its length in bytes."""
        return struct.calcsize(f">{self.code}")


class Text(NamedTuple):
    """A UTF-8 string of at most ``MAX_STRING`` bytes."""

    nullable: bool = False


class Blob(NamedTuple):
    """Bytes. ``is_records``: they are record batches, may come in pieces and are not copied."""

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
    """Append an unsigned varint: seven bits a byte, the lowest first, the top bit set on all but the last."""
    while value > 0x7F:
        buffer.append(value & 0x7F | 0x80)
        value >>= 7
    buffer.append(value)


def read_uvarint(data: bytes, position: int) -> tuple[int, int]:
    """The unsigned varint at a position, and the position behind it.

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
    """The UUID of 16 bytes; cached, because the same few topics come again and again and making one is slow."""
    return uuid.UUID(bytes=data)


def refuse_length(length: int, remaining: int) -> NoReturn:
    """Say that a string or bytes cannot be as long as they claim to be."""
    raise ProtocolError(f"a field says that it is {length} bytes long, and {remaining} are left")


def refuse_text(length: int) -> NoReturn:
    """Say that a string is longer than Kafka allows."""
    raise ProtocolError(f"a string has {length} bytes; Kafka allows {MAX_STRING}")


def refuse_count(count: int, remaining: int) -> NoReturn:
    """Say that an array cannot have as many elements as it claims to have."""
    raise ProtocolError(f"an array says that it has {count} elements, and {remaining} bytes are left")


def refuse_null(length: int, name: str) -> NoReturn:
    """Say that a field cannot be null, or that its length is negative and not null either."""
    if length == -1:
        raise ProtocolError(f"{name} is null, which it must not be in this version")
    raise ProtocolError(f"{name} says that it is {length} long")
