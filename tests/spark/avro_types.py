"""Columns of Spark and fields of Avro, written shortly."""

from __future__ import annotations

from typing import Any

__all__ = ["MICROS", "MILLIS", "array_of", "column", "map_of", "record", "struct_of"]

MICROS = {"type": "long", "logicalType": "timestamp-micros"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}


def column(name: str, kind: Any, nullable: bool = True) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": {}}


def array_of(kind: Any, nullable: bool = True) -> dict[str, Any]:
    return {"type": "array", "elementType": kind, "containsNull": nullable}


def map_of(kind: Any, key: str = "string", nullable: bool = True) -> dict[str, Any]:
    return {"type": "map", "keyType": key, "valueType": kind, "valueContainsNull": nullable}


def struct_of(*columns: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(columns)}


def record(*fields: tuple[str, Any], name: str = "Order") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": each, "type": kind} for each, kind in fields]}
