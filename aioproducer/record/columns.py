"""Encodes tables as record batches: anything with the Arrow PyCapsule interface, read chunk by chunk.

::

    source = open_table(table)                          read the schema
    encoder = ColumnEncoder(source.fields, bind(source.fields, ColumnNames(value="payload")), ...)
    encoder.load(source.read())
    size, _ = encoder.check(limit)                      check that each row can be sent, and get the maximum size
    encoder.encode(size + BATCH_OVERHEAD, ...)          into one open batch per partition
    encoder.take_full()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from aioproducer._twin import use_native
from aioproducer.errors import InvalidRecord

from .column_binding import Binding, ColumnNames, Field, HeaderColumns, bind, header_sources

if TYPE_CHECKING or not use_native("aioproducer.record._columns"):
    from ._columns_pure import ArrowSource, ColumnEncoder
else:
    from ._columns import ArrowSource, ColumnEncoder

__all__ = [
    "ArrowSource",
    "Binding",
    "ColumnEncoder",
    "ColumnNames",
    "Field",
    "HeaderColumns",
    "TableSource",
    "bind",
    "check_table",
    "header_sources",
    "open_table",
]


class TableSource(Protocol):
    """An open table: its columns, and then its chunks."""

    @property
    def fields(self) -> tuple[Field, ...]: ...

    def read(self) -> Any: ...

    def close(self) -> None: ...


def open_table(table: object) -> TableSource:
    """Begin to read a table; takes as long as the table's library takes to export it.

    Raises `InvalidRecord` for an object without the Arrow PyCapsule interface or without columns. Exceptions of the
    table's own code are passed on unchanged.
    """
    check_table(table)
    return ArrowSource(table)


def check_table(table: object) -> None:
    """Raises `InvalidRecord` for an object without the Arrow PyCapsule interface."""
    if isinstance(table, type) or not (hasattr(table, "__arrow_c_stream__") or hasattr(table, "__arrow_c_array__")):
        collect = " It has a collect() method: send what that returns." if hasattr(table, "collect") else ""
        raise InvalidRecord(
            "The table must have the Arrow PyCapsule interface (pyarrow, polars, duckdb, pandas 2.2 or later, nanoarrow "
            f"...); {type(table).__module__}.{type(table).__qualname__} does not.{collect}"
        )
