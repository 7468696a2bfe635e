"""Declares structs and messages: one class for all versions, with fields as annotations that contain the wire types.

::

    class TopicProduceData(Struct):
        name: String = until(12, default="")
        topic_id: Uuid = since(13, default=ZERO_UUID)
        partition_data: Array[PartitionProduceData]

The constructor requires fields without a default. A field that a version does not have gets its default when decoded, and
is not encoded. The attributes have Kafka's own names in snake_case. Structs are mutable, have ``==`` and cannot be hashed.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Final,
    Generic,
    NoReturn,
    TypeAlias,
    TypeGuard,
    TypeVar,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    overload,
)
from uuid import UUID

from aioproducer.errors import ProtocolError, UnsupportedVersion
from aioproducer.protocol import wire
from aioproducer.protocol.codec import compile_decoder, compile_encoder
from aioproducer.protocol.compiler import MISSING, Decoder, Encoder, Field, FieldType, ListOf, compile_init
from aioproducer.types import BytesLike

if TYPE_CHECKING:
    from typing import Self

__all__ = [
    "NEVER",
    "Array",
    "Bool",
    "Bytes",
    "Float64",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Message",
    "NullableArray",
    "NullableBytes",
    "NullableString",
    "Records",
    "Request",
    "Response",
    "String",
    "Struct",
    "Uint16",
    "Uint32",
    "Uuid",
    "always",
    "since",
    "tagged",
    "until",
]

T = TypeVar("T")
ResponseT = TypeVar("ResponseT", bound="Response")

#: The first flexible version of a message without flexible versions.
NEVER: Final = 0x7FFF

_ARRAY: Final = ListOf(object)
_NULLABLE_ARRAY: Final = ListOf(object, nullable=True)

Bool: TypeAlias = Annotated[bool, wire.BOOL]
Int8: TypeAlias = Annotated[int, wire.INT8]
Int16: TypeAlias = Annotated[int, wire.INT16]
Int32: TypeAlias = Annotated[int, wire.INT32]
Int64: TypeAlias = Annotated[int, wire.INT64]
Uint16: TypeAlias = Annotated[int, wire.UINT16]
Uint32: TypeAlias = Annotated[int, wire.UINT32]
Float64: TypeAlias = Annotated[float, wire.FLOAT64]
Uuid: TypeAlias = Annotated[UUID, wire.UUID]
String: TypeAlias = Annotated[str, wire.STRING]
NullableString: TypeAlias = Annotated[str | None, wire.NULLABLE_STRING]
Bytes: TypeAlias = Annotated[bytes, wire.BYTES]
NullableBytes: TypeAlias = Annotated[bytes | None, wire.NULLABLE_BYTES]
Array: TypeAlias = Annotated[list[T], _ARRAY]
NullableArray: TypeAlias = Annotated[list[T] | None, _NULLABLE_ARRAY]


class Records:
    """Record batches, or None. Set as bytes or as pieces, which are sent in order without a copy.

    Reading returns the bytes, joining pieces; decoded records are a view of the message's own data.
    """

    __slots__ = ("_attribute",)

    def __init__(self, attribute: str) -> None:
        self._attribute = attribute

    def __get__(self, struct_: Struct, owner: type[Struct] | None = None) -> bytes | bytearray | memoryview | None:
        value = getattr(struct_, self._attribute)
        return value if value is None or _is_bytes(value) else b"".join(value)

    def __set__(self, struct_: Struct, value: wire.RecordsInput | None) -> None:
        setattr(struct_, self._attribute, value)


class _Declared:
    """The value assigned to an annotated field."""

    __slots__ = ("options",)

    def __init__(self, default: object, factory: object, **options: int | None) -> None:
        if default == []:
            default, factory = MISSING, list  # each struct gets its own list
        self.options: dict[str, Any] = {"default": default, "factory": factory}
        self.options.update({name: value for name, value in options.items() if value is not None})


@overload
def since(version: int, *, default: T, until: int | None = None, nullable: int | None = None) -> T: ...
@overload
def since(version: int, *, factory: Callable[[], T], until: int | None = None, nullable: int | None = None) -> T: ...
def since(
    version: int,
    *,
    default: object = MISSING,
    factory: Callable[[], object] | None = None,
    until: int | None = None,
    nullable: int | None = None,
) -> Any:
    """A field that exists from a version on (and up to ``until``), and may be null from ``nullable`` on."""
    return _Declared(default, factory, since=version, until=until, nullable_since=nullable)


@overload
def until(version: int, *, default: T) -> T: ...
@overload
def until(version: int, *, factory: Callable[[], T]) -> T: ...
def until(version: int, *, default: object = MISSING, factory: Callable[[], object] | None = None) -> Any:
    """A field that exists up to a version, inclusive."""
    return _Declared(default, factory, until=version)


@overload
def tagged(tag: int, *, since: int, default: T) -> T: ...
@overload
def tagged(tag: int, *, since: int, factory: Callable[[], T]) -> T: ...
def tagged(tag: int, *, since: int, default: object = MISSING, factory: Callable[[], object] | None = None) -> Any:
    """A tagged field (KIP-482): on the wire only if it is not the default."""
    return _Declared(default, factory, tag=tag, since=since)


@overload
def always(*, default: T, nullable: int | None = None) -> T: ...
@overload
def always(*, factory: Callable[[], T], nullable: int | None = None) -> T: ...
@overload
def always(*, nullable: int) -> Any: ...
def always(
    *, default: object = MISSING, factory: Callable[[], object] | None = None, nullable: int | None = None
) -> Any:
    """A field of all versions, with a default, or nullable only since a later version."""
    return _Declared(default, factory, nullable_since=nullable)


@dataclass_transform(kw_only_default=True, field_specifiers=(since, until, tagged, always))
class _StructType(type):
    """Creates slots, ``__init__`` and ``__struct_fields__`` from the annotations of a struct."""

    __struct_fields__: tuple[Field, ...]
    __values_of__: attrgetter[Any]

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> _StructType:
        scope = vars(sys.modules[namespace["__module__"]])
        hints = {
            name: hint for name, hint in namespace.get("__annotations__", {}).items() if "ClassVar" not in str(hint)
        }
        # All in one eval(), because each call costs as much as evaluating all of them.
        types = eval(f"({''.join(f'{hint}, ' for hint in hints.values())})", scope)
        fields = tuple(
            _field(name, type_, namespace.pop(name, MISSING)) for name, type_ in zip(hints, types, strict=True)
        )
        namespace["__slots__"] = tuple(field.attribute for field in fields)
        namespace.update({f.name: Records(f.attribute) for f in fields if f.attribute != f.name})
        cls = super().__new__(mcs, name, bases, namespace, **options)
        cls.__struct_fields__ = fields
        # Two structs of a class without fields are equal.
        cls.__values_of__ = attrgetter(*([field.name for field in fields] or ["__struct_fields__"]))
        cls.__init__ = _init_when_used(cls, fields)  # type: ignore[misc]  # generated from the declaration, which type checkers do not see
        return cls


def _init_when_used(cls: _StructType, fields: tuple[Field, ...]) -> Callable[..., None]:
    """An ``__init__`` that compiles the real one on the first call: few structs are ever constructed, many only decoded."""

    def init(self: Struct, /, **values: object) -> None:
        real = compile_init(cls, fields)
        cls.__init__ = real  # type: ignore[misc]  # as above
        real(self, **values)

    return init


def _field(name: str, hint: Any, declared: object) -> Field:
    if isinstance(declared, _Declared):
        return Field(name, _wire_type(hint), **declared.options)
    return Field(name, _wire_type(hint), default=declared)


def _wire_type(hint: Any) -> FieldType:
    if hint is Records:
        return wire.RECORDS
    if get_origin(hint) is not Annotated:
        return cast("type[Any]", hint)
    origin, type_ = get_args(hint)
    if not isinstance(type_, ListOf):
        return cast("FieldType", type_)
    list_ = origin if get_origin(origin) is list else next(arg for arg in get_args(origin) if arg is not type(None))
    return ListOf(_wire_type(get_args(list_)[0]), type_.nullable)


class Struct(metaclass=_StructType):
    """A part of a message."""

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        values_of = type(self).__values_of__
        return bool(values_of(self) == values_of(other))

    __hash__ = None  # type: ignore[assignment]  # mutable, so not hashable

    def __repr__(self) -> str:
        values = (f"{field.name}={_shown(getattr(self, field.name))}" for field in type(self).__struct_fields__)
        return f"{type(self).__name__}({', '.join(values)})"


def _shown(value: object) -> str:
    """Bytes are records or credentials: too long or too secret to be shown."""
    return f"<{len(value)} bytes>" if _is_bytes(value) else repr(value)


def _is_bytes(value: object) -> TypeGuard[bytes | bytearray | memoryview]:
    return isinstance(value, bytes | bytearray | memoryview)


class Message(Struct):
    """A request or a response without its header.

    ``versions`` are the lowest and the highest that can be encoded and decoded, ``flexible`` is the first flexible one.
    """

    api_key: ClassVar[int]
    versions: ClassVar[tuple[int, int]]
    flexible: ClassVar[int]
    _encoders: ClassVar[dict[int, Encoder]]
    _decoders: ClassVar[dict[int, Decoder]]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._encoders = {}
        cls._decoders = {}

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        """Whether a version has compact lengths and tagged fields."""
        return version >= cls.flexible

    def encode(self, version: int) -> bytes:
        """The message as bytes. Raises as ``encode_pieces`` does."""
        return b"".join(self.encode_pieces(version))

    def encode_pieces(self, version: int) -> list[BytesLike]:
        """The message as consecutive pieces; records are passed on unchanged.

        Raises UnsupportedVersion for a version that is not declared and ValueError for a value that does not fit its field
        (too large, too long, null).
        """
        buffer = bytearray()
        pieces: list[BytesLike] = []
        self.encode_into(version, buffer, pieces)
        return pieces

    def encode_into(self, version: int, buffer: bytearray, pieces: list[BytesLike]) -> None:
        """Append to the buffer, and move everything to the pieces. Raises as ``encode_pieces``."""
        encoder = self._encoders.get(version) or self._make_encoder(version)
        try:
            encoder(self, buffer, pieces)
        except (struct.error, AttributeError, TypeError, UnicodeEncodeError, ProtocolError) as error:
            raise ValueError(f"could not encode {self!r} in version {version}: {error}.") from error
        if buffer:
            pieces.append(bytes(buffer))

    @classmethod
    def decode(cls, version: int, data: BytesLike) -> Self:
        """Decode a message, which must be all of the data.

        Keeps no reference to the data unless they are ``bytes``. Raises ProtocolError if they are not this message in this
        version, and UnsupportedVersion for a version that is not declared.
        """
        if type(data) is not bytes:
            data = bytes(data)  # a receive buffer will be overwritten, and exact bytes are the fastest to read
        decoder = cls._decoders.get(version) or cls._make_decoder(version)
        size = len(data)
        try:
            message, end = decoder(data, 0, size)
        except ProtocolError as error:
            cls._refuse(version, size, str(error), error)
        except (struct.error, IndexError) as error:
            cls._refuse(version, size, "they end in the middle of a field", error)
        except UnicodeDecodeError as error:
            cls._refuse(version, size, f"a string is not UTF-8 ({error})", error)
        if end != size and not cls._may_end_with(version, data[end:]):
            cls._refuse(version, size, f"{size - end} of them are left over", None)
        return cast("Self", message)

    @classmethod
    def _may_end_with(cls, version: int, rest: bytes) -> bool:
        """Whether a peer with a known quirk may send these bytes after the message."""
        return False

    @classmethod
    def _refuse(cls, version: int, size: int, reason: str, cause: Exception | None) -> NoReturn:
        raise ProtocolError(
            f"{size} bytes are not a {cls.__name__} (api key {cls.api_key}) of version {version}: {reason}."
        ) from cause

    @classmethod
    def _make_encoder(cls, version: int) -> Encoder:
        cls._check(version)
        encoder = cls._encoders[version] = compile_encoder(cls, version, cls.is_flexible(version))
        return encoder

    @classmethod
    def _make_decoder(cls, version: int) -> Decoder:
        cls._check(version)
        decoder = cls._decoders[version] = compile_decoder(cls, version, cls.is_flexible(version))
        return decoder

    @classmethod
    def _check(cls, version: int) -> None:
        low, high = cls.versions
        if not low <= version <= high:
            raise UnsupportedVersion(
                f"{cls.__name__} (api key {cls.api_key}) is supported in versions {low} to {high}, not in {version}."
            )


class Response(Message):
    """A broker's response; its api key and versions are those of its request."""


class _ResponseType:
    """Returns the response class of a request class, also for type checkers."""

    def __get__(self, request: object, owner: type[Request[ResponseT]]) -> type[ResponseT]:
        return cast("type[ResponseT]", owner._response)  # pyright: ignore[reportPrivateUsage] - of its own class


class Request(Message, Generic[ResponseT]):
    """A client's request. The response's class gets the api key and the versions from here.

    ``highest_spoken`` is the highest version that clients send, if not all versions are for clients.
    """

    highest_spoken: ClassVar[int]
    response_type: ClassVar = _ResponseType()
    _response: ClassVar[type[Response]]

    def __init_subclass__(
        cls,
        *,
        api_key: int,
        versions: tuple[int, int],
        flexible: int = NEVER,
        highest_spoken: int | None = None,
        **options: Any,
    ) -> None:
        super().__init_subclass__(**options)
        bases: Sequence[Any] = cls.__dict__["__orig_bases__"]
        cls._response = get_args(bases[0])[0]
        cls.highest_spoken = versions[1] if highest_spoken is None else highest_spoken
        for message in (cls, cls._response):
            message.api_key = api_key
            message.versions = versions
            message.flexible = flexible
