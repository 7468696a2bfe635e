"""The part that the serializers of all formats share: subjects, schema ids, and the fast path once an id is known."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, NoReturn, TypeAlias, Unpack, cast

from aioproducer.errors import ConfigError, SerializationError
from aioproducer.serializers.schema_registry._api import RegisteredSchema, SchemaReference, SchemaRegistryError
from aioproducer.serializers.schema_registry.client import SchemaRegistryClient
from aioproducer.serializers.schema_registry.subjects import SubjectNameStrategy, topic_name

if TYPE_CHECKING:
    from aioproducer.serializers import SerializationContext
    from aioproducer.serializers.schema_registry._options import Options

__all__ = ["RegistrySerializer", "TextSerializer", "ToDict", "Write", "missing_library", "wire_prefix"]

#: Writes an object with one schema, without the prefix.
Write: TypeAlias = Callable[[Any], bytes]

#: Converts an object into one that the format can write, as confluent-kafka's ``to_dict`` does.
ToDict: TypeAlias = "Callable[[Any, SerializationContext], object]"

_MOST_SUBJECTS: Final = 1000


class _Known(NamedTuple):
    schema_id: int
    prefix: bytes
    write: Write


def wire_prefix(schema_id: int) -> bytes:
    """The magic byte and the id that precede the data."""
    return struct.pack(">bI", 0, schema_id)


def missing_library(user: str, library: str, extra: str) -> ConfigError:
    """The error for a library that is not installed."""
    return ConfigError(f"{user} needs {library}: pip install 'aioproducer[{extra}]'.")


class RegistrySerializer(ABC):
    """A serializer whose schema is in a registry.

    ``client`` is a client that the caller closes, or the registry's URL: the serializer then has a client that `close`
    closes, as the producer does with its serializers. A serializer that several producers use needs a client.

    It returns bytes, once the id for the subject is cached; for the first record of a subject, and if the cached latest
    version has expired, an awaitable of bytes. It raises `SerializationError` for an object that does not match the schema,
    and `SchemaRegistryError` if the registry returns no id. Cancelling the awaitable abandons the request.
    """

    _schema_type: ClassVar[str]

    def __init__(
        self,
        client: SchemaRegistryClient | str,
        *,
        name: str | None,
        to_dict: ToDict | None,
        subject_name_strategy: SubjectNameStrategy = topic_name,
        auto_register_schemas: bool = True,
        use_latest_version: bool = False,
        normalize_schemas: bool = False,
        references: Sequence[SchemaReference] = (),
    ) -> None:
        if use_latest_version and auto_register_schemas:
            raise ConfigError(
                "use_latest_version=True needs auto_register_schemas=False: a schema that is registered with each start "
                "would become the latest version."
            )
        if not callable(subject_name_strategy):
            raise ConfigError("invalid subject_name_strategy: must be a function of a SerializationContext and a name.")
        self._is_owner = isinstance(client, str)
        self._client = SchemaRegistryClient(client) if isinstance(client, str) else client
        self._name = name
        self._to_dict = to_dict
        self._strategy = subject_name_strategy
        self._auto_register = auto_register_schemas
        self._use_latest = use_latest_version
        self._normalize = normalize_schemas
        self._references = tuple(references)
        self._known: dict[str, _Known] = {}

    def __call__(self, obj: object, ctx: SerializationContext) -> bytes | Awaitable[bytes]:
        """Serialize an object for the topic in ``ctx``; see the class for errors and cancellation."""
        subject = self._strategy(ctx, self._name)
        known = self._known.get(subject)
        if known is None or (self._use_latest and not self._is_latest(subject, known)):
            return self._ask_and_write(subject, obj, ctx)
        return self._written(known, obj, ctx)

    async def close(self) -> None:
        """Close the client if the serializer created it. Cancellation: see `SchemaRegistryClient.close`."""
        if self._is_owner:
            await self._client.close()

    def _is_latest(self, subject: str, known: _Known) -> bool:
        latest = self._client.cached_latest(subject)
        return latest is not None and latest.id == known.schema_id

    async def _ask_and_write(self, subject: str, obj: object, ctx: SerializationContext) -> bytes:
        if not isinstance(cast("object", subject), str):
            raise SerializationError(f"subject_name_strategy returned {subject!r}; it must return the subject's name.")
        known = await self._latest(subject) if self._use_latest else await self._own(subject)
        if subject not in self._known and len(self._known) >= _MOST_SUBJECTS:
            del self._known[next(iter(self._known))]
        self._known[subject] = known
        return self._written(known, obj, ctx)

    def _written(self, known: _Known, obj: object, ctx: SerializationContext) -> bytes:
        if self._to_dict is not None:
            obj = self._to_dict(obj, ctx)
        return known.prefix + known.write(obj)

    async def _latest(self, subject: str) -> _Known:
        found = await self._client.latest(subject)
        known = self._known.get(subject)
        if known is not None and known.schema_id == found.id:
            return known
        if found.schema_type != self._schema_type:
            raise SchemaRegistryError(
                f"The latest version of subject {subject!r} is of type {found.schema_type}; {type(self).__name__} writes "
                f"{self._schema_type}."
            )
        if found.rules:
            raise SchemaRegistryError(
                f"The latest version of subject {subject!r} has a data contract with rules ({', '.join(found.rules)}), "
                f"which {type(self).__name__} does not support: use confluent-kafka's serializer, which can run them."
            )
        return _Known(found.id, self._prefix(found.id), await self._writer_of(found))

    async def _own(self, subject: str) -> _Known:
        schema, references = await self._own_schema()
        obtain = self._client.register if self._auto_register else self._client.look_up
        schema_id = await obtain(
            subject, schema, schema_type=self._schema_type, references=references, normalize=self._normalize
        )
        return _Known(schema_id, self._prefix(schema_id), await self._own_writer())

    def _prefix(self, schema_id: int) -> bytes:
        return wire_prefix(schema_id)

    def _mismatch(self, error: Exception) -> NoReturn:
        """Raise the error for an object that the schema does not describe."""
        of = "" if self._name is None else f" {self._name!r}"
        raise SerializationError(f"the object does not match the schema{of}: {error}") from error

    @abstractmethod
    async def _own_schema(self) -> tuple[str, Sequence[SchemaReference]]:
        """The text of the serializer's schema and its references, as the registry gets them."""

    @abstractmethod
    async def _own_writer(self) -> Write:
        """The function that writes with the serializer's schema."""

    @abstractmethod
    async def _writer_of(self, found: RegisteredSchema) -> Write:
        """The function that writes with a schema from the registry."""


class TextSerializer(RegistrySerializer):
    """A serializer whose schema is text that its references complete; raises `ConfigError` without a schema."""

    def __init__(
        self,
        client: SchemaRegistryClient | str,
        *,
        text: str | None,
        name: str | None,
        to_dict: ToDict | None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(client, name=name, to_dict=to_dict, **options)
        self._text = text
        self._writer: Write | None = None
        if text is None and not self._use_latest:
            raise ConfigError(f"{type(self).__name__} needs a schema, unless use_latest_version=True.")
        if text is not None and not self._references:
            self._writer = self._compiled(text, {})

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

    @abstractmethod
    async def _named(self, references: Sequence[SchemaReference]) -> dict[str, Any]:
        """The schemas that the references stand for, by the names that a schema uses for them."""

    @abstractmethod
    def _compiled(self, text: str, named: Mapping[str, Any]) -> Write:
        """The function that writes with a schema. Raises `ConfigError` if it is invalid."""
