"""Chooses types for columns of text, only where every value would be written as it stands in the file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from aioproducer.spark.load_listing import FoundFile, partition_values

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["column_paths", "with_faithful_directories"]

#: What Spark makes a whole number or a date of, and writes back as it was.
_FAITHFUL: Final = re.compile(r"0|-?[1-9]\d*|\d{4}-\d\d-\d\d")

#: Spark's name of a directory for null.
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"


def with_faithful_directories(schema: StructType, files: Sequence[FoundFile]) -> StructType:
    """The schema, where columns that are directories remain text if a value would be written in another way (``01``)."""
    from pyspark.sql.types import StringType, StructField, StructType

    values: dict[str, set[str]] = {}
    for file in files:
        for name, value in partition_values(file.path).items():
            values.setdefault(unquote(name), set()).add(unquote(value))
    text = {name for name, found in values.items() if not all(map(_FAITHFUL.fullmatch, found - {_NULL}))}
    return StructType([StructField(each.name, StringType()) if each.name in text else each for each in schema.fields])


def column_paths(schema: StructType) -> frozenset[str]:
    """The columns, and those within them, as in ``order.items.price``."""
    return frozenset(_paths(schema.jsonValue(), ""))


def _paths(kind: Any, prefix: str) -> Iterator[str]:
    if not isinstance(kind, Mapping):
        return
    told: Mapping[str, Any] = kind  # pyright: ignore[reportUnknownVariableType]
    for each in told.get("fields", ()):
        yield f"{prefix}{each['name']}"
        yield from _paths(each["type"], f"{prefix}{each['name']}.")
    for inner in ("elementType", "valueType"):
        yield from _paths(told.get(inner), prefix)
