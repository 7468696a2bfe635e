"""The serializer for JSON with a JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Unpack, cast

from aioproducer.errors import ConfigError, SerializationError
from aioproducer.serializers import JsonSerializer
from aioproducer.serializers.schema_registry._api import RegisteredSchema, SchemaReference, SchemaRegistryError
from aioproducer.serializers.schema_registry._options import Options
from aioproducer.serializers.schema_registry._references import referenced
from aioproducer.serializers.schema_registry._serializer import RegistrySerializer, ToDict, Write, missing_library

if TYPE_CHECKING:
    from aioproducer.serializers.schema_registry.client import SchemaRegistryClient

__all__ = ["JsonSchemaSerializer"]


class JsonSchemaSerializer(RegistrySerializer):
    """Objects as JSON, with the bytes of confluent-kafka's ``JSONSerializer``.

    ``schema`` is a JSON Schema, as text or as an object; None if ``use_latest_version`` is set. Objects are validated as
    they are passed, or as ``to_dict(obj, ctx)`` returns them, against the draft that "$schema" names, by default draft 7;
    ``validate=False`` omits that. The record name is the schema's title. The options are those of `Options`;
    ``references`` have the text of ``$ref`` as their names, and no other address is fetched. Needs jsonschema:
    ``pip install 'aioproducer[json-schema]'``.

    Raises `ConfigError` if the schema is invalid, or jsonschema is missing. See `RegistrySerializer` for the call.
    """

    _schema_type = "JSON"

    def __init__(
        self,
        client: SchemaRegistryClient | str,
        schema: str | Mapping[str, Any] | None = None,
        *,
        to_dict: ToDict | None = None,
        validate: bool = True,
        **options: Unpack[Options],
    ) -> None:
        self._validate = validate
        if validate:
            _library("jsonschema")
        self._text = schema if schema is None or isinstance(schema, str) else json.dumps(schema)
        parsed = None if self._text is None else _parsed(self._text)
        name = cast("Mapping[str, Any]", parsed).get("title") if isinstance(parsed, dict) else None
        super().__init__(client, name=name, to_dict=to_dict, **options)
        self._encode = JsonSerializer()
        self._writer: Write | None = None
        if self._text is None and not self._use_latest:
            raise ConfigError("JsonSchemaSerializer needs a schema, unless use_latest_version=True.")
        if self._text is not None and not self._references:
            self._writer = self._compiled(self._text, ())

    async def _own_schema(self) -> tuple[str, Sequence[SchemaReference]]:
        assert self._text is not None
        return self._text, self._references

    async def _own_writer(self) -> Write:
        if self._writer is None:
            assert self._text is not None
            self._writer = self._compiled(self._text, await self._named(self._references))
        return self._writer

    async def _writer_of(self, found: RegisteredSchema) -> Write:
        try:
            return self._compiled(found.schema, await self._named(found.references))
        except ConfigError as error:
            raise SchemaRegistryError(f"The schema with id {found.id} is not usable: {error}") from error

    async def _named(self, references: Sequence[SchemaReference]) -> Sequence[tuple[str, Any]]:
        if not self._validate:
            return ()
        return [(each.name, _parsed(found.schema)) for each, found in await referenced(self._client, references)]

    def _compiled(self, text: str, named: Sequence[tuple[str, Any]]) -> Write:
        encode, mismatch = self._encode, self._mismatch
        check = _validation(_parsed(text), named) if self._validate else None

        def written(obj: object) -> bytes:
            if check is not None:
                try:
                    check(obj)
                except Exception as error:  # a ValidationError, or an unresolvable reference
                    mismatch(error)
            try:
                return encode(obj)
            except (TypeError, ValueError) as error:
                raise SerializationError(f"the object cannot be written as JSON: {error}") from error

        return written


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise missing_library("JsonSchemaSerializer", "jsonschema", "json-schema") from error


def _parsed(text: str) -> object:
    try:
        found: object = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"invalid JSON Schema: it is not JSON ({error}).") from error
    if not isinstance(found, dict | bool):
        raise ConfigError(f"invalid JSON Schema: it is of type {type(found).__name__}, and must be an object.")
    return cast("object", found)


def _validation(schema: object, named: Sequence[tuple[str, Any]]) -> Any:
    """A function that raises ValidationError, with the first line of the reason, for an object that does not match."""
    jsonschema, referencing = _library("jsonschema"), _library("referencing")
    default = _library("referencing.jsonschema").DRAFT7
    draft = cast("Mapping[str, object]", schema).get("$schema", "") if isinstance(schema, Mapping) else ""
    if not isinstance(draft, str):
        raise ConfigError(f"invalid JSON Schema: its $schema is {draft!r}, and must be the URL of a draft.")
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft7Validator)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise ConfigError(f"invalid JSON Schema: {error.message}.") from error
    registry = referencing.Registry().with_resources(
        [(name, referencing.Resource.from_contents(each, default_specification=default)) for name, each in named]
    )
    best_match = jsonschema.exceptions.best_match
    validator = kind(schema, registry=registry)

    def check(obj: object) -> None:
        if not validator.is_valid(obj):
            found = best_match(validator.iter_errors(obj))
            raise ValueError(f"{found.message} (at {found.json_path})")

    return check
