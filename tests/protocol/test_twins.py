"""The native codec writes the bytes, reads the messages and raises the errors of the one that is compiled to Python."""

from __future__ import annotations

import gc
import random
import re
import struct
import sys
import uuid
import weakref
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from aioproducer.errors import ProtocolError
from aioproducer.protocol import Message, compiler
from aioproducer.protocol.message import Array, Int8, Int32, Records, String, Struct, always, since
from aioproducer.protocol.messages import ApiVersionsRequest, MetadataResponse, ProduceRequest, ProduceResponse
from aioproducer.protocol.messages.produce import PartitionProduceData, TopicProduceData
from tests.protocol.spoken import every_message

try:
    native: Any = import_module("aioproducer.protocol._native")
except ImportError:  # tests/record/test_twins.py says where that is wrong
    pytest.skip("the native extension was not built here", allow_module_level=True)

Filled: TypeAlias = Callable[..., Message]
MessagesOf: TypeAlias = Callable[[type[Message], int], SearchStrategy[Message]]


def written(twin: Any, message: Struct, version: int, flexible: bool | None = None) -> object:
    """The twin's encoding of the message after some existing bytes, or its refusal."""
    buffer, pieces = bytearray(b"header"), [b"first"]
    if flexible is None:
        assert isinstance(message, Message)
        flexible = message.is_flexible(version)
    try:
        twin.compile_encoder(type(message), version, flexible)(message, buffer, pieces)
    except Exception as error:
        return type(error), str(error)
    return bytes(buffer), pieces


def read(twin: Any, cls: type[Struct], version: int, data: bytes, position: int = 0, end: int | None = None) -> object:
    flexible = issubclass(cls, Message) and cls.is_flexible(version)
    try:
        return twin.compile_decoder(cls, version, flexible)(data, position, len(data) if end is None else end)
    except Exception as error:
        return type(error), str(error)


@every_message
@pytest.mark.parametrize("tagged", [True, False])
def test_messages_are_written_and_read_alike(cls: type[Message], version: int, tagged: bool, filled: Filled) -> None:
    message = filled(cls, version, tagged=tagged)
    data = b"?" + message.encode(version)

    assert written(native, message, version) == written(compiler, message, version)
    assert read(native, cls, version, data, 1) == read(compiler, cls, version, data, 1) == (message, len(data))


@every_message
def test_bytes_that_are_not_the_message_are_refused_alike(cls: type[Message], version: int, filled: Filled) -> None:
    data = filled(cls, version, tagged=version % 2 == 0).encode(version)
    changed = [data[:at] + bytes([byte]) + data[at + 1 :] for at in range(len(data)) for byte in (0x00, 0x80, 0xFF)]
    noise = random.Random(f"{cls.__name__} {version}")

    for hostile in [*(data[:size] for size in range(len(data))), *changed, *map(noise.randbytes, range(60))]:
        assert read(native, cls, version, hostile) == read(compiler, cls, version, hostile)


@pytest.mark.parametrize("cls", [ProduceRequest, ProduceResponse, MetadataResponse])
@given(st.data())
def test_any_message_is_written_and_read_alike(
    cls: type[Message], messages_of: MessagesOf, data: st.DataObject
) -> None:
    version = data.draw(st.integers(*cls.versions))
    message = data.draw(messages_of(cls, version))
    encoded = message.encode(version)

    assert written(native, message, version) == written(compiler, message, version)
    assert read(native, cls, version, encoded) == read(compiler, cls, version, encoded)


class Number(int):
    """An int, but not exactly."""


class Words(str):
    """A str, but not exactly."""


def produce(**changes: Any) -> ProduceRequest:
    partition = PartitionProduceData(index=changes.pop("index", 0), records=changes.pop("records", b"records"))
    topic = TopicProduceData(
        name=changes.pop("name", "orders"),
        topic_id=changes.pop("topic_id", uuid.UUID(int=1)),
        partition_data=changes.pop("partition_data", [partition]),
    )
    return ProduceRequest(
        **({"transactional_id": None, "acks": -1, "timeout_ms": 30_000, "topic_data": [topic]} | changes)
    )


