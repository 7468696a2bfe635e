"""Encodes each row's columns as one JSON object, the value of a record."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from importlib import import_module
from typing import Any, Final, NamedTuple

from aioproducer.errors import ConfigError, InvalidRecord

from ._columns_pure import ArrowSource as PyArrowSource
from ._columns_pure import field_of
from .column_binding import ColumnNames, Field, find, type_name
from .columns import ArrowSource, TableSource, check_table

__all__ = ["JsonTable", "JsonValues", "fields_of"]

#: Values encoded at a time: two or three milliseconds of work.
_CELLS: Final = 8192

_JSON: Final = Field("", "Z")

#: pandas' name for the unnamed index of a filtered or sorted table, which is not data.
_PANDAS_INDEX: Final = re.compile(r"__index_level_\d+__")

#: Types that JSON cannot represent, by the prefix of Arrow's format.
_NO_JSON: Final = ("z", "Z", "vz", "w:", "tD", "ti", "+u")


class JsonTable:
    """An open table with one more column at the end: the values in JSON.

    Columns become the members of an object, in order; nulls become null, as do NaN and infinite floats; decimals, dates and
    times become text (RFC 3339, to the microsecond).
    """

    def __init__(self, table: object, names: ColumnNames, columns: Iterable[str] | None) -> None:
        """``columns`` None: all that ``names`` does not use, except an unnamed pandas index."""
        check_table(table)
        _dumps()  # reports missing libraries before the table is opened
        self._source: TableSource = PyArrowSource(table)
        try:
            self._values = JsonValues(self._source.fields, names, columns)
        except BaseException:
            self._source.close()
            raise
        self.fields = (*self._source.fields, _JSON)

    @property
    def value(self) -> int:
        """The number of the column with the values."""
        return len(self.fields) - 1

    def read(self) -> Any:
        """The next chunk of the table, unchanged; `parts` adds the values."""
        return self._source.read()

    def close(self) -> None:
        """Release the table."""
        self._source.close()

    def parts(self, chunk: Any, first_row: int) -> Iterator[Any]:
        """The chunk in small parts, with the values; each takes some milliseconds to create.

        Raises `InvalidRecord` for a row that JSON cannot represent; ``first_row`` is the chunk's first row in the table.
        """
        step = self._values.step
        for at in range(0, chunk.num_rows, step):
            part = chunk.slice(at, step)
            yield _as_chunk(part, self._values.of(part, first_row + at))


class JsonValues:
    """Encodes the rows of pyarrow record batches as JSON objects of some columns."""

    def __init__(self, fields: Sequence[Field], names: ColumnNames, columns: Iterable[str] | None) -> None:
        """``fields`` are the batches' columns; ``names`` and ``columns`` are as for `JsonTable`.

        Raises `InvalidRecord` for columns that JSON cannot represent, and `ConfigError` if a library is missing.
        """
        self._dumps = _dumps()
        self._columns = _chosen(fields, names, columns)
        #: Rows to encode at a time, so that other tasks can run after some milliseconds.
        self.step: Final = max(1, _CELLS // max(1, len(self._columns)))

    def of(self, part: Any, first_row: int) -> list[bytes]:
        """The value of each row. Raises `InvalidRecord` for one that JSON cannot represent, counted from ``first_row``."""
        names = [column.name for column in self._columns]
        lists = self._lists(part, first_row)
        dumps = self._dumps
        rows: Iterator[tuple[Any, ...]] = zip(*lists, strict=True) if lists else iter([()] * part.num_rows)
        found: list[bytes] = []
        try:
            found.extend(dumps(dict(zip(names, values, strict=True))) for values in rows)
        except (TypeError, ValueError) as error:
            raise InvalidRecord(
                f"Row {first_row + len(found)} of the table cannot be written as JSON: {error}"
            ) from error
        return found

    def _lists(self, part: Any, first_row: int) -> list[list[Any]]:
        """The columns as Python values."""
        try:
            return [_list_of(part.column(column.number)) for column in self._columns]
        except Exception:  # pyarrow raises various types, and does not say where
            for at in range(part.num_rows):
                for column in self._columns:
                    _check_cell(part.column(column.number).slice(at, 1), first_row + at, column.name)
            raise


def fields_of(batch: Any) -> tuple[Field, ...]:
    """The columns of a pyarrow record batch."""
    return tuple(field_of(field) for field in batch.schema)


class _Column(NamedTuple):
    name: str
    number: int


def _chosen(fields: Sequence[Field], names: ColumnNames, columns: Iterable[str] | None) -> list[_Column]:
    if columns is None:
        used = names.used
        chosen = [
            _Column(field.name, index)
            for index, field in enumerate(fields)
            if field.name not in used and not _PANDAS_INDEX.fullmatch(field.name)
        ]
        if len({column.name for column in chosen}) < len(chosen):
            raise InvalidRecord(
                "Some columns of the table have the same name, which is not possible in a JSON object; rename them."
            )
    else:
        found = [_Column(name, find(fields, name, "value")) for name in columns]
        chosen = list(dict.fromkeys(found))
    for column in chosen:
        refused = _without_json(fields[column.number])
        if refused is not None:
            raise InvalidRecord(
                f"value_format='json': column {column.name!r} is {type_name(fields[column.number])}"
                f"{'' if refused is fields[column.number] else ' with ' + type_name(refused)}, which JSON cannot represent. "
                "Cast it, or leave it out: value=[...] selects the columns to write."
            )
    return chosen


def _without_json(field: Field) -> Field | None:
    """The part of this column that JSON cannot represent, if any."""
    if field.dictionary is not None:
        return _without_json(field.dictionary)
    if field.format.startswith(_NO_JSON):
        return field
    if field.format == "+m" and field.children[0].children[0].format not in {"u", "U", "vu"}:
        return field.children[0].children[0]
    return next((found for child in field.children if (found := _without_json(child)) is not None), None)


def _check_cell(cell: Any, row: int, column: str) -> None:
    try:
        _list_of(cell)
    except Exception as error:  # see above
        reason = error.args[0] if isinstance(error, KeyError) else error  # str(KeyError) would add quotes
        raise InvalidRecord(
            f"Row {row} of the table cannot be written as JSON: column {column!r} ({cell.type}): "
            f"{str(reason).rstrip('.')}. Fix it, or leave the column out: value=[...] selects the columns to write."
        ) from error


def _list_of(array: Any) -> list[Any]:
    array = getattr(array, "storage", array)
    kind = _to_microseconds(array.type)
    if kind != array.type:
        array = array.cast(kind, safe=False)
    values: list[Any] = array.to_pylist(maps_as_pydicts="strict") if "map<" in str(kind) else array.to_pylist()
    return values


def _to_microseconds(kind: Any) -> Any:
    """The type with microseconds in place of nanoseconds, which Python's own times do not support."""
    pyarrow = import_module("pyarrow")
    types = pyarrow.types
    if types.is_timestamp(kind):
        return pyarrow.timestamp("us", kind.tz) if kind.unit == "ns" else kind
    if types.is_time64(kind):
        return pyarrow.time64("us")
    if types.is_dictionary(kind):
        inner = _to_microseconds(kind.value_type)
        return kind if inner == kind.value_type else inner
    if types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return pyarrow.struct([field.with_type(_to_microseconds(field.type)) for field in fields])
    if types.is_map(kind):
        return pyarrow.map_(
            kind.key_field, kind.item_field.with_type(_to_microseconds(kind.item_type)), kind.keys_sorted
        )
    is_large = types.is_large_list(kind)
    if not (is_large or types.is_list(kind) or types.is_fixed_size_list(kind)):
        return kind  # list views, among others: pyarrow 26 loses items when it casts one
    items = kind.value_field.with_type(_to_microseconds(kind.value_type))
    if types.is_fixed_size_list(kind):
        return pyarrow.list_(items, kind.list_size)
    return pyarrow.large_list(items) if is_large else pyarrow.list_(items)


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


def _unusual(value: Any) -> object:
    """Converts types that orjson does not support."""
    if isinstance(value, Decimal):
        return format(value, "f")  # as in the table, without an exponent
    if isinstance(value, datetime):  # pandas' own type, for nanoseconds within a list view
        return datetime.fromisoformat(value.isoformat(timespec="microseconds"))
    raise TypeError(f"JSON cannot represent {type(value).__name__}")
