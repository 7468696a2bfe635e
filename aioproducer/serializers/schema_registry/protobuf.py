"""The serializer for Protobuf messages."""

from __future__ import annotations

from base64 import standard_b64encode
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Unpack

from aioproducer.errors import ConfigError, SerializationError
from aioproducer.serializers.schema_registry._api import RegisteredSchema, SchemaReference, SchemaRegistryError
from aioproducer.serializers.schema_registry._options import Options
from aioproducer.serializers.schema_registry._serializer import RegistrySerializer, Write, missing_library, wire_prefix

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from aioproducer.serializers.schema_registry.client import SchemaRegistryClient

__all__ = ["ProtobufSerializer", "message_indexes"]

#: Files that every registry and every reader knows; they are not registered.
_BUILT_IN = ("confluent/", "google/protobuf/", "google/type/")


class ProtobufSerializer(RegistrySerializer):
    """Protobuf messages, with the bytes of confluent-kafka's ``ProtobufSerializer``.

    ``message_type`` is a generated class. Its file is the schema; the files that it imports are registered before it, each
    under its file name as the subject, except those of ``google/protobuf``, ``google/type`` and ``confluent``. A reference
    in ``references`` is used instead for the file with its name. The options are those of `Options`. Needs protobuf:
    ``pip install 'aioproducer[protobuf]'``.

    Raises `ConfigError` if the class is not one of a message, or protobuf is missing. See `RegistrySerializer` for the call.
    """

    _schema_type = "PROTOBUF"

    def __init__(
        self, client: SchemaRegistryClient | str, message_type: type[Message], **options: Unpack[Options]
    ) -> None:
        try:
            base: Any = import_module("google.protobuf.message").Message
        except ImportError as error:
            raise missing_library("ProtobufSerializer", "protobuf", "protobuf") from error
        if not _is_subclass(message_type, base):
            raise ConfigError(f"ProtobufSerializer takes the class of a Protobuf message, not {message_type!r}.")
        descriptor: Any = message_type.DESCRIPTOR  # stubs differ between versions of types-protobuf
        super().__init__(client, name=descriptor.full_name, to_dict=None, **options)
        self._message_type = message_type
        self._file = descriptor.file
        self._indexes = message_indexes(descriptor)
        self._given = {reference.name: reference for reference in self._references}
        self._resolved: Sequence[SchemaReference] | None = None

    async def _own_schema(self) -> tuple[str, Sequence[SchemaReference]]:
        if self._resolved is None:
            self._resolved = await self._dependencies(self._file)
        return _text_of(self._file), self._resolved

    async def _own_writer(self) -> Write:
        return self._write

    async def _writer_of(self, found: RegisteredSchema) -> Write:
        return self._write

    def _prefix(self, schema_id: int) -> bytes:
        return wire_prefix(schema_id) + self._indexes

    def _write(self, obj: object) -> bytes:
        if not isinstance(obj, self._message_type):
            raise SerializationError(
                f"the object is of type {type(obj).__name__}; ProtobufSerializer was created for "
                f"{self._message_type.__name__}"
            )
        try:
            return obj.SerializeToString()
        except Exception as error:  # EncodeError: a required field is not set
            self._mismatch(error)

    async def _dependencies(self, file: Any) -> list[SchemaReference]:
        """References to the files that a file imports, which are registered if necessary."""
        found: list[SchemaReference] = []
        for imported in file.dependencies:
            if imported.name.startswith(_BUILT_IN):
                continue
            given = self._given.get(imported.name)
            found.append(given if given is not None else await self._reference(imported))
        return found

    async def _reference(self, file: Any) -> SchemaReference:
        schema, references = _text_of(file), await self._dependencies(file)
        if self._auto_register:
            await self._client.register(
                file.name,
                schema,
                schema_type=self._schema_type,
                references=references,
                normalize=self._normalize,
            )
        registered = await self._client.find(
            file.name, schema, schema_type=self._schema_type, references=references, normalize=self._normalize
        )
        if registered.version is None:
            raise SchemaRegistryError(f"The schema registry did not return the version of subject {file.name!r}.")
        return SchemaReference(file.name, file.name, registered.version)


def _is_subclass(given: object, base: type) -> bool:
    return isinstance(given, type) and issubclass(given, base)


def message_indexes(descriptor: Any) -> bytes:
    """The place of a message type in its file, as Confluent's wire format has it.

    These are positions from the outermost type inwards, as zigzag varints after their number. The first type of a file is
    a single 0 byte.
    """
    path: list[int] = []
    inner = descriptor
    while inner.containing_type is not None:
        outer = inner.containing_type
        path.insert(0, [each.name for each in outer.nested_types].index(inner.name))
        inner = outer
    path.insert(0, list(inner.file.message_types_by_name).index(inner.name))
    if path == [0]:
        return b"\0"
    return b"".join(_varint(number << 1) for number in (len(path), *path))


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _text_of(file: Any) -> str:
    """A file's descriptor, as the registry gets it."""
    return standard_b64encode(file.serialized_pb).decode()
