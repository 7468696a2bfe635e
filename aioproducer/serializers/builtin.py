"""The built-in serializers; users import them from `aioproducer.serializers` or `aioproducer`."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, time
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, cast
from uuid import UUID

from aioproducer.types import BytesLike

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["BytesSerializer", "IntegerSerializer", "JsonSerializer", "LongSerializer", "StringSerializer"]


@dataclass(frozen=True, slots=True)
class StringSerializer:
    """Text to bytes in ``encoding``; other objects raise, so that ``str(obj)`` is not sent by accident."""

    encoding: str = "utf-8"

    def __call__(self, obj: str) -> bytes:
        if not isinstance(cast("object", obj), str):
            raise TypeError(f"StringSerializer takes str, not {type(obj).__name__}")
        return obj.encode(self.encoding)


@dataclass(frozen=True, slots=True)
class BytesSerializer:
    """Bytes, unchanged; unlike having no serializer, it refuses text."""

    def __call__(self, obj: BytesLike) -> BytesLike:
        if not isinstance(cast("object", obj), bytes | bytearray | memoryview):
            raise TypeError(f"BytesSerializer takes bytes, bytearray or memoryview, not {type(obj).__name__}")
        return obj


@dataclass(frozen=True, slots=True)
class IntegerSerializer:
    """An int as 4 bytes, big-endian and signed, as Java's IntegerSerializer writes it."""

    def __call__(self, obj: int) -> bytes:
        return struct.pack(">i", obj)


@dataclass(frozen=True, slots=True)
class LongSerializer:
    """An int as 8 bytes, big-endian and signed, as Java's LongSerializer writes it."""

    def __call__(self, obj: int) -> bytes:
        return struct.pack(">q", obj)


@dataclass(frozen=True, slots=True)
class JsonSerializer:
    """Any object as compact JSON in UTF-8.

    Beyond what `json` takes: dataclasses, pydantic models (through ``model_dump``), enums (their value), dates and times
    (ISO 8601), UUIDs and sets. ``default`` is called first for an object that `json` does not know, and returns one that
    it does; it must be importable if the configuration is pickled. NaN and infinities raise, because they are not JSON.

    orjson, if installed, does the work faster; objects that it refuses go to the standard library, so that the set of
    accepted objects does not depend on it. One difference remains: orjson writes NaN as ``null``.
    """

    default: Callable[[object], object] | None = None
    sort_keys: bool = False

    def __call__(self, obj: object) -> bytes:
        if _orjson is not None:
            try:
                return self._orjson_dumps(_orjson, obj)
            except TypeError:  # orjson.JSONEncodeError too; the standard library has the last word
                pass
        return json.dumps(
            obj,
            default=self._default,
            sort_keys=self.sort_keys,
            separators=(",", ":"),
            ensure_ascii=False,
            allow_nan=False,
        ).encode()

    def _orjson_dumps(self, orjson: ModuleType, obj: object) -> bytes:
        options = orjson.OPT_NON_STR_KEYS | (orjson.OPT_SORT_KEYS if self.sort_keys else 0)
        return cast("bytes", orjson.dumps(obj, self._default, options))

    def _default(self, obj: object) -> object:
        if self.default is not None:
            return self.default(obj)
        return _jsonable(obj)


def _optional_module(name: str) -> ModuleType | None:
    try:
        return import_module(name)
    except ImportError:
        return None


_orjson = _optional_module("orjson")


def _jsonable(obj: object) -> object:
    if is_dataclass(obj) and not isinstance(obj, type):
        return {field.name: getattr(obj, field.name) for field in fields(obj)}
    if isinstance(obj, Enum):
        return cast("object", obj.value)
    if isinstance(obj, date | time):
        return obj.isoformat()
    if isinstance(obj, UUID):
        return str(obj)
    if isinstance(obj, set | frozenset):
        return list(cast("Iterable[object]", obj))
    model_dump = getattr(obj, "model_dump", None)
    if callable(model_dump):
        return model_dump(mode="json")
    raise TypeError(f"an object of type {type(obj).__name__} is not JSON; JsonSerializer(default=...) can convert it")
