"""Converts the objects, text and headers that callers pass into bytes.

All serializers, plain or async, have one calling convention: a callable that takes the object and returns ``bytes``,
``bytearray``, ``memoryview``, ``str`` (sent as UTF-8) or None, or an awaitable of one of these. A serializer that needs the
topic takes a `SerializationContext` as well: as a second positional parameter without a default, or as a parameter called
``ctx`` or ``context``. The serializers of confluent-kafka's schema registry follow the same convention, so they can be
passed unmodified. An object with a method ``serialize(topic, headers, data)``, as in Java, or ``serialize(topic, data)`` is
a serializer as well.

A serializer that gets the context, or Java's ``headers``, may add headers to the record: they are a list of pairs.
A method ``configure(config, is_key)`` is called with the producer's `ProducerConfig` when the producer is created. A
method ``close()``, plain or async, is called when the producer closes, after its last record.

None never reaches a serializer: it is Kafka's null, which deletes a key from a compacted topic.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar, cast, overload

from aioproducer.errors import ConfigError, InvalidRecord, KafkaError, SerializationError
from aioproducer.types import BytesLike, Header, Plain

if TYPE_CHECKING:
    from aioproducer.serializers.builtin import (
        BytesSerializer,
        IntegerSerializer,
        JsonSerializer,
        LongSerializer,
        StringSerializer,
    )

__all__ = [
    "NOT_GIVEN",
    "BytesSerializer",
    "IntegerSerializer",
    "JsonSerializer",
    "LongSerializer",
    "MessageField",
    "PreparedSerializer",
    "SerializationContext",
    "Serialized",
    "Serializer",
    "SerializerOf",
    "StringSerializer",
    "configure_serializer",
    "normalize_bytes",
    "normalize_headers",
    "prepare_serializer",
    "sees_headers",
]

_BUILT_IN = frozenset({"BytesSerializer", "IntegerSerializer", "JsonSerializer", "LongSerializer", "StringSerializer"})


def __getattr__(name: str) -> object:
    """Built-in serializers are imported when they are first used: with json, orjson and datetime that takes 5 ms."""
    if name not in _BUILT_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module("aioproducer.serializers.builtin"), name)
    return found


#: What a serializer may return.
Serialized: TypeAlias = BytesLike | str | None


_Data = TypeVar("_Data", contravariant=True)


class _JavaShaped(Protocol[_Data]):
    def serialize(self, topic: str, headers: list[Header], data: _Data, /) -> Serialized | Awaitable[Serialized]: ...


# With `__qualname__`: mypy treats every function as a match for a protocol of `__call__` alone, and infers nothing from a
# lambda then. With any other member, pyright infers Any.
class _TakesCtx(Protocol[_Data]):
    def __call__(self, obj: _Data, /, *, ctx: SerializationContext) -> Serialized | Awaitable[Serialized]: ...

    __qualname__: str


class _TakesContext(Protocol[_Data]):
    def __call__(self, obj: _Data, /, *, context: SerializationContext) -> Serialized | Awaitable[Serialized]: ...

    __qualname__: str


class _TopicShaped(Protocol[_Data]):
    def serialize(self, topic: str, data: _Data, /) -> Serialized | Awaitable[Serialized]: ...


_Callable: TypeAlias = Callable[..., Serialized | Awaitable[Serialized]]

#: A callable ``f(obj)`` or ``f(obj, ctx)`` that returns `Serialized` or an awaitable of it; or an object with a method
#: ``serialize(topic, headers, data)`` or ``serialize(topic, data)`` that does.
Serializer: TypeAlias = _Callable | _JavaShaped[Any] | _TopicShaped[Any]

_Object = TypeVar("_Object")

#: The `Serializer`s of one kind of object, by which a type checker infers the keys and values of a producer.
SerializerOf: TypeAlias = (
    Callable[[_Object], Serialized | Awaitable[Serialized]]
    | Callable[[_Object, "SerializationContext"], Serialized | Awaitable[Serialized]]
    | _TakesCtx[_Object]
    | _TakesContext[_Object]
    | _JavaShaped[_Object]
    | _TopicShaped[_Object]
)


# Pyright infers the objects of a serializer that is not given from this default: the first variant is for a producer whose
# parameters are unknown, so that it takes `Plain`, and the second for one that is constructed as `Producer[str, Order]`.
class _NotGiven:
    """Stands for a serializer that is not given; None would replace that of a whole `ProducerConfig`. Never called."""

    @overload
    def __call__(self, obj: Plain, /) -> bytes: ...
    @overload
    def __call__(self, obj: object, /) -> bytes: ...
    def __call__(self, obj: object, /) -> bytes:
        raise NotImplementedError  # only its type is used

    def __repr__(self) -> str:
        return "NOT_GIVEN"


NOT_GIVEN: Final = _NotGiven()


class MessageField(StrEnum):
    """The part of a record that is being serialized."""

    KEY = "key"
    VALUE = "value"


@dataclasses.dataclass(frozen=True, slots=True)
class SerializationContext:
    """The destination of the object that is being serialized.

    ``headers`` are the record's, as a list of pairs of text and bytes; a serializer may add some.
    """

    topic: str
    field: MessageField
    headers: list[Header] = dataclasses.field(default_factory=list[Header])


class PreparedSerializer(Protocol):
    """A serializer as the producer calls it: bytes or None at once, or an awaitable of them from an async serializer.

    Raises `SerializationError` when the serializer raises or returns something that is not bytes.
    """

    def __call__(self, topic: str, value: object, headers: list[Header], /) -> bytes | Awaitable[bytes | None] | None:
        """The serialized form of ``value``; the serializer may have added to ``headers``."""
        ...


def prepare_serializer(serializer: Serializer | None, field: MessageField) -> PreparedSerializer:
    """``serializer`` in the form in which the producer calls it; its signature is inspected here, once.

    None stands for the rules of `normalize_bytes`. Raises `ConfigError` for something that cannot be called with an
    object, or with an object and a context.
    """
    if serializer is None:
        return _identity(field)
    return _guarded(serializer, _call_style(serializer, f"{field}_serializer"), field)


def sees_headers(serializer: object) -> bool:
    """Whether a serializer gets the record's headers, so that it may add some."""
    if serializer is None:
        return False
    return _call_style(serializer, "serializer") not in (_CallStyle.NOT_AT_ALL, _CallStyle.TOPIC)


