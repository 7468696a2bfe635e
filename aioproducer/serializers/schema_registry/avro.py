"""The serializer for Avro."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from importlib import import_module
from typing import TYPE_CHECKING, Any, Unpack, cast

from aioproducer.errors import ConfigError, SerializationError
from aioproducer.serializers.schema_registry._api import SchemaReference, SchemaRegistryError
from aioproducer.serializers.schema_registry._options import Options
from aioproducer.serializers.schema_registry._references import referenced
from aioproducer.serializers.schema_registry._serializer import TextSerializer, ToDict, Write, missing_library

if TYPE_CHECKING:
    from aioproducer.serializers.schema_registry.client import SchemaRegistryClient

__all__ = ["AvroSerializer"]


class AvroSerializer(TextSerializer):
    """Objects as Avro, with the bytes of confluent-kafka's ``AvroSerializer``.

    ``schema`` is Avro's JSON, as text or as an object; None if ``use_latest_version`` is set. Records are mappings, or
    ``to_dict(obj, ctx)`` returns them. The options are those of `Options`; ``references`` name the types that the schema
    uses and does not define. Needs fastavro: ``pip install 'aioproducer[avro]'``.

    Raises `ConfigError` if the schema is invalid, or fastavro is missing. See `RegistrySerializer` for the call.
    """

    _schema_type = "AVRO"

    def __init__(
        self,
        client: SchemaRegistryClient | str,
        schema: str | Mapping[str, Any] | Sequence[Any] | None = None,
        *,
        to_dict: ToDict | None = None,
        **options: Unpack[Options],
    ) -> None:
        _library("fastavro")
        text = None if schema is None else _text_of(schema)
        name = None if text is None else _name_in(json.loads(text))
        super().__init__(client, text=text, name=name, to_dict=to_dict, **options)

    async def _named(self, references: Sequence[SchemaReference]) -> dict[str, Any]:
        """The definitions of the references, and of theirs, by the names that a schema may use for them."""
        named: dict[str, Any] = {}
        for reference, found in await referenced(self._client, references):
            try:
                schema: Any = json.loads(found.schema)
            except ValueError as error:
                raise SchemaRegistryError(
                    f"The schema of the reference {reference.name!r} (subject {reference.subject!r}) is not JSON: {error}."
                ) from error
            named[reference.name] = schema
            full = _name_in(schema)
            if full is not None:
                named.setdefault(full, schema)
        return named

    def _compiled(self, text: str, named: Mapping[str, Any]) -> Write:
        parsed = _parsed(_text_of(text), named)
        kind: object = cast("Mapping[str, object]", parsed).get("type") if isinstance(parsed, dict) else parsed
        if kind == "bytes":
            return _plain_bytes
        write = _library("fastavro").schemaless_writer
        mismatch = self._mismatch

        def written(obj: object) -> bytes:
            buffer = io.BytesIO()
            try:
                write(buffer, parsed, obj)
            except Exception as error:  # fastavro raises many kinds
                mismatch(error)
            return buffer.getvalue()

        return written


def _plain_bytes(obj: object) -> bytes:
    """A value of the schema "bytes", which Confluent's serializers write without Avro's length."""
    if isinstance(obj, str):
        return obj.encode()
    if not isinstance(obj, bytes):
        raise SerializationError(f"the schema is 'bytes', and the object is of type {type(obj).__name__}")
    return obj


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise missing_library("AvroSerializer", "fastavro", "avro") from error


def _text_of(schema: object) -> str:
    """The schema as the registry gets it: unchanged, but for a primitive type, which becomes an object."""
    text = schema.strip() if isinstance(schema, str) else json.dumps(schema)
    if not text.startswith(("{", "[")):
        text = f'{{"type":{text}}}'
    try:
        json.loads(text)
    except ValueError as error:
        raise ConfigError(f"invalid Avro schema: it is not JSON ({error}).") from error
    return text


def _name_in(schema: Any) -> str | None:
    """The full name of a named type; the type of a primitive one; None for a union."""
    if not isinstance(schema, dict):
        return None
    found = cast("dict[str, Any]", schema)
    name, space = found.get("name"), found.get("namespace")
    if name is None:
        kind = found.get("type")
        return kind if isinstance(kind, str) else None
    return f"{space}.{name}" if space and "." not in str(name) else str(name)


def _parsed(text: str, named: Mapping[str, Any]) -> object:
    """The schema with all definitions inside, as fastavro writes with it."""
    schemas = {**deepcopy(dict(named)), "$root": json.loads(text)}
    repository = _library("fastavro.repository")

    # Its base is known only once fastavro is imported.
    class Repository(repository.AbstractSchemaRepository):  # type: ignore[misc, name-defined]
        def load(self, name: str) -> object:
            try:
                return schemas[name]
            except KeyError:
                raise repository.SchemaRepositoryError(f"unknown type {name!r}") from None

    fastavro = _library("fastavro.schema")
    try:
        found: object = fastavro.load_schema("$root", repo=Repository())
    except fastavro.UnknownType as error:
        raise ConfigError(f"invalid Avro schema: it does not define {error.name!r}, nor do its references=.") from error
    except Exception as error:  # fastavro raises many kinds
        raise ConfigError(f"invalid Avro schema: {type(error).__name__}: {error}.") from error
    return found
