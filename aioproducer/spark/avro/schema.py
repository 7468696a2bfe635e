"""The Avro schema of values that consist of a DataFrame's columns: derived from them, or given and checked against them.

DataFrame schemas are passed as Spark's JSON (``StructType.jsonValue()``), so nothing here needs Spark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from aioproducer.errors import ConfigError
from aioproducer.spark.avro.fit import check_fit
from aioproducer.spark.avro.spark_types import SparkType, decimal_of, is_text

__all__ = ["AvroSchema", "load_fastavro"]

#: The record name that Spark's own to_avro() uses, so that readers of one can read the other.
_RECORD: Final = "topLevelRecord"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_PRIMITIVES: Final[Mapping[str, Any]] = {
    "boolean": "boolean",
    "byte": "int",
    "short": "int",
    "integer": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "binary": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
}


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """The schema of the values, as JSON, and their columns; ``schema_id`` if a registry has it."""

    text: str
    columns: tuple[str, ...]
    schema_id: int | None = None

    @classmethod
    def of(cls, columns: Sequence[Mapping[str, Any]], given: str | None = None) -> AvroSchema:
        """The schema for these fields of a DataFrame, or the ``given`` one (JSON).

        Raises `ConfigError` for names and types that Avro does not support, for an invalid schema, and for one that does
        not fit the columns.
        """
        schema = _record(columns, _RECORD, "", "") if given is None else _read(given)
        parsed = _parsed(schema)
        if given is not None:
            check_fit(columns, parsed)
        return cls(json.dumps(schema), tuple(str(field["name"]) for field in columns))


def load_fastavro() -> Any:
    """The module; raises `ConfigError` with installation advice if it is missing."""
    try:
        import_module("fastavro.schema")
        return import_module("fastavro")
    except ImportError as error:
        raise ConfigError(
            "value.format=avro needs fastavro in the Python of the driver and of every executor: "
            "pip install 'aioproducer[avro]', and set PYSPARK_PYTHON to the Python that has it."
        ) from error


def _read(given: str) -> Any:
    try:
        return json.loads(given)
    except ValueError as error:
        raise ConfigError(f"The given Avro schema is not JSON: {error}.") from error


def _parsed(schema: Any) -> Any:
    """The schema with every name resolved; read-only. Raises `ConfigError` if it is not a valid schema."""
    fastavro = load_fastavro()
    try:
        return fastavro.parse_schema(schema, expand=True)
    except Exception as error:  # foreign code; an invalid schema may fail in any way
        raise ConfigError(f"invalid Avro schema: {type(error).__name__}: {error}") from error


# -- deriving --------------------------------------------------------------------------------------------------------------


def _record(fields: Sequence[Mapping[str, Any]], name: str, namespace: str, where: str) -> dict[str, Any]:
    """``where``: the path of columns that leads to the record, empty for the whole."""
    own = f"{namespace}.{name}" if namespace else name
    made = [_field(field, own, where) for field in fields]
    names = [field["name"] for field in made]
    twice = next((each for each in names if names.count(each) > 1), None)
    if twice is not None:
        raise ConfigError(f"The column {_path(where, twice)!r} exists more than once; rename or drop the others.")
    return {"type": "record", "name": name, **({"namespace": namespace} if namespace else {}), "fields": made}


def _field(field: Mapping[str, Any], namespace: str, where: str) -> dict[str, Any]:
    name = str(field["name"])
    path = _path(where, name)
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"The column name {path!r} is invalid in Avro: names consist of letters, digits and _, and do not start with a "
            "digit. Rename it, or choose another value.format."
        )
    kind = _type(field["type"], name, namespace, path)
    if not field["nullable"] or kind == "null":
        return {"name": name, "type": kind}
    return {"name": name, "type": ["null", kind], "default": None}


def _type(kind: SparkType, name: str, namespace: str, where: str) -> Any:
    if isinstance(kind, str):
        return _simple(kind, where)
    if kind["type"] == "struct":
        return _record(kind["fields"], name, namespace, where)
    if kind["type"] == "array":
        items = _type(kind["elementType"], name, namespace, where)
        return {"type": "array", "items": _nullable(items, kind["containsNull"])}
    if kind["type"] == "map" and is_text(kind["keyType"]):
        values = _type(kind["valueType"], name, namespace, where)
        return {"type": "map", "values": _nullable(values, kind["valueContainsNull"])}
    if kind["type"] == "map":
        raise ConfigError(f"The column {where!r} is a map with keys that are not strings, as Avro requires: cast them.")
    raise _has_no_type(where, str(kind["type"]))


def _simple(kind: str, where: str) -> Any:
    if kind in _PRIMITIVES:
        return _PRIMITIVES[kind]
    if is_text(kind):
        return "string"
    if kind == "void":
        return "null"
    decimal = decimal_of(kind)
    if decimal is None or decimal.scale < 0:
        raise _has_no_type(where, kind)
    return {"type": "bytes", "logicalType": "decimal", "precision": decimal.precision, "scale": decimal.scale}


def _nullable(kind: Any, is_nullable: bool) -> Any:
    return ["null", kind] if is_nullable and kind != "null" else kind


def _has_no_type(where: str, kind: str) -> ConfigError:
    return ConfigError(
        f"The column {where!r} has type {kind}, which Avro does not support. Cast it, for example to string, or drop it."
    )


def _path(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name