def configure_serializer(serializer: object, config: object, field: MessageField) -> None:
    """Call its ``configure(config, is_key)``, if it has such a method. Raises `ConfigError` if that raises."""
    configure = getattr(serializer, "configure", None)
    if not callable(configure):
        return
    try:
        names = inspect.signature(configure).parameters
    except (TypeError, ValueError):  # written in C, with no signature to read
        return
    if "is_key" not in names:  # another library's method of this name
        return
    try:
        configure(config, is_key=field is MessageField.KEY)
    except Exception as error:  # foreign code
        raise ConfigError(
            f"{field}_serializer: {_name_of(configure)}() failed: {type(error).__name__}: {error}"
        ) from error


def normalize_bytes(value: object, what: str = "value") -> bytes | None:
    """``value`` as bytes (text as UTF-8), None as None; ``what`` is "key" or "value" and occurs in the error only.

    ``bytes`` are passed through. ``bytearray`` and ``memoryview`` are copied, so that later changes by the caller do not
    change a record that waits for room. Raises `InvalidRecord` for any other type.
    """
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, str):
        return _encode_text(value, f"The {what}")
    if isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(cast("BytesLike", value))
    raise InvalidRecord(
        f"The {what} is of type {type(value).__name__}: bytes, bytearray, memoryview, str and None are sent without "
        f"conversion; other types need {what}_serializer=..., for example {what}_serializer=JsonSerializer()."
    )


