"""Messages for the tests of the protocol, made from the declarations: random ones, and ones with everything filled in."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from aioproducer.protocol import ErrorCode, Message
from aioproducer.protocol.compiler import Field, FieldType, ListOf
from aioproducer.protocol.wire import BOOL, UUID, ZERO_UUID, Blob, Fixed, Text

MessagesOf: TypeAlias = Callable[[type[Message], int], SearchStrategy[Message]]
Filled: TypeAlias = Callable[..., Message]

#: What fits into a datetime: the oracle turns times into one.
LATEST_MS = 2**41


@pytest.fixture(scope="session")
def messages_of() -> MessagesOf:
    """Strategy for a message with random values in the fields that the version has."""

    def strategy(cls: type[Message], version: int) -> SearchStrategy[Message]:
        return _structs(cls, version)

    return strategy


@pytest.fixture(scope="session")
def filled() -> Filled:
    """A message in which no field of the version has its default, and arrays have two elements.

    Without ``tagged`` the tagged fields do have their defaults.
    """

    def make(cls: type[Message], version: int, *, tagged: bool = True) -> Message:
        message: Message = _filled(cls, version, tagged)
        return message

    return make


def _structs(cls: type[Any], version: int) -> SearchStrategy[Any]:
    fields: tuple[Field, ...] = cls.__struct_fields__
    absent = {field.name: st.builds(_default, st.just(field)) for field in fields if not field.is_in(version)}
    present = {field.name: _values(field, version) for field in fields if field.is_in(version)}
    return st.builds(cls, **absent, **present)


def _default(field: Field) -> Any:
    return field.default if field.factory is None else field.factory()


def _values(field: Field, version: int) -> SearchStrategy[Any]:
    if field.name.endswith("error_code"):
        return st.sampled_from([code.value for code in ErrorCode])
    if field.name.endswith("_ms") and field.type == Fixed("q"):
        return st.integers(0, LATEST_MS)
    values = _plain_values(field.type, version)
    return st.none() | values if field.is_nullable(version) else values


def _plain_values(type_: FieldType, version: int) -> SearchStrategy[Any]:
    if isinstance(type_, Text):
        return st.text(max_size=20) | st.just("x" * 127) | st.just("\u00fc" * 100)
    if isinstance(type_, Blob):
        return st.binary(max_size=20) | st.just(b"x" * 20_000)
    if isinstance(type_, ListOf):
        return st.lists(_plain_values(type_.element, version), max_size=3)
    if not isinstance(type_, Fixed):
        return _structs(type_, version)
    if type_ is BOOL:
        return st.booleans()
    if type_ is UUID:
        return st.uuids() | st.just(ZERO_UUID)
    bits = 8 * struct.calcsize(type_.code)
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


def _filled(cls: type[Any], version: int, tagged: bool) -> Any:
    fields: tuple[Field, ...] = cls.__struct_fields__
    present = [field for field in fields if field.is_in(version)]
    return cls(
        **{field.name: _default(field) for field in fields if field not in present},
        **{
            field.name: _something(field.type, version, tagged) if tagged or field.tag is None else _default(field)
            for field in present
        },
    )


def _something(type_: FieldType, version: int, tagged: bool) -> Any:
    if isinstance(type_, Text):
        return "text"
    if isinstance(type_, Blob):
        return b"bytes"
    if isinstance(type_, ListOf):
        return [_something(type_.element, version, tagged) for _ in range(2)]
    if not isinstance(type_, Fixed):
        return _filled(type_, version, tagged)
    if type_ is UUID:
        return uuid.UUID(int=0x0123456789ABCDEF0123456789ABCDEF)
    return True if type_ is BOOL else 7
