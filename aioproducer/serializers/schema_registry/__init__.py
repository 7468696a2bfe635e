"""Serializers that register their schemas with a schema registry (Confluent's REST API), without librdkafka.

::

    async with SchemaRegistryClient("http://registry:8081") as client:
        async with Producer("host:9092", value_serializer=AvroSerializer(client, schema)) as producer:
            await producer.send("orders", {"id": "1"})

The bytes are those of confluent-kafka's serializers. The client needs httpx, and each serializer the library of its format:
``pip install 'aioproducer[avro]'``, ``'aioproducer[json-schema]'`` or ``'aioproducer[protobuf]'``. An import of this
package loads none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from aioproducer.serializers.schema_registry._api import RegisteredSchema, SchemaReference, SchemaRegistryError
from aioproducer.serializers.schema_registry.subjects import record_name, topic_name, topic_record_name

if TYPE_CHECKING:
    from aioproducer.serializers.schema_registry.avro import AvroSerializer
    from aioproducer.serializers.schema_registry.client import SchemaRegistryClient
    from aioproducer.serializers.schema_registry.json_schema import JsonSchemaSerializer
    from aioproducer.serializers.schema_registry.protobuf import ProtobufSerializer

__all__ = [
    "AvroSerializer",
    "JsonSchemaSerializer",
    "ProtobufSerializer",
    "RegisteredSchema",
    "SchemaReference",
    "SchemaRegistryClient",
    "SchemaRegistryError",
    "record_name",
    "topic_name",
    "topic_record_name",
]

_LATER: Final = {
    "AvroSerializer": "avro",
    "JsonSchemaSerializer": "json_schema",
    "ProtobufSerializer": "protobuf",
    "SchemaRegistryClient": "client",
}


def __getattr__(name: str) -> object:
    """The client and the serializers are imported when they are first used: the Spark sink needs only the errors."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    return found
