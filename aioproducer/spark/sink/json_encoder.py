"""Encodes rows of Arrow batches as JSON objects, one value per row."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from aioproducer.record.columns import ColumnNames
from aioproducer.record.json_columns import JsonValues, fields_of

__all__ = ["JsonEncoder"]


class JsonEncoder:
    """Encodes other columns into the column ``value``; created in the task."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = list(columns)
        self._pa: Any = import_module("pyarrow")
        self._values: JsonValues | None = None
        self._row = 0

    def with_value(self, batch: Any) -> Any:
        """The batch with the column ``value`` in place of its source columns.

        Raises `InvalidRecord` for a row that JSON cannot represent, and `ConfigError` if orjson is not installed.
        """
        made_of = batch.select(self._columns)
        if self._values is None:
            self._values = JsonValues(fields_of(made_of), ColumnNames(), self._columns)
        step = self._values.step
        values: list[bytes] = []
        for at in range(0, made_of.num_rows, step):
            values += self._values.of(made_of.slice(at, step), self._row + at)
        self._row += made_of.num_rows
        kept = [name for name in batch.schema.names if name not in self._columns]
        value = self._pa.array(values, self._pa.binary())
        return self._pa.record_batch([*(batch.column(name) for name in kept), value], [*kept, "value"])