def normalize_headers(headers: object) -> tuple[tuple[str, bytes | None], ...]:
    """Headers as pairs of text and bytes, in the order given; in a sequence of pairs a name may repeat.

    Takes `HeadersInput`; values follow the rules of `normalize_bytes`. Raises `InvalidRecord` with the name of the wrong
    header: a name is text and never None, because brokers require that.
    """
    if not headers and (headers is None or isinstance(headers, Mapping | Sequence)):
        return ()
    return tuple([_header(pair) for pair in _header_pairs(headers)])


class _CallStyle(enum.Enum):
    """The way in which a serializer takes the context."""

    NOT_AT_ALL = enum.auto()
    POSITIONAL = enum.auto()
    #: ``serialize(topic, headers, data)``
    JAVA = enum.auto()
    #: ``serialize(topic, data)``
    TOPIC = enum.auto()
    CTX = "ctx"
    CONTEXT = "context"


_CONTEXT_NAMES = {"ctx": _CallStyle.CTX, "context": _CallStyle.CONTEXT}


def _call_style(serializer: object, option: str) -> _CallStyle:
    if not callable(serializer):
        method = getattr(serializer, "serialize", None)
        if callable(method):
            return _style_of_method(method, option)
        raise ConfigError(
            f"{option} must be a callable that takes an object and returns bytes; {type(serializer).__name__} "
            "cannot be called. Built-in ones are JsonSerializer(), StringSerializer(), IntegerSerializer() and "
            "LongSerializer()."
        )
    try:
        parameters = list(inspect.signature(serializer).parameters.values())
    except (TypeError, ValueError):  # written in C, with no signature to read
        return _CallStyle.NOT_AT_ALL
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    takes_any = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    demanded = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if len(required) > 2 or not (positional or takes_any) or not set(demanded) <= set(_CONTEXT_NAMES):
        raise ConfigError(
            f"{option} is called with the object and, if it takes a second parameter, a SerializationContext; "
            f"{_name_of(serializer)}{inspect.signature(serializer)} does not match. Wrap it: lambda obj: ..."
        )
    if len(required) == 2 or (len(positional) > 1 and positional[1].name in _CONTEXT_NAMES):
        return _CallStyle.POSITIONAL
    by_name = [_CONTEXT_NAMES[p.name] for p in parameters if p.kind is p.KEYWORD_ONLY and p.name in _CONTEXT_NAMES]
    return by_name[0] if by_name else _CallStyle.NOT_AT_ALL


def _style_of_method(method: Callable[..., object], option: str) -> _CallStyle:
    """The style of a method ``serialize``, by the number of arguments that it can be called with."""
    signature = inspect.signature(method)
    for style, arguments in ((_CallStyle.JAVA, 3), (_CallStyle.TOPIC, 2)):
        try:
            signature.bind(*range(arguments))
        except TypeError:
            continue
        return style
    raise ConfigError(
        f"{option}: its method is called as serialize(topic, headers, data) or serialize(topic, data), and "
        f"{_name_of(method)}{signature} does not match. Wrap it: lambda obj: ..."
    )


def _identity(field: MessageField) -> PreparedSerializer:
    def serialize(topic: str, value: object, headers: list[Header], /) -> bytes | None:
        return normalize_bytes(value, field)

    return serialize


