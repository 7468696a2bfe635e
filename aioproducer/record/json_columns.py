"""Makes one JSON object of each row's columns, as the values of records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from importlib import import_module
from typing import Any, Final, NamedTuple

from aioproducer.errors import ConfigError, InvalidRecord

from ._columns_pure import ArrowSource as PyArrowSource
from .column_binding import ColumnNames, Field, find, type_name
from .columns import ArrowSource, TableSource, check_table

__all__ = ["JsonTable"]

#: How many values are made at a time: two or three milliseconds' work.
_CELLS: Final = 8192

_JSON: Final = Field("", "Z")

#: What JSON has no form for, by the beginning of Arrow's format.
_NO_JSON: Final = ("z", "Z", "vz", "w:", "tD", "ti", "+u")


class JsonTable:
    """A table that was opened, with one more column at the end: the values in JSON.

    Columns become the members of an object, in order; a null becomes null, as does a float that is no number; a decimal
    becomes text, and so do dates and times (RFC 3339, to the microsecond).
    """

    def __init__(self, table: object, names: ColumnNames, columns: Iterable[str] | None) -> None:
        """``columns`` None: all that ``names`` does not use."""
        check_table(table)
        self._dumps = _dumps()
        self._source: TableSource = PyArrowSource(table)
        try:
            self._columns = _chosen(self._source.fields, names, columns)
        except BaseException:
            self._source.close()
            raise
        self.fields = (*self._source.fields, _JSON)

    @property
    def value(self) -> int:
        """The number of the column with the values."""
        return len(self.fields) - 1

    def read(self) -> Any:
        """The next chunk of the table as it is; `parts` adds the values."""
        return self._source.read()

    def close(self) -> None:
        """Give the table back."""
        self._source.close()

    def parts(self, chunk: Any, first_row: int) -> Iterator[Any]:
        """The chunk in small parts, with the values; each takes some milliseconds to make.

        Raises `InvalidRecord` for a row that JSON cannot hold; ``first_row`` is the chunk's first in the table.
        """
        step = max(1, _CELLS // max(1, len(self._columns)))
        for at in range(0, chunk.num_rows, step):
            part = chunk.slice(at, step)
            yield _as_chunk(part, list(self._values(part, first_row + at)))

    def _values(self, part: Any, first_row: int) -> Iterator[bytes]:
        names = [column.name for column in self._columns]
        lists = [_list_of(part.column(column.number)) for column in self._columns]
        dumps = self._dumps
        rows: Iterator[tuple[Any, ...]] = zip(*lists, strict=True) if lists else iter([()] * part.num_rows)
        row = first_row
        try:
            for values in rows:
                yield dumps(dict(zip(names, values, strict=True)))
                row += 1
        except (TypeError, ValueError) as error:
            raise InvalidRecord(f"Row {row} of the table cannot be written as JSON: {error}") from error


class _Column(NamedTuple):
    name: str
    number: int


def _chosen(fields: Sequence[Field], names: ColumnNames, columns: Iterable[str] | None) -> list[_Column]:
    if columns is None:
        used = names.used
        chosen = [_Column(field.name, index) for index, field in enumerate(fields) if field.name not in used]
        if len({column.name for column in chosen}) < len(chosen):
            raise InvalidRecord(
                "Some columns of the table have the same name, which a JSON object cannot hold; rename them."
            )
    else:
        found = [_Column(name, find(fields, name, "value")) for name in columns]
        chosen = list(dict.fromkeys(found))
    for column in chosen:
        refused = _without_json(fields[column.number])
        if refused is not None:
            raise InvalidRecord(
                f"value_format='json': column {column.name!r} is {type_name(fields[column.number])}"
                f"{'' if refused is fields[column.number] else ' with ' + type_name(refused)}, which JSON has no form for. "
                "Cast it, or leave it out: value=[...] names the columns to write."
            )
    return chosen


def _without_json(field: Field) -> Field | None:
    """What in this column JSON has no form for, if anything."""
    if field.dictionary is not None:
        return _without_json(field.dictionary)
    if field.format.startswith(_NO_JSON):
        return field
    if field.format == "+m" and field.children[0].children[0].format not in {"u", "U", "vu"}:
        return field.children[0].children[0]
    return next((found for child in field.children if (found := _without_json(child)) is not None), None)


def _list_of(array: Any) -> list[Any]:
    array = getattr(array, "storage", array)
    kind = str(array.type)
    if kind.startswith("timestamp[ns"):  # Python's datetime ends with microseconds
        array = array.cast(import_module("pyarrow").timestamp("us", array.type.tz), safe=False)
    elif kind == "time64[ns]":
        array = array.cast("time64[us]", safe=False)
    values: list[Any] = array.to_pylist(maps_as_pydicts="strict") if "map<" in kind else array.to_pylist()
    return values


def _as_chunk(part: Any, values: list[bytes]) -> Any:
    pyarrow = import_module("pyarrow")
    columns = [*part.columns, pyarrow.array(values, pyarrow.large_binary())]
    names = [*part.schema.names, _JSON.name]
    return ArrowSource(pyarrow.RecordBatch.from_arrays(columns, names)).read()


def _dumps() -> Callable[[Any], bytes]:
    try:
        import_module("pyarrow")
        import orjson
    except ImportError as error:
        raise ConfigError(
            f"value_format='json' needs pyarrow and orjson, and {error.name} is missing: pip install 'aioproducer[arrow]'."
        ) from error

    def dumps(value: Any) -> bytes:
        return orjson.dumps(value, default=_unusual)

    return dumps


def _unusual(value: Any) -> str:
    """What orjson leaves to its caller."""
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, datetime):  # pandas' own kind, within a list
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no form in JSON")
