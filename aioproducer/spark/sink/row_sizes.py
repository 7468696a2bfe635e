"""Computes the size of a table's rows as records: the maximum, from the lengths in the Arrow columns, and exactly."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final

from aioproducer.record import (
    BATCH_OVERHEAD,
    Codec,
    EncodedBatch,
    RecordBatchBuilder,
    encode_batch,
    record_size_upper_bound,
    usable,
)
from aioproducer.spark.options.sink import SinkOptions
from aioproducer.spark.sink.columns import SinkColumns

__all__ = ["RowSizes"]

_BARE: Final = record_size_upper_bound(None, None)
_PER_HEADER: Final = record_size_upper_bound(None, None, [("", b"")]) - _BARE


class RowSizes:
    """The sizes of rows with these columns, each in its own batch."""

    def __init__(self, columns: SinkColumns, options: SinkOptions) -> None:
        self._columns = columns
        self._config = options.config
        self._headers = options.headers
        self._overhead = BATCH_OVERHEAD + record_size_upper_bound(None, None, options.headers)

    def at_most(self, table: Any) -> Any:
        """The maximum bytes of each row without compression, counted as the producer does."""
        compute = import_module("pyarrow.compute")
        sizes = compute.add(_lengths(table.column("value")), self._overhead)
        if self._columns.has("key"):
            sizes = compute.add(sizes, _lengths(table.column("key")))
        return compute.add(sizes, _header_sizes(table.column("headers"))) if self._columns.has("headers") else sizes

    def may_become(self, sizes: Any, topic: str) -> Any:
        """The maximum bytes of rows of these sizes, compressed or not: incompressible data become larger."""
        if self._config.compression_of(topic) == "none":
            return sizes
        compute = import_module("pyarrow.compute")
        # Snappy adds at most a sixth, and 36 bytes per block of 32 KiB; the others stay far below that.
        return compute.add(compute.add(sizes, compute.divide(sizes, 5)), 128)

    def encoded(self, table: Any, row: int, topic: str) -> EncodedBatch:
        """One row as it is sent to the topic, with its exact size."""
        key = _bytes(table, "key", row) if self._columns.has("key") else None
        headers = _pairs(table.column("headers")[row].as_py()) if self._columns.has("headers") else ()
        builder = RecordBatchBuilder()
        builder.append(
            0, key, _bytes(table, "value", row), [*headers, *self._headers]
        )  # the timestamp does not change the size
        codecs = usable([Codec[name.upper()] for name in self._config.compressions_of(topic)])
        return encode_batch(builder, codecs[0], self._config.compression_level)


def _bytes(table: Any, column: str, row: int) -> bytes | None:
    return _encoded(table.column(column)[row].as_py())


def _encoded(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content


def _pairs(headers: Any) -> Iterator[tuple[str, bytes | None]]:
    """The names and values of a list of structs or of a map; the encoder refuses items without a name."""
    for header in headers or ():
        pair: Any = header.values() if hasattr(header, "values") else header
        name, content = pair or ("", None)
        yield name or "", _encoded(content)


def _lengths(column: Any) -> Any:
    """The lengths of strings or binaries in bytes; 0 for null."""
    compute = import_module("pyarrow.compute")
    return compute.fill_null(compute.binary_length(column).cast("int64"), 0)


def _header_sizes(column: Any) -> Any:
    """The bytes of each row's headers; ``column`` has lists of names and values, or maps."""
    pa, compute = import_module("pyarrow"), import_module("pyarrow.compute")
    if pa.types.is_map(column.type):
        pairs = [pa.field("key", column.type.key_type, nullable=False), pa.field("value", column.type.item_type)]
        column = column.cast(pa.list_(pa.struct(pairs)))
    headers = column.flatten()
    sizes = compute.add(compute.add(_lengths(headers.field(0)), _lengths(headers.field(1))), _PER_HEADER)
    total = pa.concat_arrays([pa.array([0], pa.int64()), compute.cumulative_sum(sizes)])
    counts = compute.fill_null(compute.list_value_length(column), 0).cast("int64")
    ends = compute.cumulative_sum(counts)
    return compute.subtract(total.take(ends), total.take(compute.subtract(ends, counts)))
