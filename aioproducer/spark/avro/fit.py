"""Checks a given Avro schema against the columns to be written with it, before any task starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from aioproducer.errors import ConfigError
from aioproducer.spark.avro.spark_types import Decimal, SparkType, decimal_of, is_text

__all__ = ["attributes", "branch", "check_fit", "is_union"]

#: The Avro types that a column of a type can be written as, with the logical type if there is one.
_WRITTEN_AS: Final[Mapping[str, tuple[str, ...]]] = {
    "boolean": ("boolean",),
    "byte": ("int", "long", "float", "double"),
    "short": ("int", "long", "float", "double"),
    "integer": ("int", "long", "double"),
    "long": ("long",),
    "float": ("float", "double"),
    "double": ("double",),
    "binary": ("bytes", "fixed"),
    "date": ("int date",),
    "timestamp": ("long timestamp-micros", "long timestamp-millis"),
    "timestamp_ntz": ("long local-timestamp-micros", "long local-timestamp-millis"),
    "void": ("null",),
    "string": ("string", "enum"),
}


def check_fit(columns: Sequence[Mapping[str, Any]], schema: Any) -> None:
    """Raise `ConfigError` unless the schema, with its names resolved, is a record of exactly these columns."""
    record = attributes(schema)
    if record.get("type") != "record":
        raise ConfigError("The given Avro schema is not a record; values that consist of columns are records.")
    _check_record(columns, record, "")


def branch(schema: Any) -> Any:
    """The schema itself, or the branch of a union besides null; the union if there are several."""
    if not is_union(schema):
        return schema
    others = [each for each in schema if each != "null"]
    return others[0] if len(others) == 1 else schema if others else "null"


def is_union(schema: Any) -> bool:
    """Whether it is a union."""
    return isinstance(schema, list)


def attributes(schema: Any) -> Mapping[str, Any]:
    """The schema if it has attributes; empty for a name and for a union."""
    return cast("Mapping[str, Any]", schema) if isinstance(schema, dict) else {}


def _check_record(columns: Sequence[Mapping[str, Any]], schema: Mapping[str, Any], where: str) -> None:
    fields = {field["name"]: field["type"] for field in schema["fields"]}
    names = [str(column["name"]) for column in columns]
    of_what = f"of {where!r} " if where else ""
    if lacking := [name for name in names if name not in fields]:
        raise ConfigError(
            f"The Avro schema {of_what}has no field for {_listed(lacking)}, which the DataFrame has; it has "
            f"{_listed(fields)}. Drop the columns, or add the fields."
        )
    if others := [name for name in fields if name not in names]:
        raise ConfigError(
            f"The Avro schema {of_what}has the fields {_listed(others)}, which have no column; the columns are "
            f"{_listed(names)}. Add the columns, or remove the fields."
        )
    for column in columns:
        name = str(column["name"])
        _check_type(column["type"], fields[name], f"{where}.{name}" if where else name)


def _check_type(kind: SparkType, schema: Any, where: str) -> None:
    chosen = branch(schema)
    if is_union(chosen):
        raise ConfigError(
            f"The Avro schema has a union of several types for the column {where!r}, so the type of a row is ambiguous: "
            "use one type, or one type and null."
        )
    if not _fits(kind, chosen):
        raise ConfigError(
            f"The column {where!r} has type {_spark_name(kind)}, which cannot be written as the type in the Avro schema: "
            f"{_avro_name(chosen)}. Cast the column, or change the schema."
        )
    if isinstance(kind, str):
        return
    if kind["type"] == "struct":
        _check_record(kind["fields"], chosen, where)
    elif kind["type"] == "array":
        _check_type(kind["elementType"], chosen["items"], where)
    else:
        _check_type(kind["valueType"], chosen["values"], where)


def _fits(kind: SparkType, schema: Any) -> bool:
    name = _avro_name(schema)
    if not isinstance(kind, str):
        wanted = "record" if kind["type"] == "struct" else kind["type"]
        return bool(name == wanted and (wanted != "map" or is_text(kind["keyType"])))
    decimal = decimal_of(kind)
    if decimal is not None:
        return _takes_decimal(schema, decimal)
    return name in _WRITTEN_AS.get("string" if is_text(kind) else kind, ())


def _takes_decimal(schema: Any, decimal: Decimal) -> bool:
    found = attributes(schema)
    if found.get("logicalType") != "decimal":
        return False
    scale = found.get("scale", 0)
    return bool(scale >= decimal.scale and found["precision"] - scale >= decimal.precision - decimal.scale)


def _avro_name(schema: Any) -> str:
    found = attributes(schema)
    kind, logical = found.get("type", schema), found.get("logicalType")
    if logical == "decimal":
        return f"{kind} decimal({found.get('precision')},{found.get('scale', 0)})"
    return f"{kind} {logical}" if logical else str(kind)


def _spark_name(kind: SparkType) -> str:
    return kind if isinstance(kind, str) else str(kind["type"])


def _listed(names: Any) -> str:
    return ", ".join(map(repr, names)) or "none"
