"""Tells which columns of a DataFrame have no form in JSON, before anything is sent.

Types come as Spark tells them in JSON (``StructType.jsonValue()``), so that nothing here needs Spark. What is taken here is
what ``send_table(value_format="json")`` takes of the Arrow types that Spark makes of them.
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
    """Raises `ConfigError` for the first of these fields of a DataFrame that JSON cannot hold."""
    for column in columns:
        _check(column["type"], str(column["name"]))


def _check(kind: SparkType, where: str) -> None:
    """``where``: the path of columns that leads here."""
    if isinstance(kind, str):
        if not (kind in _SIMPLE or is_text(kind) or decimal_of(kind) is not None or _TIME.fullmatch(kind)):
            raise ConfigError(
                f"The column {where!r} holds {kind}, which has no form in JSON. Make it a string, with cast('string') or, "
                "of bytes, with base64(); or drop it."
            )
    elif kind["type"] == "struct":
        for field in kind["fields"]:
            _check(field["type"], f"{where}.{field['name']}")
    elif kind["type"] == "array":
        _check(kind["elementType"], where)
    elif kind["type"] == "map":
        if not is_text(kind["keyType"]):
            raise ConfigError(
                f"The column {where!r} is a map whose keys are no strings, which has no form in JSON: cast them."
            )
        _check(kind["valueType"], where)
    else:  # of a user: a name for another type
        _check(kind["sqlType"], where)
