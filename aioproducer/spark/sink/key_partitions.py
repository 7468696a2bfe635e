"""Kafka's partitions for a whole Arrow column of keys."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from aioproducer.record import partitions_for_keys

__all__ = ["partitions_of_keys"]


def partitions_of_keys(keys: Any, count: int) -> Any:
    """The partition, 0 to ``count`` - 1, of each key of a pyarrow array, as Kafka's default partitioner chooses it.

    ``keys`` are text or bytes, in any of Arrow's layouts. Returns an int32 array; null stays null.
    """
    pa: Any = import_module("pyarrow")
    is_wide = _is_wide(pa, keys.type)
    # Text is reinterpreted as bytes without a copy; dictionaries and views are expanded.
    plain = keys.cast(pa.large_binary() if is_wide else pa.binary())
    _, ends, data = plain.buffers()
    rows = len(plain)
    if not rows:
        return pa.array([], pa.int32())
    size = 8 if is_wide else 4
    raw = memoryview(ends).cast("B")[size * plain.offset :][: size * (rows + 1)]
    bounds = raw.cast("q") if is_wide else raw.cast("i")
    chosen = pa.Array.from_buffers(
        pa.int32(), rows, [None, pa.py_buffer(partitions_for_keys(bounds, b"" if data is None else data, count))]
    )
    if not plain.null_count:
        return chosen
    return import_module("pyarrow.compute").if_else(plain.is_valid(), chosen, pa.scalar(None, pa.int32()))


def _is_wide(pa: Any, kind: Any) -> bool:
    """Whether the type allows keys of more than 2 GiB in total."""
    if pa.types.is_dictionary(kind):
        return True
    return not (pa.types.is_string(kind) or pa.types.is_binary(kind))