@pytest.mark.parametrize("version", [3, 9, 12, 13])
@pytest.mark.parametrize(
    "changes",
    [
        {"acks": 40_000},
        {"acks": -40_000},
        {"acks": 1.5},
        {"acks": None},
        {"acks": True},
        {"timeout_ms": Number(7)},
        {"timeout_ms": 1 << 31},
        {"timeout_ms": 1 << 70},
        {"transactional_id": Words("mine")},
        {"transactional_id": "\ud800"},
        {"transactional_id": "x" * 40_000},
        {"transactional_id": 7},
        {"topic_data": None},
        {"topic_data": ()},
        {"topic_data": [object()]},
        {"name": None},
        {"name": "\u00fc" * 100},
        {"topic_id": "no uuid"},
        {"partition_data": (PartitionProduceData(index=1, records=None),)},
        {"index": -1},
        {"records": None},
        {"records": [b"a", bytearray(b"b"), memoryview(b"c")]},
        {"records": (b"a", b"b")},
        {"records": memoryview(b"abc")},
        {"records": bytearray(b"abc")},
        {"records": [b"a", 7]},
        {"records": "text"},
        {"records": []},
    ],
    ids=lambda changes: re.sub(" at 0x[0-9a-f]+", "", str(changes)),
)
def test_values_of_all_kinds_are_written_or_refused_alike(changes: dict[str, Any], version: int) -> None:
    message = produce(**changes)

    assert written(native, message, version) == written(compiler, message, version)


def test_a_struct_that_lacks_a_field_is_refused_alike() -> None:
    message = produce()
    del message.acks

    assert written(native, message, 9) == written(compiler, message, 9)


class Endless(bytes):
    """Bytes that say of themselves that they fill all memory."""

    def __len__(self) -> int:
        return sys.maxsize


@pytest.mark.parametrize("version", [3, 9])
def test_records_whose_length_is_beyond_all_numbers_are_written_or_refused_alike(version: int) -> None:
    for pieces in ([Endless(b"a")], [Endless(b"a"), Endless(b"b")], [b"a", Endless(b"b"), Endless(b"c"), b"abc"]):
        message = produce(records=pieces)

        assert written(native, message, version) == written(compiler, message, version)


class LateNulls(Struct):
    records: Records = always(nullable=1)


@pytest.mark.parametrize("flexible", [True, False])
@pytest.mark.parametrize("version", [0, 1])
def test_records_that_must_not_be_null_yet_are_written_or_refused_alike(version: int, flexible: bool) -> None:
    for records in (None, b"records"):
        message = LateNulls(records=records)

        assert written(native, message, version, flexible) == written(compiler, message, version, flexible)


class Restless:
    """Can be written as a partition, and changes something as soon as its records are looked at."""

    index = 1

    def __init__(self, change: Callable[[], object]) -> None:
        self.change = change

    @property
    def _records(self) -> list[bytes]:
        self.change()
        return [Witness(weakref.ref(self))]


class Witness(bytes):
    """Records that say by their length whether the partition is still there when they are written: three bytes, or none."""

    about: weakref.ref[Restless]

    def __new__(cls, about: weakref.ref[Restless]) -> Witness:
        self = super().__new__(cls, b"abc")
        self.about = about
        return self

    def __len__(self) -> int:
        return 0 if self.about() is None else 3


@pytest.mark.parametrize("twin", [native, compiler], ids=["native", "Python"])
def test_an_element_that_leaves_its_list_while_it_is_written_is_written_to_the_end(twin: Any) -> None:
    partitions: list[Any] = []
    partitions.append(Restless(partitions.clear))

    assert written(twin, produce(partition_data=partitions), 3) == written(
        compiler, produce(index=1, records=[b"abc"]), 3
    )
    assert not partitions


def test_a_list_that_becomes_shorter_while_it_is_written_is_written_as_it_is_then() -> None:
    partitions: list[Any] = []
    partitions += [
        Restless(lambda: partitions.__delitem__(slice(1, None))),
        PartitionProduceData(index=2, records=b"2"),
    ]

    assert written(native, produce(partition_data=partitions), 3) == written(
        compiler, produce(index=1, records=[b"abc"]), 3
    )
    assert len(partitions) == 1


def lists_with_holes() -> list[int]:
    """The lengths of all lists that have room for elements and no elements there, which could not be read."""
    return [len(each) for each in gc.get_objects() if type(each) is list and len(gc.get_referents(each)) < len(each)]


class Observer(Struct):
    """Looks around when it is read in version 0."""

    number: Int8
    holes: Array[Int32] = since(1, factory=lists_with_holes)


class Observers(Struct):
    observers: Array[Observer]


@pytest.mark.parametrize("twin", [native, compiler], ids=["native", "Python"])
def test_an_array_that_is_being_read_can_be_looked_at(twin: Any) -> None:
    found, _ = twin.compile_decoder(Observers, 0, False)(b"\0\0\0\3" + b"\1\2\3", 0, 7)

    assert found.observers == [Observer(number=each, holes=[]) for each in (1, 2, 3)]


