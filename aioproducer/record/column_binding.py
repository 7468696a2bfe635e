"""Maps columns of a table to parts of a record, checked against the table's schema before anything is read.

Also creates the errors for rows, so that the native encoder and its twin cannot differ there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, NamedTuple, TypeAlias, cast

from aioproducer.errors import InvalidRecord, RecordTooLarge

__all__ = ["Binding", "ColumnNames", "Field", "HeaderColumns", "HeaderPart", "bind", "header_sources", "type_name"]

#: The argument ``headers=``: for each header its column, or the bytes that are the same in every record; or the name of a
#: column with lists of headers; or several of these.
HeaderColumns: TypeAlias = "str | Mapping[str, str | bytes] | Sequence[str | Mapping[str, str | bytes]]"

NO_COLUMN: Final = -1


class Field(NamedTuple):
    """A column's name and type; ``format`` is the format string of the Arrow C data interface.

    With a ``dictionary``, ``format`` is the type of the indexes into it.
    """

    name: str
    format: str
    children: tuple[Field, ...] = ()
    dictionary: Field | None = None


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """The caller's columns for the parts of a record; ``partition`` may be one number for all records."""

    key: str | None = None
    value: str | None = None
    timestamp: str | None = None
    partition: str | int | None = None
    headers: HeaderColumns | None = None

    @property
    def used(self) -> set[str]:
        """The columns that are not the value."""
        named = {name for name in (self.key, self.timestamp, self.partition) if isinstance(name, str)}
        for part in header_sources(self.headers):
            named.update([part] if isinstance(part, str) else [of for of in part.values() if isinstance(of, str)])
        return named


class HeaderPart(NamedTuple):
    """Headers to write: one called ``name`` from a column or a constant; without a name, a column of lists."""

    name: bytes | None
    column: int = NO_COLUMN
    constant: bytes | None = None


class Binding(NamedTuple):
    """The columns by number, -1 if there is none.

    A timestamp in milliseconds is the column's number times ``timestamp_factor``, or divided by ``timestamp_divisor``.
    """

    value: int
    key: int = NO_COLUMN
    timestamp: int = NO_COLUMN
    timestamp_factor: int = 1
    timestamp_divisor: int = 1
    partition: int = NO_COLUMN
    fixed_partition: int = -1
    headers: tuple[HeaderPart, ...] = ()


def bind(fields: Sequence[Field], names: ColumnNames, value: int | None = None) -> Binding:
    """Find the columns and check their types; ``value`` is the number of the value's column if it has no name.

    Raises `InvalidRecord` for a column that is missing, occurs twice or has an unsuitable type.
    """
    if value is None:
        if names.value is None:
            raise InvalidRecord("value= is missing: name the column with the values, or use value_format='json'.")
        value = find(fields, names.value, "value")
        _check_bytes(fields[value], "value")
    key = NO_COLUMN if names.key is None else find(fields, names.key, "key")
    if key >= 0:
        _check_bytes(fields[key], "key")
    timestamp, factor, divisor = NO_COLUMN, 1, 1
    if names.timestamp is not None:
        timestamp = find(fields, names.timestamp, "timestamp")
        factor, divisor = _timestamp_unit(fields[timestamp])
    partition, fixed_partition = _partition(fields, names.partition)
    return Binding(
        value,
        key,
        timestamp,
        factor,
        divisor,
        partition,
        fixed_partition,
        tuple(_header_parts(fields, names.headers)),
    )


def header_sources(headers: object) -> Sequence[str | Mapping[str, str | bytes]]:
    """The parts of ``headers=``, as a sequence. Raises `InvalidRecord` for anything else, such as a generator."""
    if headers is None:
        return ()
    if isinstance(headers, (str, Mapping)):
        return (cast("str | Mapping[str, str | bytes]", headers),)
    parts = cast("Sequence[object]", headers) if isinstance(headers, Sequence) else (None,)
    if all(isinstance(part, (str, Mapping)) for part in parts):
        return cast("Sequence[str | Mapping[str, str | bytes]]", parts)
    raise InvalidRecord(
        f"invalid headers={headers!r}: must be a mapping from header names to columns or bytes, the name of a column of "
        "headers, or a list of these."
    )


