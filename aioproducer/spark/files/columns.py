"""Infers types for text columns, only if every value would be written exactly as it is in the file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from aioproducer.spark.files.listing import FoundFile, partition_values

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

__all__ = ["column_paths", "faithful_types", "unfaithful_columns", "with_faithful_directories"]

#: Types for text columns, the narrowest first. Times are not included: there are too many ways to write one.
_TYPES: Final = ("int", "bigint", "double", "boolean", "date")

#: Patterns of text that a type may reproduce. JSON has no NaN or Infinity.
_LOOKS: Final[Mapping[str, str]] = {
    "int": r"^(0|-?[1-9][0-9]{0,9})$",
    "bigint": r"^(0|-?[1-9][0-9]{0,18})$",
    "double": r"^-?[0-9]+\.[0-9]+(E-?[0-9]+)?$",
    "boolean": r"^(true|false)$",
    "date": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
}
_RANGES: Final[Mapping[str, tuple[int, int]]] = {"int": (-(2**31), 2**31 - 1), "bigint": (-(2**63), 2**63 - 1)}

#: Text that Spark parses as an integer or a date, and writes back unchanged.
_FAITHFUL: Final = re.compile(r"0|-?[1-9]\d*|\d{4}-\d\d-\d\d")

#: Spark's directory name for null.
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"


def with_faithful_directories(schema: StructType, files: Sequence[FoundFile]) -> StructType:
    """The schema, with directory columns kept as text if a value would be written differently (``01``)."""
    from pyspark.sql.types import StringType, StructField, StructType

    values: dict[str, set[str]] = {}
    for file in files:
        for name, value in partition_values(file.path).items():
            values.setdefault(unquote(name), set()).add(unquote(value))
    text = {name for name, found in values.items() if not all(map(_FAITHFUL.fullmatch, found - {_NULL}))}
    return StructType([StructField(each.name, StringType()) if each.name in text else each for each in schema.fields])


def faithful_types(rows: DataFrame, columns: Sequence[str]) -> Mapping[str, str]:
    """The types of those text columns that get another type; reads all rows once.

    A column gets a type only if the type reproduces the text of each value: not for ``01234``, ``1e5``, ``1.10`` or
    ``True``.
    """
    from pyspark.sql import functions as f

    wanted = [(name, kind) for name in columns for kind in _TYPES]
    results = _first(
        rows,
        [_is_faithful(f.col(_quoted(name)), kind) for name, kind in wanted]
        + [f.count(f.col(_quoted(name))) > 0 for name in columns],
    )
    filled = {name for name, is_filled in zip(columns, results[len(wanted) :], strict=True) if is_filled}
    found: dict[str, str] = {}
    for (name, kind), is_faithful in zip(wanted, results, strict=False):
        if is_faithful and name in filled:
            found.setdefault(name, kind)
    return found


def unfaithful_columns(rows: DataFrame, types: Mapping[str, str]) -> Sequence[str]:
    """The text columns with a value that would be written differently as that type."""
    from pyspark.sql import functions as f

    results = _first(rows, [_is_faithful(f.col(_quoted(name)), kind) for name, kind in types.items()])
    return [name for name, is_faithful in zip(types, results, strict=True) if is_faithful is False]


def _first(rows: DataFrame, answers: Sequence[Column]) -> Sequence[Any]:
    if not answers:
        return ()
    return rows.agg(*(answer.alias(str(number)) for number, answer in enumerate(answers))).collect()[0]


def _is_faithful(column: Column, kind: str) -> Column:
    from pyspark.sql import functions as f

    if kind in _RANGES:
        is_same = f.coalesce(column.try_cast("bigint").between(*_RANGES[kind]), f.lit(False))
    else:
        is_same = column.try_cast(kind).cast("string").eqNullSafe(column)
    # Checked first: each value that cannot be cast costs Spark an exception of some 50 microseconds.
    looks_like_it = _BEFORE[kind](column) & column.rlike(_LOOKS[kind])
    return f.bool_and(f.when(column.isNull(), True).when(looks_like_it, is_same).otherwise(False))


#: Cheaper than a pattern, and rules out most values of other types.
_BEFORE: Final[Mapping[str, Callable[[Any], Any]]] = {
    "int": lambda column: column < ":",  # digits and the minus sign sort before it
    "bigint": lambda column: column < ":",
    "double": lambda column: column.contains("."),
    "boolean": lambda column: column.isin("true", "false"),
    "date": lambda column: column.substr(5, 1) == "-",
}


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def column_paths(schema: StructType) -> frozenset[str]:
    """The columns, and those within them, as in ``order.items.price``."""
    return frozenset(_paths(schema.jsonValue(), ""))


def _paths(kind: Any, prefix: str) -> Iterator[str]:
    if not isinstance(kind, Mapping):
        return
    nested: Mapping[str, Any] = kind  # pyright: ignore[reportUnknownVariableType]
    for each in nested.get("fields", ()):
        yield f"{prefix}{each['name']}"
        yield from _paths(each["type"], f"{prefix}{each['name']}.")
    for inner in ("elementType", "valueType"):
        yield from _paths(nested.get(inner), prefix)