@every_message
def test_native_code_needs_no_help_with_usual_messages(
    cls: type[Message], version: int, filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_help(*arguments: object) -> Callable[..., object]:
        def fail(*arguments: object) -> object:
            raise AssertionError("The other twin was asked.")

        return fail

    # Patched: with the help of the other twin the bytes would be the same, only slower.
    monkeypatch.setattr(compiler, "compile_encoder", no_help)
    monkeypatch.setattr(compiler, "compile_decoder", no_help)
    native._codec.cache_clear()
    try:
        message = filled(cls, version, tagged=False)
        pieces: list[Any] = []
        buffer = bytearray()
        native.compile_encoder(cls, version, cls.is_flexible(version))(message, buffer, pieces)
        data = b"".join([*pieces, buffer])
        found = native.compile_decoder(cls, version, cls.is_flexible(version))(data, 0, len(data))
    finally:
        native._codec.cache_clear()

    assert found == (message, len(data))


class Data(bytes):
    """Bytes, but not exactly."""


class Buffer(bytearray):
    """A bytearray, but not exactly."""


class Pieces(list[Any]):
    """A list, but not exactly."""


@pytest.mark.parametrize("kind", [Data, bytearray, memoryview])
@pytest.mark.parametrize("records", [None, b"records"])
def test_bytes_like_objects_are_read_or_refused_alike(kind: Callable[[bytes], Any], records: bytes | None) -> None:
    data = kind(produce(records=records).encode(9))

    assert read(native, ProduceRequest, 9, data) == read(compiler, ProduceRequest, 9, data)


@pytest.mark.parametrize(("buffer", "pieces"), [(Buffer(b"header"), []), (bytearray(b"header"), Pieces([b"first"]))])
def test_into_what_is_almost_a_bytearray_or_a_list_is_written_alike(buffer: bytearray, pieces: list[Any]) -> None:
    for twin in (native, compiler):
        into, finished = type(buffer)(buffer), type(pieces)(pieces)
        twin.compile_encoder(ProduceRequest, 9, True)(produce(), into, finished)

        assert b"".join([*finished, into]) == b"".join([*pieces, buffer, produce().encode(9)])


class Byte(Struct):
    value: Int8


@pytest.mark.parametrize("end", [0, 1, 2, 3, 4, -1, -sys.maxsize - 1, sys.maxsize])
@pytest.mark.parametrize("position", [-1, -2, -3, -4, -1000, 2, 3, 4, sys.maxsize])
def test_positions_that_are_not_within_the_data_are_taken_or_refused_alike(position: int, end: int) -> None:
    data = b"\7\10\11"

    assert read(native, Byte, 0, data, position, end) == read(compiler, Byte, 0, data, position, end)


def test_nothing_is_written_into_an_exported_buffer() -> None:
    for twin in (native, compiler):
        buffer, pieces = bytearray(b"header"), [b"first"]

        with memoryview(buffer), pytest.raises(BufferError):
            twin.compile_encoder(ProduceRequest, 9, True)(produce(), buffer, pieces)

        assert (bytes(buffer), pieces) == (b"header", [b"first"])


def chain(error: BaseException | None) -> list[type[BaseException]]:
    """An error as a traceback shows it: itself, and all its causes."""
    return [] if error is None else [type(error), *chain(error.__cause__ or error.__context__)]


def test_a_refusal_does_not_chain_the_error_of_the_other_twin() -> None:
    for twin in (native, compiler):
        with pytest.raises(ProtocolError) as unreadable:
            twin.compile_decoder(ProduceRequest, 9, True)(b"\0" * 8, 0, 8)
        with pytest.raises(struct.error) as too_large:
            twin.compile_encoder(ProduceRequest, 9, True)(produce(acks=40_000), bytearray(), [])

        assert chain(unreadable.value) == [ProtocolError]
        assert chain(too_large.value) == [struct.error]


def test_an_object_that_is_not_a_class_has_no_codec() -> None:
    codec = type(native.compile_decoder(ApiVersionsRequest, 3, True).__self__)

    for wrong in ((), (None,), (ApiVersionsRequest(),)):
        with pytest.raises(TypeError):
            codec(*wrong)


class Table(Struct):
    rows: Array[Array[String]]


@pytest.mark.parametrize("rows", [[], [[]], [["a"], [], ["b", "c"]]])
def test_arrays_of_arrays_are_written_and_read_alike(rows: list[list[str]]) -> None:
    table = Table(rows=rows)
    buffer = bytearray()
    compiler.compile_encoder(Table, 0, False)(table, buffer, [])

    assert written(native, table, 0, False) == written(compiler, table, 0, False)
    assert read(native, Table, 0, bytes(buffer)) == read(compiler, Table, 0, bytes(buffer)) == (table, len(buffer))


def test_an_object_that_is_not_bytes_is_refused_by_both() -> None:
    for twin in (native, compiler):
        with pytest.raises(TypeError):
            twin.compile_decoder(ApiVersionsRequest, 3, True)(None, 0, 0)
