"""What identifies the contents of a batch: how many rows and bytes, and a digest of all rows.

It is the same whenever Spark runs the same rows again, in whatever order, tasks and Arrow batches. What a row is sent as
belongs to it - topic, key, value, headers and timestamp -, and where it is sent does not: a partition may depend on how many
there are, and on which rows without a key came before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Self

from aioproducer.spark.exactly_once.row_hashes import sum_of_hashes

__all__ = ["Fingerprint"]

_ALL_BITS: Final = (1 << 64) - 1

#: The columns of a record that count, in the order in which they are hashed.
_COLUMNS: Final = ("key", "value", "headers", "timestamp")


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Of so many rows, with so many bytes of keys and values; ``digest`` is a sum of hashes (see `row_hashes`)."""

    rows: int = 0
    size: int = 0
    digest: int = 0

    @classmethod
    def of_table(cls, topic: str, table: Any) -> Self:
        """Of the rows of an Arrow table that go to this topic, with the columns of records under their names."""
        names = table.schema.names
        columns = [table.column(name) for name in _COLUMNS if name in names]
        seed = sum_of_hashes([_array([topic])], 1, 0)
        size = sum(_bytes_in(table.column(name)) for name in ("key", "value") if name in names)
        return cls(table.num_rows, size, sum_of_hashes(columns, table.num_rows, seed))

    @classmethod
    def together(cls, parts: Iterable[Fingerprint]) -> Self:
        """Of the rows of all parts."""
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
