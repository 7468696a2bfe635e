"""The native encoder gives the bytes and raises the errors of the one in Python, and is in use where it was built."""

from __future__ import annotations

import mmap
import os
import pkgutil
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aioproducer
import aioproducer.record
from aioproducer import record
from aioproducer._twin import NATIVE_MODULES
from aioproducer.errors import RecordTooLarge
from aioproducer.record import Codec, RecordBatchBuilder, _encoded_batch, _pure, compress
from aioproducer.record._murmur2 import murmur2, partition_for_key
from aioproducer.record.reader import Record

Builder = type[RecordBatchBuilder]
Outcome: TypeAlias = "tuple[type[Exception], str] | int"


def was_built(module: str) -> bool:
    path = Path(aioproducer.__file__).parent.parent.joinpath(*module.split("."))
    return any(path.with_name(path.name + suffix).exists() for suffix in EXTENSION_SUFFIXES)


def must_be_native() -> bool:
    """In CI a build that went wrong must not make us test Python twice."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    return bool(os.environ.get("CI")) and shutil.which(compiler) is not None


NATIVE_EXISTS = was_built("aioproducer.record._native") or must_be_native()
needs_native = pytest.mark.skipif(not NATIVE_EXISTS, reason="the native extension was not built here")


# -- which one is in use -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", NATIVE_MODULES)
def test_a_native_module_that_was_built_can_be_loaded(module: str) -> None:
    if not (was_built(module) or must_be_native()):
        pytest.skip("the native extension was not built here")

    assert Path(import_module(module).__file__ or "").suffix in {".so", ".pyd"}


def the_builder_in_use(**environment: str) -> str:
    program = "from aioproducer.record import RecordBatchBuilder as builder; print(builder.__module__)"
    environment = {**os.environ, "AIOPRODUCER_PURE": "", **environment}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.broker  # starts a program
@needs_native
def test_the_native_encoder_is_in_use_where_it_was_built() -> None:
    assert the_builder_in_use() == "aioproducer.record._native"


@pytest.mark.broker  # starts a program
@pytest.mark.parametrize("word", ["1", "true", "YES"])
def test_the_environment_chooses_python(word: str) -> None:
    assert the_builder_in_use(AIOPRODUCER_PURE=word) == "aioproducer.record._pure"


# -- the same bytes and errors -----------------------------------------------------------------------------------------


class Text(str):
    """A str, but not exactly."""


class Pair(tuple[Any, ...]):
    """A tuple, but not exactly."""


contents = st.none() | st.binary(max_size=100) | st.integers(0, 9000).map(lambda size: b"x" * size)
fields: st.SearchStrategy[object] = (
    contents
    | st.binary(max_size=70).map(bytearray)
    | st.binary(max_size=70).map(lambda data: memoryview(data))
    | st.binary(max_size=70).map(lambda data: memoryview(data)[::-2])
    | st.integers(0, 70).map(lambda items: memoryview(bytes(8 * items)).cast("Q"))
    | st.integers(1, 7).map(lambda rows: memoryview(bytes(range(rows * 3))).cast("B", (rows, 3)))
)
wrong = st.sampled_from(["text", 5, [1, 2], 1.5])
names = st.text(max_size=10) | st.sampled_from(["\ud800", "a\udfffb", Text("subclass"), "n" * 70])
pairs = st.tuples(names, contents) | st.tuples(names, contents).map(Pair) | st.tuples(names, fields)
header_lists = (
    st.none()
    | st.lists(pairs, max_size=4)
    | st.lists(pairs, max_size=4).map(tuple)
    | st.lists(pairs | st.tuples(wrong, contents) | st.tuples(names, wrong) | st.tuples(names), max_size=3)
    | st.lists(st.tuples(names, contents).map(list), max_size=2)
    | wrong
)
timestamps = (
    st.integers(0, 2**63 - 1)
    | st.integers(1_700_000_000_000, 1_700_000_010_000)
    | st.sampled_from([-1, 2**63, -(2**63), 2**200, True])
)
anything = st.tuples(timestamps, fields | wrong, fields | wrong, header_lists)


def outcome(function: Callable[..., int], *arguments: object) -> Outcome:
    try:
        return function(*arguments)
    except Exception as error:
        return type(error), str(error)


@needs_native
@settings(deadline=None, max_examples=400)
@given(records=st.lists(anything, max_size=8), expected_size=st.integers(0, 20_000))
def test_both_write_the_same_bytes_and_refuse_the_same_in_the_same_words(
    records: Sequence[tuple[object, ...]], expected_size: int
) -> None:
    from aioproducer.record import _native

    python, native = _pure.RecordBatchBuilder(expected_size), _native.RecordBatchBuilder(expected_size)

    for parts in records:
        assert outcome(native.append, *parts) == outcome(python.append, *parts)
        assert (native.count, native.size, native.largest_record) == (python.count, python.size, python.largest_record)
        assert (native.base_timestamp, native.max_timestamp) == (python.base_timestamp, python.max_timestamp)

    assert native.read_records() == python.read_records()
    assert native.close() == python.close()
    assert outcome(native.append, 1, None, None) == outcome(python.append, 1, None, None)


@needs_native
@settings(deadline=None, max_examples=200)
@given(parts=st.tuples(fields | wrong, fields | wrong, header_lists))
def test_both_know_the_same_upper_bound(parts: tuple[object, ...]) -> None:
    from aioproducer.record import _native

    assert outcome(_native.record_size_upper_bound, *parts) == outcome(_pure.record_size_upper_bound, *parts)


@needs_native
@settings(deadline=None, max_examples=200)
@given(key=fields | wrong, partitions=st.integers(0, 2**40))
def test_both_hash_alike(key: object, partitions: int) -> None:
    from aioproducer.record import _native

    assert outcome(_native.murmur2, key) == outcome(murmur2, key)
    found = outcome(_native.partition_for_key, key, partitions)
    expected = outcome(partition_for_key, key, partitions)
    assert found == expected or (not partitions and isinstance(found, tuple) and found[0] is ZeroDivisionError)


# -- what only native code can get wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize("expected_size", [0, 61, 600, 16_384, 1 << 20])
def test_a_batch_may_become_smaller_or_larger_than_expected(builder_class: Builder, expected_size: int) -> None:
    for count in (1, 4, 40, 160, 2000):
        builder = builder_class(expected_size)
        for number in range(count):
            builder.append(number, b"%d" % number, b"v" * 100)
        body = bytes(builder.close())
        assert len(body) == builder.size - record.BATCH_OVERHEAD
        assert [found.key for found in builder.read_records()] == [b"%d" % number for number in range(count)]


def test_a_closed_batch_without_records_is_empty(builder_class: Builder) -> None:
    assert bytes(builder_class().close()) == b""


def test_records_read_from_an_open_batch_stay_what_they_were(builder_class: Builder) -> None:
    builder = builder_class()
    builder.append(1, b"k", b"v")
    first = builder.read_records()

    for _ in range(1000):
        builder.append(2, b"K", b"V")

    assert first == [Record(0, 1, b"k", b"v")]


@needs_native
def test_the_bytes_of_a_closed_batch_are_not_copied() -> None:
    from aioproducer.record import _native

    builder = _native.RecordBatchBuilder()
    for number in range(100):
        builder.append(number, None, b"value")

    body = builder.close()

    assert body is builder.close()
    assert record.compress(record.Codec.NONE, body) is body


class Interfering:
    """Headers that, while they are read, append to the very batch that they are written to, or close it."""

    def __init__(self, interfere: Callable[[], object]) -> None:
        self.interfere = interfere

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        self.interfere()
        yield "name", b"value"


@needs_native
def test_headers_that_append_to_their_own_batch_do_it_no_harm() -> None:
    from aioproducer.record import _native

    builder = _native.RecordBatchBuilder()
    builder.append(7, None, b"0")
    headers: Any = Interfering(lambda: builder.append(8, None, b"1" * 5000))

    builder.append(9, None, b"2", headers)

    assert builder.read_records() == [
        Record(0, 7, None, b"0"),
        Record(1, 8, None, b"1" * 5000),
        Record(2, 9, None, b"2", (("name", b"value"),)),
    ]


@needs_native
def test_headers_that_close_their_own_batch_are_not_in_it() -> None:
    from aioproducer.record import _native

    builder = _native.RecordBatchBuilder()
    builder.append(7, None, b"0")
    headers: Any = Interfering(builder.close)

    with pytest.raises(aioproducer.ProducerStateError, match="closed"):
        builder.append(9, None, b"2", headers)

    assert builder.read_records() == [Record(0, 7, None, b"0")]


@needs_native
def test_a_record_that_the_format_cannot_hold_is_refused_before_it_is_copied() -> None:
    from aioproducer.record import _native

    builder = _native.RecordBatchBuilder()
    builder.append(1, None, b"v")
    with (
        mmap.mmap(-1, 2**31 - 80) as never_touched,
        memoryview(never_touched) as value,
        pytest.raises(RecordTooLarge, match="would exceed"),
    ):
        builder.append(1, None, value)

    assert (builder.count, builder.read_records()) == (1, [Record(0, 1, None, b"v")])


def fails_without_memory(allocation: int, append: Callable[..., int], *arguments: object) -> bool:
    """Whether appending fails where the so manieth request for memory, counted from 0, is refused, and only that."""
    hooks = pytest.importorskip("_testcapi")
    failed = False
    # Not a context manager: it would itself need memory between the two calls.
    hooks.set_nomemory(allocation, allocation + 1)
    try:
        append(*arguments)
    except MemoryError:
        failed = True
    finally:
        hooks.remove_mem_hooks()
    return failed


def state_of(builder: Any) -> tuple[object, ...]:
    sizes = builder.count, builder.size, builder.largest_record
    return *sizes, builder.base_timestamp, builder.max_timestamp, builder.read_records()


@pytest.mark.parametrize("records_before", [0, 4])
def test_where_memory_ends_a_record_is_there_entirely_or_not_at_all(
    builder_class: Builder, records_before: int
) -> None:
    value, headers = b"v" * 400, [("é" * 300, b"h" * 300)]
    failures = 0
    for allocation in range(40):
        builder = builder_class()
        for number in range(records_before):
            builder.append(1000 + number, None, b"v" * 120)
        state = state_of(builder)
        failed = fails_without_memory(allocation, builder.append, 2000, None, value, headers)
        if failed:
            failures += 1
            assert state_of(builder) == state
        builder.append(3000, b"k", None)
        assert len(builder.read_records()) == builder.count == records_before + 2 - failed

    assert failures


def test_no_module_has_the_name_of_a_function_of_its_package() -> None:
    """As soon as such a module is imported, it takes the function's place."""
    modules = {each.name for each in pkgutil.iter_modules(aioproducer.record.__path__)}

    assert modules.isdisjoint(aioproducer.record.__all__)


