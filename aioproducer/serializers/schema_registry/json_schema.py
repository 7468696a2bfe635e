"""The serializer for JSON with a JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Unpack, cast

from aioproducer.errors import ConfigError, SerializationError
from aioproducer.serializers import JsonSerializer
from aioproducer.serializers.schema_registry._api import SchemaReference
from aioproducer.serializers.schema_registry._options import Options
from aioproducer.serializers.schema_registry._references import referenced
from aioproducer.serializers.schema_registry._serializer import TextSerializer, ToDict, Write, missing_library

if TYPE_CHECKING:
    from aioproducer.serializers.schema_registry.client import SchemaRegistryClient

__all__ = ["JsonSchemaSerializer"]


class JsonSchemaSerializer(TextSerializer):
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
        text = schema if schema is None or isinstance(schema, str) else json.dumps(schema)
        parsed = None if text is None else _parsed(text)
        name = cast("Mapping[str, Any]", parsed).get("title") if isinstance(parsed, dict) else None
        self._encode = JsonSerializer()
        super().__init__(client, text=text, name=name, to_dict=to_dict, **options)

    async def _named(self, references: Sequence[SchemaReference]) -> dict[str, Any]:
        if not self._validate:
            return {}
        return {each.name: _parsed(found.schema) for each, found in await referenced(self._client, references)}

    def _compiled(self, text: str, named: Mapping[str, Any]) -> Write:
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


def _validation(schema: object, named: Mapping[str, Any]) -> Any:
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
        [
            (name, referencing.Resource.from_contents(each, default_specification=default))
            for name, each in named.items()
        ]
    )
    best_match = jsonschema.exceptions.best_match
    validator = kind(schema, registry=registry)

    def check(obj: object) -> None:
        if not validator.is_valid(obj):
            found = best_match(validator.iter_errors(obj))
            raise ValueError(f"{found.message} (at {found.json_path})")

    return check
