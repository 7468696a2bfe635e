"""Maps columns of a DataFrame to parts of a record, checked against its schema before any task starts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from aioproducer.errors import ConfigError
from aioproducer.spark.avro.registry import SchemaRegistryError, value_subject
from aioproducer.spark.avro.schema import AvroSchema
from aioproducer.spark.libraries import need
from aioproducer.spark.options.sink import SinkOptions, ValueFormat
from aioproducer.spark.sink.json_types import check_json

__all__ = ["SinkColumns", "check_case", "check_type"]

#: Names and types of the columns that are parts of a record, as in Spark's own sink; with Spark's type names.
_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int", "bigint", "smallint", "tinyint"),
    "headers": ("array<struct<key:string,value:binary>>", "map<string,binary>", "map<string,string>"),
    "timestamp": ("timestamp", "bigint", "double"),
}


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """The columns that become parts of records, in the DataFrame's order.

    ``payload``: the columns that are encoded into the value, if any; the column ``value`` takes their place.
    """

    names: tuple[str, ...]
    is_json: bool = False
    payload: tuple[str, ...] = ()
    avro: AvroSchema | None = None

    @classmethod
    def of_frame(cls, schema: Any, options: SinkOptions) -> Self:
        """Return the columns of a DataFrame's ``StructType``.

        Raises `ConfigError`, also for types that JSON or Avro cannot represent, and for a missing library.
        """
        columns = cls.of([(field.name, field.dataType.simpleString()) for field in schema.fields], options)
        if not columns.payload:
            return columns
        made_of = [field for field in schema.jsonValue()["fields"] if field["name"] in columns.payload]
        if columns.is_json:
            need("orjson", "value.format=json", "spark")
            check_json(made_of)
            return columns
        return replace(columns, avro=AvroSchema.of(made_of, options.avro_schema))

    @classmethod
    def of(cls, schema: Sequence[tuple[str, str]], options: SinkOptions) -> Self:
        """The columns of a schema, given as names and types in Spark's short spelling; raises `ConfigError`."""
        names = [name for name, _ in schema]
        is_made = options.value_format is not ValueFormat.RAW
        for name, kind in schema:
            if name in _TYPES:
                check_type(name, kind)
            elif not is_made and (name.lower() != "topic" or options.topic is None):
                check_case(name, names)
            if names.count(name) > 1 and (is_made or name in _TYPES):
                raise ConfigError(f"The DataFrame has more than one column {name!r}; rename or drop the others.")
        if is_made:
            _check_made(names, options)
        elif "value" not in names:
            raise ConfigError(
                f"The DataFrame has no column 'value', only {_listed(names)}. Create one, for example with "
                "df.selectExpr('to_json(struct(*)) AS value'), or set .option('value.format', 'json')."
            )
        if options.topic is None and "topic" not in names:
            raise ConfigError("There is no topic: set .option('topic', ...), or add a column 'topic' of type string.")
        if options.dead_letter_topic is not None and options.is_exactly_once and "partition" not in names:
            raise ConfigError(
                "on.record.error=dead-letter with exactly-once needs the column 'partition': dead letters keep it, so that "
                "no two tasks write the same partition. aioproducer.spark.partition_for_kafka(df, topic, bootstrap_servers) "
                "adds it."
            )
        used = [name for name in names if name in _TYPES and (name != "topic" or options.topic is None)]
        payload = tuple(name for name in names if is_made and name not in _TYPES)
        found = (*used, "value") if is_made else tuple(used)
        return cls(found, options.value_format is ValueFormat.JSON, payload)

    def has(self, name: str) -> bool:
        """Whether there is such a column for a part of the record."""
        return name in self.names and name in _TYPES

    def registered(self, options: SinkOptions) -> Self:
        """The columns for the tasks: if there is a registry, with the schema's id for Avro values.

        There is no id if rows name their topics, which only the tasks see: they register the schema under each. Asks the
        registry; raises `SchemaRegistryError`.
        """
        avro, registry = self.avro, options.registry
        if avro is None or registry is None or options.topic is None:
            return self
        try:
            known = registry.register(value_subject(options.topic), avro.text)
        except SchemaRegistryError as error:
            raise SchemaRegistryError(f"{error} Nothing was sent.") from error
        return replace(self, avro=replace(avro, schema_id=known))


def check_type(name: str, kind: str) -> None:
    """Raise `ConfigError` unless that part of a record can be of this type, in Spark's short spelling."""
    if (name, kind) == ("timestamp", "timestamp_ntz"):
        raise ConfigError(
            "The column 'timestamp' has type timestamp_ntz, which is ambiguous without a time zone. "
            "df.withColumn('timestamp', expr('CAST(timestamp AS TIMESTAMP_LTZ)')) interprets it in the session's time zone."
        )
    plain = re.sub(r"\b(var)?char\(\d+\)|string collate \w+", "string", kind)
    if plain not in _TYPES[name]:
        raise ConfigError(
            f"The column {name!r} has type {kind}; it must be {' or '.join(_TYPES[name])}. Cast it, as in "
            f"df.withColumn({name!r}, col({name!r}).cast({_TYPES[name][0]!r})), or rename it."
        )


def check_case(name: str, names: Sequence[str]) -> None:
    """Raise `ConfigError` for a column that differs from a part of a record only in case, which Spark itself ignores."""
    meant = name.lower()
    if name != meant and meant in _TYPES and meant not in names:
        raise ConfigError(
            f"The column {name!r} would not be written, because the part of a record is called {meant!r}, in lower case: "
            f"df.withColumnRenamed({name!r}, {meant!r}). If it is something else, drop it."
        )


def _check_made(names: Sequence[str], options: SinkOptions) -> None:
    value_format = options.value_format
    if "value" in names:
        raise ConfigError(
            f"value.format={value_format} encodes all other columns into the value, but the DataFrame also has a column "
            "'value': rename it, or leave the option out."
        )
    if "topic" in names and options.topic is not None:
        raise ConfigError(
            f"value.format={value_format}: the DataFrame has a column 'topic', but the option 'topic' overrides it, so the "
            "column would not be written. Drop it; or, if it belongs to the value, rename it."
        )
    if not [name for name in names if name not in _TYPES]:
        raise ConfigError(f"value.format={value_format}: no column is left for the value besides {_listed(names)}.")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "none"
