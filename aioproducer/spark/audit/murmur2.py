"""Kafka's default partition for each key of an Arrow column: murmur2, a column at a time.

Written from the definition, deliberately without the producer's own murmur2: an audit that asked the producer where keys
belong would agree with its mistakes.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final, TypeAlias

import numpy as np

__all__ = ["home_partitions"]

_SEED: Final = np.uint32(0x9747B28C)
_M: Final = np.uint32(0x5BD1E995)
_POSITIVE: Final = np.uint32(0x7FFF_FFFF)

_Hashes: TypeAlias = "np.ndarray[Any, np.dtype[np.uint32]]"
_Offsets: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
_Bytes: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"


def home_partitions(keys: Any, partitions: int) -> Any:
    """The partition, 0 to ``partitions`` - 1, for each key of a binary pyarrow array; null for a null key."""
    pa: Any = import_module("pyarrow")
    offsets = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    data = keys.buffers()[2]
    content = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    hashes = _murmur2(content, offsets[:-1], np.diff(offsets)) if len(keys) else np.zeros(0, np.uint32)
    homes = ((hashes & _POSITIVE) % np.uint32(partitions)).astype(np.int32)
    return pa.array(homes, pa.int32(), mask=keys.is_null().to_numpy(zero_copy_only=False))


def _murmur2(data: _Bytes, starts: _Offsets, lengths: _Offsets) -> _Hashes:
    hashes = lengths.astype(np.uint32) ^ _SEED
    words = lengths >> 2
    for number in range(int(words.max())):
        rows = np.flatnonzero(words > number)
        at = starts[rows] + 4 * number
        word = _bytes_at(data, at)
        for byte in (1, 2, 3):
            word |= _bytes_at(data, at + byte) << np.uint32(8 * byte)
        word *= _M
        word ^= word >> np.uint32(24)
        hashes[rows] = hashes[rows] * _M ^ word * _M
    _mix_rest(hashes, data, starts + 4 * words, lengths & 3)
    hashes ^= hashes >> np.uint32(13)
    hashes *= _M
    hashes ^= hashes >> np.uint32(15)
    return hashes


def _mix_rest(hashes: _Hashes, data: _Bytes, at: _Offsets, rest: _Offsets) -> None:
    """The one to three bytes after the last whole word."""
    for byte in (2, 1, 0):
        rows = np.flatnonzero(rest > byte)
        hashes[rows] ^= _bytes_at(data, at[rows] + byte) << np.uint32(8 * byte)
    rows = np.flatnonzero(rest)
    hashes[rows] *= _M


def _bytes_at(data: _Bytes, at: _Offsets) -> _Hashes:
    return data[at].astype(np.uint32)
