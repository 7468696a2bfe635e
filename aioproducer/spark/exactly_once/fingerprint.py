"""Identifies the contents of a batch: the number of rows and bytes, and a digest of all rows.

It is the same whenever Spark repeats the same rows, in any order, tasks and Arrow batches. It covers topic, key, value,
headers and timestamp of each row, but not the partition, which may depend on the number of partitions and on earlier
rows without a key.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Self

from aioproducer.spark.exactly_once.row_hashes import sum_of_hashes

__all__ = ["Fingerprint"]

_ALL_BITS: Final = (1 << 64) - 1

#: The columns of a record that are hashed, in this order.
_COLUMNS: Final = ("key", "value", "headers", "timestamp")


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The number of rows, the bytes of their keys and values, and ``digest``, a sum of hashes (see `row_hashes`)."""

    rows: int = 0
    size: int = 0
    digest: int = 0

    @classmethod
    def of_table(cls, topic: str, table: Any) -> Self:
        """The fingerprint of an Arrow table whose rows go to this topic, with a record's columns under their names."""
        names = table.schema.names
        columns = [table.column(name) for name in _COLUMNS if name in names]
        seed = sum_of_hashes([_array([topic])], 1, 0)
        size = sum(_bytes_in(table.column(name)) for name in ("key", "value") if name in names)
        return cls(table.num_rows, size, sum_of_hashes(columns, table.num_rows, seed))

    @classmethod
    def together(cls, parts: Iterable[Fingerprint]) -> Self:
        """The fingerprint of all parts together."""
        rows = size = digest = 0
        for part in parts:
            rows, size, digest = rows + part.rows, size + part.size, digest + part.digest
        return cls(rows, size, digest & _ALL_BITS)

    def __str__(self) -> str:
        return f"{self.rows:,} rows, {self.size:,} bytes, digest {self.digest:016x}"


def _array(values: list[str]) -> Any:
    return import_module("pyarrow").array(values)


def _bytes_in(column: Any) -> int:
    compute = import_module("pyarrow.compute")
    return int(compute.sum(compute.binary_length(column)).as_py() or 0)
