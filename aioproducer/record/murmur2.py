"""The hash by which Kafka's clients choose the partition of a key, so that all of them choose the same."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aioproducer.types import BytesLike

__all__ = ["murmur2", "partition_for_key"]

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFF_FFFF


def murmur2(data: BytesLike) -> int:
    """The 32-bit murmur2 of ``data`` as Java's ``Utils.murmur2`` gives it: a signed number, -2**31 to 2**31 - 1."""
    h = _murmur2(data)
    return h - (h >> 31 << 32)


def partition_for_key(key: BytesLike, partitions: int) -> int:
    """The partition, 0 to ``partitions`` - 1, that Kafka's default partitioner gives to this serialized key."""
    return (_murmur2(key) & 0x7FFF_FFFF) % partitions


def _murmur2(data: BytesLike) -> int:
    if type(data) is not bytes:
        data = memoryview(data).tobytes()
    length = len(data)
    h = _SEED ^ length
    for k in struct.unpack_from(f"<{length >> 2}I", data):
        k = k * _M & _MASK
        h = h * _M & _MASK ^ (k ^ k >> 24) * _M & _MASK
    if length & 3:
        h = (h ^ int.from_bytes(data[length & ~3 :], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15