def find(fields: Sequence[Field], name: object, role: str) -> int:
    """The number of the column with this name; ``role`` is its part of the record, for the error."""
    if not isinstance(name, str):
        raise InvalidRecord(f"invalid {role}={name!r}: must be the name of a column.")
    found = [index for index, field in enumerate(fields) if field.name == name]
    if len(found) == 1:
        return found[0]
    if found:
        raise InvalidRecord(f"{role}={name!r}: {len(found)} columns of the table have this name; rename them.")
    raise InvalidRecord(f"{role}={name!r}: the table has no such column. {_which_there_are(fields, name)}")


def _which_there_are(fields: Sequence[Field], name: str) -> str:
    names = list(Counter(field.name for field in fields))
    near = get_close_matches(name, names, n=1) or [each for each in names if each.lower() == name.lower()]
    if near:
        return f"Did you mean {near[0]!r}?"
    shown = ", ".join(repr(each) for each in names[:20])
    return f"Its columns are {shown}{', ...' if len(names) > 20 else ''}." if names else "It has no columns."


# -- types -------------------------------------------------------------------------------------------------------------

_BYTES: Final = frozenset({"u", "U", "z", "Z", "vu", "vz"})
_TEXT: Final = frozenset({"u", "U", "vu"})
_INTEGERS: Final = frozenset("cCsSiIlL")
_LISTS: Final = frozenset({"+l", "+L", "+m"})

#: From the unit of a timestamp to milliseconds: (factor, divisor).
_UNITS: Final[Mapping[str, tuple[int, int]]] = {
    "l": (1, 1),
    "tss": (1000, 1),
    "tsm": (1, 1),
    "tsu": (1, 1000),
    "tsn": (1, 1_000_000),
}

_NAMES: Final[Mapping[str, str]] = {
    "n": "null",
    "b": "bool",
    "c": "int8",
    "C": "uint8",
    "s": "int16",
    "S": "uint16",
    "i": "int32",
    "I": "uint32",
    "l": "int64",
    "L": "uint64",
    "e": "float16",
    "f": "float32",
    "g": "float64",
    "u": "string",
    "U": "large_string",
    "vu": "string_view",
    "z": "binary",
    "Z": "large_binary",
    "vz": "binary_view",
    "w": "fixed_size_binary",
    "d": "decimal",
    "tdD": "date32",
    "tdm": "date64",
    "tts": "time32[s]",
    "ttm": "time32[ms]",
    "ttu": "time64[us]",
    "ttn": "time64[ns]",
    "tss": "timestamp[s]",
    "tsm": "timestamp[ms]",
    "tsu": "timestamp[us]",
    "tsn": "timestamp[ns]",
    "tDs": "duration[s]",
    "tDm": "duration[ms]",
    "tDu": "duration[us]",
    "tDn": "duration[ns]",
    "tiM": "interval",
    "tiD": "interval",
    "tin": "interval",
    "+l": "list",
    "+L": "large_list",
    "+vl": "list_view",
    "+vL": "large_list_view",
    "+w": "fixed_size_list",
    "+s": "struct",
    "+m": "map",
    "+ud": "union",
    "+us": "union",
    "+r": "run_end_encoded",
}


def type_name(field: Field) -> str:
    """The type's name in Arrow's documentation."""
    if field.dictionary is not None:
        return f"dictionary of {type_name(field.dictionary)}"
    return _NAMES.get(field.format.partition(":")[0], f"of the Arrow format {field.format!r}")


def holds_bytes(field: Field) -> bool:
    """Whether each value is text, bytes or null, directly or through a dictionary."""
    values = field.dictionary or field
    return (
        values.dictionary is None
        and (values.format in _BYTES or values.format == "n" or values.format.startswith("w:"))
        and (field.dictionary is None or field.format in _INTEGERS)
    )


def _check_bytes(field: Field, role: str) -> None:
    if not holds_bytes(field):
        raise InvalidRecord(
            f"{role}={field.name!r}: this column is {type_name(field)}; a {role} must be text or bytes (string or binary, "
            "large, view, fixed-size or dictionary-encoded). Cast the column to one of them."
        )


def _timestamp_unit(field: Field) -> tuple[int, int]:
    unit = None if field.dictionary is not None else _UNITS.get(field.format.partition(":")[0])
    if unit is None:
        raise InvalidRecord(
            f"timestamp={field.name!r}: this column is {type_name(field)}; it must be a timestamp, or int64 in milliseconds "
            "since 1970."
        )
    return unit