def _guarded(serializer: Serializer, style: _CallStyle, field: MessageField) -> PreparedSerializer:
    call = cast("_Callable", serializer)
    method: Callable[..., object] = getattr(serializer, "serialize", call)

    def serialize(topic: str, value: object, headers: list[Header], /) -> bytes | Awaitable[bytes | None] | None:
        if value is None:
            return None
        try:
            if style is _CallStyle.NOT_AT_ALL:
                result: object = call(value)
            elif style is _CallStyle.POSITIONAL:
                result = call(value, SerializationContext(topic, field, headers))
            elif style is _CallStyle.JAVA:
                result = method(topic, headers, value)
            elif style is _CallStyle.TOPIC:
                result = method(topic, value)
            else:
                result = call(value, **{style.value: SerializationContext(topic, field, headers)})
        except Exception as error:  # foreign code
            raise _failed(serializer, field, topic, value, error) from error
        if type(result) is bytes:
            return result
        if isinstance(result, Awaitable):
            return _finish(cast("Awaitable[object]", result), topic, value)
        return _checked(result, topic, value)

    async def _finish(result: Awaitable[object], topic: str, value: object) -> bytes | None:
        try:
            serialized = await result
        except Exception as error:  # foreign code
            raise _failed(serializer, field, topic, value, error) from error
        return _checked(serialized, topic, value)

    def _checked(serialized: object, topic: str, value: object) -> bytes | None:
        try:
            return normalize_bytes(serialized, field)
        except InvalidRecord:
            pass
        raise SerializationError(
            f"The {field} serializer {_name_of(serializer)} returned {type(serialized).__name__} for an object of type "
            f"{type(value).__name__} for topic {topic!r}; it must return bytes, bytearray, memoryview, str or None."
        )

    return serialize


def _failed(serializer: object, field: MessageField, topic: str, value: object, error: Exception) -> SerializationError:
    reason = str(error) if isinstance(error, KafkaError) else f"{type(error).__name__}: {error}"
    failed = SerializationError(
        f"The {field} serializer {_name_of(serializer)} failed for an object of type {type(value).__name__} for topic "
        f"{topic!r}: {reason}"
    )
    failed.retriable = isinstance(error, KafkaError) and error.retriable  # as if its schema registry is down
    return failed


def _name_of(serializer: object) -> str:
    return getattr(serializer, "__qualname__", None) or type(serializer).__name__


def _encode_text(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRecord(
            f"{what} is text that UTF-8 cannot encode ({error.reason} at position {error.start}); encode it to bytes "
            f"first, for example with errors='surrogateescape'."
        ) from None


# Declared as classes of objects, so that a type checker does not treat the elements as unknown.
_TEXT_OR_BYTES: tuple[type[object], ...] = (str, bytes, bytearray, memoryview)
_PAIRS: tuple[type[object], ...] = (tuple, list)


def _header_pairs(headers: object) -> Iterable[object]:
    if isinstance(headers, Mapping):
        return cast("Mapping[object, object]", headers).items()
    if isinstance(headers, _TEXT_OR_BYTES) or not hasattr(headers, "__iter__"):
        raise InvalidRecord(
            f"headers is of type {type(headers).__name__}; it must be a mapping such as {{'trace': b'1'}} or a "
            f"sequence of pairs such as [('trace', b'1')]."
        )
    return cast("Iterable[object]", headers)


def _header(pair: object) -> tuple[str, bytes | None]:
    members = cast("Sequence[object]", pair) if isinstance(pair, _PAIRS) else ()
    if len(members) != 2:
        raise InvalidRecord(
            f"A header is a pair of name and value such as ('trace', b'1'), and this one is of type "
            f"{type(pair).__name__} with {len(members)} members."
        )
    name, value = members
    if type(name) is not str:
        if not isinstance(name, str):
            raise InvalidRecord(f"The name of a header is of type {type(name).__name__}; it must be str.")
        name = str(name)
    if value is None or type(value) is bytes:
        return name, value
    if isinstance(value, str):
        return name, _encode_text(value, f"The value of the header {name!r}")
    if isinstance(value, bytes | bytearray | memoryview):
        return name, bytes(cast("BytesLike", value))
    raise InvalidRecord(
        f"The value of the header {name!r} is of type {type(value).__name__}; it must be bytes, bytearray, memoryview, "
        "str or None. Encode it first."
    )
