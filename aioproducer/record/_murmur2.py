"""The hash that all Kafka clients use to choose a key's partition."""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from aioproducer.types import BytesLike

__all__ = ["murmur2", "partition_for_key", "partitions_for_keys"]

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFF_FFFF
_MOST_PARTITIONS: Final = 2**31 - 1


def murmur2(data: BytesLike) -> int:
    """The 32-bit murmur2 of ``data`` as Java's ``Utils.murmur2`` returns it: a signed number, -2**31 to 2**31 - 1."""
    h = _murmur2(data)
    return h - (h >> 31 << 32)


def partition_for_key(key: BytesLike, partitions: int) -> int:
    """The partition, 0 to ``partitions`` - 1, that Kafka's default partitioner chooses for this serialized key."""
    return (_murmur2(key) & 0x7FFF_FFFF) % partitions


def partitions_for_keys(ends: Buffer, data: Buffer, partitions: int) -> bytes:
    """`partition_for_key` for many keys in one buffer, as bytes with one 32-bit number per key.

    ``ends`` are native numbers of 32 or 64 bits, one more than there are keys: as in Arrow's text and binary arrays, key
    n is in ``data`` from the nth end to the next. Raises ValueError for ends that do not fit ``data``, and for an invalid
    number of ``partitions``.
    """
    if not 0 < partitions <= _MOST_PARTITIONS:
        raise ValueError(f"invalid partitions={partitions}: must be 1 to 2**31 - 1.")
    keys, bounds = memoryview(data).cast("B") if len(memoryview(data)) else memoryview(b""), memoryview(ends)
    if bounds.itemsize not in (4, 8):
        raise ValueError(f"invalid ends: their items have {bounds.itemsize} bytes; must be 4 or 8.")
    numbers = bounds.cast("B").cast("i" if bounds.itemsize == 4 else "q").tolist() if len(bounds) else []
    if not all(begin <= end for begin, end in pairwise(numbers)) or (
        len(numbers) > 1 and (numbers[0] < 0 or numbers[-1] > len(keys))
    ):
        raise ValueError("invalid ends: must not decrease, or lie outside the data.")
    chosen = [partition_for_key(keys[begin:end], partitions) for begin, end in pairwise(numbers)]
    return struct.pack(f"{len(chosen)}i", *chosen)


#: Reads the whole words of a key, by their number; struct's own cache does not hold the longer formats.
_WORDS: Final = [struct.Struct(f"<{count}I").unpack_from for count in range(64)]


def _murmur2(data: BytesLike) -> int:
    if type(data) is not bytes:
        data = memoryview(data).tobytes()
    m, mask = _M, _MASK
    length = len(data)
    words = length >> 2
    h = _SEED ^ length
    for k in _WORDS[words](data) if words < 64 else struct.unpack_from(f"<{words}I", data):
        k = k * m & mask
        h = (h * m ^ (k ^ k >> 24) * m) & mask  # the lower 32 bits do not depend on higher ones
    rest = length & 3
    if rest:
        h ^= data[length - rest]
        if rest > 1:
            h ^= data[length - rest + 1] << 8
        if rest > 2:
            h ^= data[-1] << 16
        h = h * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15