def _partition(fields: Sequence[Field], partition: str | int | None) -> tuple[int, int]:
    """The number of the column and the partition for all rows, one of which is -1."""
    if partition is None:
        return NO_COLUMN, -1
    if isinstance(partition, str):
        column = find(fields, partition, "partition")
        field = fields[column]
        if field.dictionary is not None or field.format not in _INTEGERS:
            raise InvalidRecord(f"partition={partition!r}: this column is {type_name(field)}; partitions are integers.")
        return column, -1
    if type(partition) is not int or not 0 <= partition < 2**31:
        raise InvalidRecord(
            f"invalid partition={partition!r}: must be an integer of at least 0, or the name of a column of them; None "
            "leaves the choice to the partitioner."
        )
    return NO_COLUMN, partition


def _header_parts(fields: Sequence[Field], headers: HeaderColumns | None) -> Iterator[HeaderPart]:
    for source in header_sources(headers):
        if isinstance(source, Mapping):
            for name, content in source.items():
                yield _named_header(fields, name, content)
        else:
            column = find(fields, source, "headers")
            _check_list(fields[column])
            yield HeaderPart(None, column)


def _named_header(fields: Sequence[Field], name: object, content: object) -> HeaderPart:
    if not isinstance(name, str):
        raise InvalidRecord(f"headers: the name of a header must be text, not {name!r}.")
    try:
        encoded = name.encode()
    except UnicodeEncodeError as error:
        raise InvalidRecord(
            f"The header name {name!r} contains a lone surrogate (position {error.start}), which UTF-8 cannot encode; "
            "header names are Unicode text."
        ) from error
    if isinstance(content, bytes):
        return HeaderPart(encoded, constant=content)
    if not isinstance(content, str):
        raise InvalidRecord(
            f"invalid headers[{name!r}]={content!r}: must be the name of a column, or bytes that are the same in every "
            "record."
        )
    column = find(fields, content, f"headers[{name!r}]")
    if not holds_bytes(fields[column]):
        raise InvalidRecord(
            f"headers[{name!r}]={content!r}: this column is {type_name(fields[column])}; headers must be text or bytes. "
            "Cast the column."
        )
    return HeaderPart(encoded, column)


def _check_list(field: Field) -> None:
    items = field.children[0] if field.format in _LISTS and field.dictionary is None and field.children else None
    pair = items.children if items is not None and items.format == "+s" else ()
    if len(pair) == 2 and holds_bytes(pair[1]) and (pair[0].dictionary or pair[0]).format in _TEXT:
        return
    raise InvalidRecord(
        f"headers={field.name!r}: this column is {type_name(field)}; a column of headers must be a map from string to "
        "binary, or a list of structs of two fields, name (string) and value (binary). For a column with one header's "
        f"value, write headers={{'name': {field.name!r}}}."
    )


def no_table(kind: str) -> InvalidRecord:
    """The data from the Arrow interface has no columns."""
    return InvalidRecord(f"invalid table: must have columns, but this is a single column of type {kind}.")


# -- rows --------------------------------------------------------------------------------------------------------------


def too_large(row: int, size: int, largest: int, option: str) -> RecordTooLarge:
    """The record of this row exceeds an option."""
    return RecordTooLarge(
        f"Row {row} of the table takes up to {size} bytes as a record, more than {option}={largest}. Raise that option "
        "(and, for max_request_size, the topic's max.message.bytes), or send a smaller record."
    )


def null_row(row: int) -> InvalidRecord:
    """The whole row is null, which is possible in an array of structs."""
    return InvalidRecord(f"Row {row} of the table is null; leave such rows out.")


def invalid_timestamp(row: int, column: str, value: int) -> InvalidRecord:
    """The timestamp is before 1970, or too large."""
    return InvalidRecord(
        f"Row {row} of the table: invalid timestamp {value} (column {column!r}, in its own unit): must be 0 to 2**63 - 1 "
        "milliseconds since 1970."
    )


def invalid_partition(row: int, column: str, value: int) -> InvalidRecord:
    """The partition is out of range."""
    return InvalidRecord(
        f"Row {row} of the table: invalid partition {value} (column {column!r}): must be 0 to 2**31 - 1."
    )


def null_header(row: int, column: str) -> InvalidRecord:
    """A list of headers contains a null, or a header without a name."""
    return InvalidRecord(
        f"Row {row} of the table: a header in column {column!r} is null or has no name; only values may be null."
    )


def unreadable(row: int, column: str) -> InvalidRecord:
    """The offsets, indexes or views of a column are out of range."""
    return InvalidRecord(
        f"Row {row} of the table: the offsets in column {column!r} are outside its data. The library that created "
        "the table made it invalid."
    )
