"""Row hashes in plain Python, with the library xxhash; this is the reference implementation."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any, Final, cast

from aioproducer.errors import ConfigError

__all__ = ["sum_of_hashes"]

_ALL_BITS: Final = (1 << 64) - 1
_number = struct.Struct("<q").pack


def sum_of_hashes(columns: Sequence[Any], rows: int, seed: int) -> int:
    """The sum of the hashes of all rows, modulo 2**64.

    ``columns`` are pyarrow arrays of ``rows`` rows each: binary, text, numbers or times of 64 bits, or lists of pairs of
    text and bytes. ``seed`` is the initial hash of each row. Raises `ConfigError` if xxhash is not installed.
    """
    xxh64 = _xxhash()
    hashes: Iterable[int] = [seed] * rows
    for column in columns:
        hashes = _chained(xxh64, hashes, column)
    return sum(hashes) & _ALL_BITS


def _chained(xxh64: Any, hashes: Iterable[int], column: Any) -> Iterator[int]:
    pa = import_module("pyarrow")
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_map(kind) or pa.types.is_large_list(kind):
        return (_of_pairs(xxh64, seed, pairs) for seed, pairs in zip(hashes, column.to_pylist(), strict=True))
    if kind.id in _numbers(pa):
        values = (None if each is None else _number(each) for each in column.view(pa.int64()).to_pylist())
    else:
        values = iter(column.cast(pa.large_binary()).to_pylist())
    return (_of_bytes(xxh64, seed, value) for seed, value in zip(hashes, values, strict=True))


def _numbers(pa: Any) -> frozenset[int]:
    return frozenset(kind.id for kind in (pa.int64(), pa.float64(), pa.timestamp("us")))


def _of_bytes(xxh64: Any, seed: int, value: bytes | None) -> int:
    found: int = xxh64(b"", seed ^ _ALL_BITS) if value is None else xxh64(value, seed)
    return found


def _of_pairs(xxh64: Any, seed: int, pairs: Sequence[Any] | None) -> int:
    if pairs is None:
        return _of_bytes(xxh64, seed, None)
    for pair in pairs:
        for each in _fields(pair):
            seed = _of_bytes(xxh64, seed, each.encode() if isinstance(each, str) else each)
    return _of_bytes(xxh64, seed, _number(len(pairs)))


def _fields(pair: Any) -> Sequence[Any]:
    """The items of a map are tuples, those of a list of structs dictionaries, or None for a null struct."""
    if isinstance(pair, dict):
        return list(cast("dict[str, Any]", pair).values())
    return pair or (None, None)


def _xxhash() -> Any:
    try:
        return import_module("xxhash").xxh64_intdigest
    except ImportError as error:
        raise ConfigError(
            "Exactly-once writes in plain Python need the library xxhash, which is not installed: "
            "pip install 'aioproducer[spark]'."
        ) from error
