"""Makes record batches of tables: anything with the Arrow PyCapsule interface, read chunk by chunk.

::

    source = open_table(table)                          what are its columns?
    encoder = ColumnEncoder(source.fields, bind(source.fields, ColumnNames(value="payload")), ...)
    encoder.load(source.read())
    size, _ = encoder.check(limit)                      is every row of this slice fit to be sent, and how large may it be?
    encoder.encode(size + BATCH_OVERHEAD, ...)          into one open batch for each partition
    encoder.take_full()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from aioproducer._twin import use_native
from aioproducer.errors import InvalidRecord

from .column_binding import Binding, ColumnNames, Field, HeaderColumns, bind

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
    "open_table",
]


class TableSource(Protocol):
    """A table that was opened: its columns, and then its chunks."""

    @property
    def fields(self) -> tuple[Field, ...]: ...

    def read(self) -> Any: ...

    def close(self) -> None: ...


def open_table(table: object) -> TableSource:
    """Begin to read a table; takes the time that whoever made it takes to hand it out.

    Raises `InvalidRecord` for what has no Arrow PyCapsule interface or no columns. Whatever the table's own code raises
    comes out as it is.
    """
    check_table(table)
    return ArrowSource(table)


def check_table(table: object) -> None:
    """Raises `InvalidRecord` for what has no Arrow PyCapsule interface."""
    if isinstance(table, type) or not (hasattr(table, "__arrow_c_stream__") or hasattr(table, "__arrow_c_array__")):
        collect = " It has a collect() method: send what that returns." if hasattr(table, "collect") else ""
        raise InvalidRecord(
            "A table with the Arrow PyCapsule interface is expected (pyarrow, polars, duckdb, pandas 2.2 or later, "
            f"nanoarrow ...), not {type(table).__module__}.{type(table).__qualname__}.{collect}"
        )
