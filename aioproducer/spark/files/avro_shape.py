"""Encodes the rows of files as Avro, as a load writes them and an audit expects them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from aioproducer.spark.avro.encoder import AvroEncoder
from aioproducer.spark.avro.registry import SchemaRegistry
from aioproducer.spark.avro.schema import AvroSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["AvroShape"]


@dataclass(frozen=True, slots=True)
class AvroShape:
    """The given ``schema`` as JSON (None: derived from the columns), and the registry that has it.

    A load registers it under ``subject``; an audit only looks it up there (``is_compared``).
    """

    schema: str | None = None
    registry: SchemaRegistry | None = None
    subject: str = ""
    is_compared: bool = False

    def resolved(self, columns: Sequence[Mapping[str, Any]]) -> AvroSchema:
        """The schema of values of these columns (in Spark's JSON), and its id; asks the registry.

        Raises `ConfigError` for columns that Avro does not support, and `SchemaRegistryError`.
        """
        schema = AvroSchema.of(columns, self.schema)
        if self.registry is None:
            return schema
        ask = self.registry.look_up if self.is_compared else self.registry.register
        return replace(schema, schema_id=ask(self.subject, schema.text))

    def encode(self, rows: DataFrame) -> DataFrame:
        """The rows with their struct column ``value`` encoded as Avro. Raises what `resolved` does."""
        from pyspark.sql.types import BinaryType, StructField, StructType

        fields = rows.schema.fields
        made_of: Any = next(field.dataType for field in fields if field.name == "value")
        schema = self.resolved(made_of.jsonValue()["fields"])
        value = StructField("value", BinaryType())
        encoded = StructType([value if field.name == "value" else field for field in fields])
        made: DataFrame = cast("Any", rows).mapInArrow(_encode(schema), encoded)
        return made


def _encode(schema: AvroSchema) -> Callable[[Iterable[Any]], Iterator[Any]]:
    def encode(batches: Iterable[Any]) -> Iterator[Any]:
        pa: Any = import_module("pyarrow")
        encoder = AvroEncoder(schema)
        for batch in batches:
            at = batch.schema.get_field_index("value")
            yield batch.set_column(at, pa.field("value", pa.binary()), encoder.encode(batch.column(at)))

    return encode
