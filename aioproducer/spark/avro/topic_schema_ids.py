"""Prefixes Avro values with the schema's id if the rows name their topics, which only tasks can see."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

from aioproducer.spark.avro.encoder import id_prefix
from aioproducer.spark.avro.registry import SchemaRegistry, value_subject

__all__ = ["TopicSchemaIds"]


class TopicSchemaIds:
    """The ids of one schema, which is registered under each topic's own subject; created in the task, and blocks.

    Asks the registry once per topic, when its first rows come: the same schema may have several ids.
    """

    def __init__(self, registry: SchemaRegistry, schema: str) -> None:
        self._registry = registry
        self._schema = schema
        self._prefixes: dict[str, bytes] = {}

    def prefixed(self, tables: Iterable[tuple[str, Any]]) -> Sequence[tuple[str, Any]]:
        """Each topic with its rows, with the id before each value.

        Raises `SchemaRegistryError` before any of these tables is returned.
        """
        return [(topic, _with_prefix(table, self._prefix(topic))) for topic, table in tables]

    def _prefix(self, topic: str) -> bytes:
        if topic not in self._prefixes:
            self._prefixes[topic] = id_prefix(self._registry.register(value_subject(topic), self._schema))
        return self._prefixes[topic]


def _with_prefix(table: Any, prefix: bytes) -> Any:
    pa, compute = import_module("pyarrow"), import_module("pyarrow.compute")
    at = table.schema.get_field_index("value")
    values = compute.binary_join_element_wise(pa.scalar(prefix), table.column(at), pa.scalar(b""))
    return table.set_column(at, "value", values)
