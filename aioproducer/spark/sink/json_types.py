"""Detects columns of a DataFrame that JSON cannot represent, before anything is sent.

Types are passed as Spark's JSON (``StructType.jsonValue()``), so nothing here needs Spark. The accepted types are those
whose Arrow types ``send_table(value_format="json")`` accepts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from aioproducer.errors import ConfigError
from aioproducer.spark.avro.spark_types import SparkType, decimal_of, is_text

__all__ = ["check_json"]

_SIMPLE: Final = frozenset(
    {"boolean", "byte", "short", "integer", "long", "float", "double", "date", "timestamp", "timestamp_ntz", "void"}
)
_TIME: Final = re.compile(r"time\(\d+\)")


def check_json(columns: Sequence[Mapping[str, Any]]) -> None:
    """Raises `ConfigError` for the first field of a DataFrame that JSON cannot represent."""
    for column in columns:
        _check(column["type"], str(column["name"]))


def _check(kind: SparkType, where: str) -> None:
    """``where``: the path of columns to this type."""
    if isinstance(kind, str):
        if not (kind in _SIMPLE or is_text(kind) or decimal_of(kind) is not None or _TIME.fullmatch(kind)):
            raise ConfigError(
                f"The column {where!r} has type {kind}, which JSON cannot represent. Convert it to a string, with "
                "cast('string') or, for bytes, with base64(); or drop it."
            )
    elif kind["type"] == "struct":
        for field in kind["fields"]:
            _check(field["type"], f"{where}.{field['name']}")
    elif kind["type"] == "array":
        _check(kind["elementType"], where)
    elif kind["type"] == "map":
        if not is_text(kind["keyType"]):
            raise ConfigError(
                f"The column {where!r} is a map with keys that are not strings, as JSON requires: cast them."
            )
        _check(kind["valueType"], where)
    else:  # user-defined: an alias of another type
        _check(kind["sqlType"], where)