# -- the header of a batch -----------------------------------------------------------------------------------------------


@needs_native
@given(
    records=st.lists(st.tuples(st.integers(0, 2**63 - 1), st.binary(max_size=40)), min_size=1, max_size=5),
    codec=st.sampled_from([Codec.NONE, Codec.GZIP]),
    producer_id=st.integers(-1, 2**63 - 1),
    producer_epoch=st.integers(-1, 2**15 - 1),
    base_sequence=st.integers(-1, 2**31 - 1),
    transactional=st.booleans(),
)
def test_both_write_the_same_header(
    records: list[tuple[int, bytes]],
    codec: Codec,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    transactional: bool,
) -> None:
    native = import_module("aioproducer.record._encoded_batch_native")
    builder = RecordBatchBuilder()
    for timestamp_ms, value in records:
        builder.append(timestamp_ms, None, value)
    body = compress(codec, builder.close())

    batches = [each.EncodedBatch(builder, codec, body) for each in (_encoded_batch, native)]

    pure, twin = [batch.pieces for batch in batches]
    assert twin == pure
    for batch in batches:
        batch.stamp(producer_id, producer_epoch, base_sequence, transactional)
    assert batches[1].pieces == batches[0].pieces
    for name in _encoded_batch.EncodedBatch.__slots__:
        if not name.startswith("_"):
            assert getattr(batches[1], name) == getattr(batches[0], name)
    assert batches[1].read_records() == batches[0].read_records()
