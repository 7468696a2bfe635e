"""Encodes rows of Arrow batches as Avro, one binary value per row."""

from __future__ import annotations

import io
import json
from array import array
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final, TypeAlias

from aioproducer.errors import InvalidRecord
from aioproducer.spark.avro.fit import attributes, branch
from aioproducer.spark.avro.nulls import misplaced_null
from aioproducer.spark.avro.schema import AvroSchema, load_fastavro

__all__ = ["AvroEncoder", "id_prefix"]

#: Rows that are Python objects at a time: other threads can run in between, and memory stays bounded.
_ROWS: Final = 1000

#: Confluent's wire format: a zero byte and the schema's id, big-endian, before each value.
_MAGIC: Final = b"\0"

#: Converts a value from Arrow before fastavro gets it.
_Convert: TypeAlias = Callable[[Any], Any]

_FLOORED: Final = frozenset({"timestamp-millis", "local-timestamp-millis"})


class AvroEncoder:
    """Encodes with one schema; created in the task."""

    def __init__(self, schema: AvroSchema) -> None:
        fastavro = load_fastavro()
        whole = json.loads(schema.text)
        self._columns = list(schema.columns)
        self._prefix = b"" if schema.schema_id is None else id_prefix(schema.schema_id)
        self._write = fastavro.schemaless_writer
        self._schema = fastavro.parse_schema(whole)
        self._resolved = fastavro.parse_schema(whole, expand=True)
        self._convert = _converter(self._resolved)
        self._pa: Any = import_module("pyarrow")

    def with_value(self, batch: Any) -> Any:
        """The batch with the column ``value`` in place of its source columns."""
        value = self.encode(batch.select(self._columns).to_struct_array())
        kept = [name for name in batch.schema.names if name not in self._columns]
        return self._pa.record_batch([*(batch.column(name) for name in kept), value], [*kept, "value"])

    def encode(self, rows: Any) -> Any:
        """The values of an array of structs. Raises `InvalidRecord` for a row that does not fit the schema."""
        pa = self._pa
        null = misplaced_null(rows, self._resolved)
        if null is not None:
            raise InvalidRecord(
                f"A row cannot be encoded with the Avro schema: {null} is null, which the schema does not allow. Make its "
                "type a union with null, or replace the null, for example with coalesce()."
            )
        plain = _with_numbers(pa, rows.type)
        numbers = rows if plain == rows.type else rows.cast(plain)
        out, ends = io.BytesIO(), array("i", [0])
        for start in range(0, len(numbers), _ROWS):
            for row in numbers.slice(start, _ROWS).to_pylist():
                out.write(self._prefix)
                try:
                    self._write(out, self._schema, row if self._convert is None else self._convert(row))
                except Exception as error:  # foreign code: may raise anything for an unfit value
                    raise InvalidRecord(f"A row cannot be encoded with the Avro schema: {error}") from error
                ends.append(out.tell())
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(out.getvalue())]
        return pa.Array.from_buffers(pa.binary(), len(numbers), buffers)


def id_prefix(schema_id: int) -> bytes:
    """The prefix of each value whose schema has this id in a registry."""
    return _MAGIC + schema_id.to_bytes(4, "big")


def _with_numbers(pa: Any, kind: Any) -> Any:
    """The type with numbers in place of times: numbers need no objects and time zones, and have no range of years."""
    types = pa.types
    if types.is_timestamp(kind):
        return pa.int64()
    if types.is_date32(kind):
        return pa.int32()
    if types.is_struct(kind):
        return pa.struct([each.with_type(_with_numbers(pa, each.type)) for each in kind])
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with_numbers(pa, kind.value_type)))
    if types.is_map(kind):
        return pa.map_(kind.key_field, kind.item_field.with_type(_with_numbers(pa, kind.item_type)))
    return kind


# -- converters: None if there is nothing to convert, as for nearly everything ---------------------------------------------


def _converter(schema: Any) -> _Convert | None:
    chosen = attributes(branch(schema))
    if chosen.get("logicalType") in _FLOORED:
        return _unless_null(lambda micros: micros // 1000)
    make = _CONTAINERS.get(chosen.get("type", ""))
    return None if make is None else make(chosen)


def _unless_null(convert: _Convert) -> _Convert:
    return lambda value: None if value is None else convert(value)


def _of_record(schema: Mapping[str, Any]) -> _Convert | None:
    found = {field["name"]: _converter(field["type"]) for field in schema["fields"]}
    converters = {name: convert for name, convert in found.items() if convert is not None}
    if not converters:
        return None

    def convert_fields(row: dict[str, Any]) -> dict[str, Any]:
        return row | {name: convert(row[name]) for name, convert in converters.items()}

    return _unless_null(convert_fields)


def _of_array(schema: Mapping[str, Any]) -> _Convert | None:
    convert = _converter(schema["items"])
    return None if convert is None else _unless_null(lambda items: [convert(item) for item in items])


def _of_map(schema: Mapping[str, Any]) -> _Convert:
    """Arrow returns maps as lists of pairs."""
    convert = _converter(schema["values"])
    if convert is None:
        return _unless_null(dict)
    return _unless_null(lambda pairs: {key: convert(value) for key, value in pairs})


_CONTAINERS: Final[Mapping[str, Callable[[Mapping[str, Any]], _Convert | None]]] = {
    "record": _of_record,
    "array": _of_array,
    "map": _of_map,
}
