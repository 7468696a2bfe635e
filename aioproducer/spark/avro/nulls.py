"""Finds nulls that an Avro schema does not allow: fastavro writes some of them as if they were values."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from aioproducer.spark.avro.fit import attributes, branch, is_union

__all__ = ["misplaced_null"]


def misplaced_null(rows: Any, schema: Any) -> str | None:
    """A description of a null in an array of structs that the schema, with its names resolved, does not allow.

    None if there is no such null; otherwise the subject of a sentence about it.
    """
    return _in_fields(rows, attributes(schema), "")


def _in_fields(rows: Any, record: Any, where: str) -> str | None:
    for field in record["fields"]:
        path = f"{where}.{field['name']}" if where else field["name"]
        found = _in_column(rows.field(field["name"]), field["type"], path, repr(path))
        if found is not None:
            return found
    return None


def _in_column(column: Any, schema: Any, where: str, what: str) -> str | None:
    """``where``: the path of names that leads to it, ``what``: its description."""
    if column.null_count and not _takes_null(schema):
        return what
    chosen = attributes(branch(schema))
    match chosen.get("type"):
        case "record":
            return _in_fields(column.drop_null(), chosen, where)  # the fields of a null are null as well
        case "array":
            return _in_column(column.flatten(), chosen["items"], where, f"an item of {what}")
        case "map":
            return _in_column(_map_values(column), chosen["values"], where, f"a value of {what}")
        case _:
            return None


def _takes_null(schema: Any) -> bool:
    return any(map(_is_null, schema)) if is_union(schema) else _is_null(schema)


def _is_null(schema: Any) -> bool:
    return bool(attributes(schema).get("type", schema) == "null")


def _map_values(column: Any) -> Any:
    """The values of an array of maps, without those of maps that are null or outside of the slice."""
    pa = import_module("pyarrow")
    pair = [pa.field("key", column.type.key_type, nullable=False), pa.field("value", column.type.item_type)]
    return column.cast(pa.list_(pa.struct(pair))).flatten().field(1)
