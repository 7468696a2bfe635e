"""Tables in, record batches out: both encoders, every type, and nothing of the table's left behind."""

from __future__ import annotations

import ctypes
import errno
import gc
import itertools
import json
import struct
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from importlib import import_module
from time import thread_time
from types import ModuleType
from typing import Any, Final, NamedTuple

import duckdb
import nanoarrow  # type: ignore[import-untyped]
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer.errors import InvalidRecord, RecordTooLarge
from aioproducer.record import BATCH_OVERHEAD, _columns_pure, columns, partition_for_key, record_size_upper_bound
from aioproducer.record.column_binding import ColumnNames, bind
from aioproducer.record.json_columns import JsonTable
from aioproducer.record.reader import Record

#: Every encoder there is: the one in plain Python, and the one that is in use where that is another.
TWINS = list(dict.fromkeys([_columns_pure.__name__, columns.ColumnEncoder.__module__]))


@pytest.fixture(scope="session", params=TWINS, ids=lambda name: str(name).rpartition(".")[2])
def twin(request: pytest.FixtureRequest) -> ModuleType:
    """Each encoder in turn; whatever holds of one must hold of all."""
    return import_module(request.param)


NOW = 1_700_000_000_000


class Batch(NamedTuple):
    partition: int
    size: int
    payload: int
    body: bytes
    records: list[Record]


def record_sizes(body: bytes) -> Iterator[int]:
    """The size of each record, by its length field."""
    at = 0
    while at < len(body):
        length, shift, begin = 0, 0, at
        while True:
            byte = body[at]
            length |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                break
        at += length >> 1
        yield at - begin


def turns(count: int) -> Callable[[], int]:
    """A choice of partitions that goes round."""
    turn = iter(range(10**9))
    return lambda: next(turn) % count


def encoded(
    twin: Any,
    table: object,
    names: ColumnNames,
    *,
    partitions: int = 3,
    batch_size: int = 200,
    slice_size: int = 1000,
    budget: int = 10**9,
    largest: int = 1 << 20,
    ignore_keys: bool = False,
    ticks_ms: int = 0,
) -> list[Batch]:
    """The batches that a table makes, in the order in which they were full; the clock goes on by ``ticks_ms`` a slice."""
    source = twin.ArrowSource(table)
    encoder = twin.ColumnEncoder(
        source.fields,
        bind(source.fields, names),
        largest=largest,
        largest_option="max_request_size",
        ignore_keys=ignore_keys,
    )
    choose = turns(partitions)
    clock = itertools.count(NOW, ticks_ms)
    full: list[Any] = []
    while (chunk := source.read()) is not None:
        encoder.load(chunk)
        while encoder.remaining:
            size, _ = encoder.check(slice_size)
            allowed = max(budget, size + BATCH_OVERHEAD) if encoder.remaining == 1 else budget
            used = encoder.encode(allowed, batch_size, partitions, next(clock), choose)
            assert used <= allowed
            full += encoder.take_full()
    full += encoder.take_all()
    for _, builder, _ in full:
        assert builder.largest_record == max(record_sizes(bytes(builder.close())))
    return [
        Batch(partition, builder.size, payload, bytes(builder.close()), builder.read_records())
        for partition, builder, payload in full
    ]


def records(*args: Any, **options: Any) -> list[Record]:
    """All records of a table that goes to one partition, in order."""
    found = encoded(*args, partitions=1, **options)
    return [record for batch in found for record in batch.records]


def values(twin: ModuleType, table: object, **options: Any) -> list[bytes | None]:
    return [record.value for record in records(twin, table, ColumnNames(value="v"), **options)]


# -- types ---------------------------------------------------------------------------------------------------------------

LONG = b"longer than twelve bytes, so that a view points elsewhere"

BYTE_TYPES = [
    pa.binary(),
    pa.large_binary(),
    pa.binary_view(),
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.dictionary(pa.int8(), pa.binary()),
    pa.dictionary(pa.int32(), pa.string()),
    pa.dictionary(pa.uint16(), pa.large_string()),
    pa.dictionary(pa.uint8(), pa.string()),
    pa.dictionary(pa.int16(), pa.string()),
    pa.dictionary(pa.uint32(), pa.string()),
    pa.dictionary(pa.int64(), pa.large_binary()),
    pa.dictionary(pa.uint64(), pa.string()),
]


def array_of(kind: pa.DataType, contents: Sequence[bytes | None]) -> pa.Array:
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    plain: list[Any] = list(contents)
    if "string" in str(inner):
        plain = [None if each is None else each.decode() for each in contents]
    array = pa.array(plain, inner)
    return array.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else array


@pytest.mark.parametrize("kind", BYTE_TYPES, ids=str)
def test_text_and_bytes_of_every_arrow_type_are_keys_values_and_headers(twin: ModuleType, kind: pa.DataType) -> None:
    contents = [b"first", None, b"", LONG, LONG, "grüße".encode()]
    column = array_of(kind, contents)
    table = pa.table({"v": column, "k": column, "h": column})

    sent = records(twin, table, ColumnNames(value="v", key="k", headers={"name": "h"}), slice_size=10**6)

    assert [record.value for record in sent] == contents
    assert [record.key for record in sent] == contents
    assert [record.headers for record in sent] == [(("name", each),) for each in contents]


def test_bytes_of_a_fixed_size_are_values(twin: ModuleType) -> None:
    table = pa.table({"v": pa.array([b"abc", None, b"def"], pa.binary(3))})

    assert values(twin, table) == [b"abc", None, b"def"]
    assert values(twin, table.slice(1)) == [None, b"def"]


def test_a_column_of_nulls_makes_tombstones(twin: ModuleType) -> None:
    table = pa.table({"k": ["a", "b"], "v": pa.nulls(2)})

    assert [(each.key, each.value) for each in records(twin, table, ColumnNames(key="k", value="v"))] == [
        (b"a", None),
        (b"b", None),
    ]


def test_an_extension_type_is_read_as_what_it_is_stored_as(twin: ModuleType) -> None:
    table = pa.table({"v": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0123456789abcdef"], pa.binary(16)))})

    assert values(twin, table) == [b"0123456789abcdef"]


TIMES = [0, 1, 1_699_999_999_999, None, 253_402_300_799_000]


@pytest.mark.parametrize(
    "kind",
    [
        pa.timestamp("ms"),
        pa.timestamp("us"),
        pa.timestamp("ns", "Europe/Berlin"),
        pa.timestamp("us", "UTC"),
        pa.int64(),
    ],
    ids=str,
)
def test_timestamps_of_every_unit_become_milliseconds_and_null_is_now(twin: ModuleType, kind: pa.DataType) -> None:
    times = TIMES[:-1] if "ns" in str(kind) else TIMES
    factor = {"ns": 1_000_000, "us": 1000}.get(str(kind).partition("[")[2][:2], 1)
    raw = [None if each is None else each * factor + factor // 2 for each in times]
    table = pa.table({"v": ["x"] * len(times), "t": pa.array(raw, pa.int64()).cast(kind)})

    sent = records(twin, table, ColumnNames(value="v", timestamp="t"))

    assert [record.timestamp_ms for record in sent] == [NOW if each is None else each for each in times]


def test_timestamps_in_seconds_become_milliseconds(twin: ModuleType) -> None:
    table = pa.table({"v": ["x", "y"], "t": pa.array([0, 1_700_000_000], pa.timestamp("s"))})

    sent = records(twin, table, ColumnNames(value="v", timestamp="t"))

    assert [record.timestamp_ms for record in sent] == [0, 1_700_000_000_000]


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_partitions_may_be_integers_of_every_width(twin: ModuleType, kind: str) -> None:
    table = pa.table({"v": ["a", "b", "c", "d"], "p": pa.array([2, 0, 100, None], kind)})

    sent = encoded(twin, table, ColumnNames(value="v", partition="p"), partitions=1)

    assert {(batch.partition, *(record.value for record in batch.records)) for batch in sent} == {
        (2, b"a"),
        (0, b"b", b"d"),  # null leaves the choice open
        (100, b"c"),
    }


HEADER_TYPES = [
    pa.map_(pa.string(), pa.binary()),
    pa.map_(pa.string(), pa.string()),
    pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())])),
    pa.list_(pa.struct([("key", pa.string_view()), ("value", pa.binary_view())])),
]


@pytest.mark.parametrize("kind", HEADER_TYPES, ids=str)
@pytest.mark.parametrize("skipped", [0, 1, 3])
def test_a_column_may_hold_whole_lists_of_headers(twin: ModuleType, kind: pa.DataType, skipped: int) -> None:
    lists = [[("a", b"1"), ("a", None)], None, [], [("", LONG)], [("b", b""), ("c", b"3"), ("d", b"4")]]
    table = pa.table({"v": ["x"] * len(lists), "h": header_array(kind, lists)}).slice(skipped)

    sent = records(twin, table, ColumnNames(value="v", headers="h"))

    assert [list(record.headers) for record in sent] == [each or [] for each in lists[skipped:]]


def header_array(kind: pa.DataType, lists: Sequence[Sequence[tuple[str, bytes | None]] | None]) -> pa.Array:
    if pa.types.is_map(kind):
        return pa.array(lists, pa.map_(pa.string(), pa.binary())).cast(kind)
    return pa.array(
        [None if each is None else [{"key": name, "value": value} for name, value in each] for each in lists], kind
    )


def test_headers_may_come_from_columns_lists_and_constants_in_the_order_that_is_asked_for(twin: ModuleType) -> None:
    table = pa.table({"v": ["x"], "trace": ["t-1"], "h": pa.array([[("a", b"1")]], HEADER_TYPES[0])})
    names = ColumnNames(value="v", headers=[{"source": b"etl"}, "h", {"trace": "trace", "null": "trace"}])

    (sent,) = records(twin, table, names)

    assert sent.headers == (("source", b"etl"), ("a", b"1"), ("trace", b"t-1"), ("null", b"t-1"))


# -- where records go ----------------------------------------------------------------------------------------------------


def test_a_key_decides_the_partition_as_it_does_for_every_client(twin: ModuleType) -> None:
    keys = [f"key-{number}" for number in range(100)]
    table = pa.table({"k": keys, "v": keys})

    sent = encoded(twin, table, ColumnNames(key="k", value="v"), partitions=7)

    assert all(partition_for_key(record.key or b"", 7) == batch.partition for batch in sent for record in batch.records)
    assert sum(len(batch.records) for batch in sent) == 100


def test_without_a_key_one_batch_after_the_other_is_filled(twin: ModuleType) -> None:
    table = pa.table({"v": ["x" * 40] * 12})

    sent = encoded(twin, table, ColumnNames(value="v"), partitions=3, batch_size=250)

    assert [batch.partition for batch in sent] == [0, 1, 2, 0]
    assert [len(batch.records) for batch in sent] == [3, 3, 3, 3]
    assert all(batch.size <= 250 for batch in sent)


def test_keys_can_be_ignored_in_the_choice_of_partitions(twin: ModuleType) -> None:
    table = pa.table({"k": ["a", "b", "c"], "v": ["x" * 400] * 3})

    sent = encoded(twin, table, ColumnNames(key="k", value="v"), ignore_keys=True)

    assert [batch.partition for batch in sent] == [0, 1, 2]


def test_one_partition_can_be_named_for_all(twin: ModuleType) -> None:
    table = pa.table({"k": ["a", "b"], "v": ["x", "y"]})

    (batch,) = encoded(twin, table, ColumnNames(key="k", value="v", partition=2))

    assert (batch.partition, [record.key for record in batch.records]) == (2, [b"a", b"b"])


def test_a_batch_holds_one_record_at_least(twin: ModuleType) -> None:
    table = pa.table({"v": ["x" * 500, "y", "z" * 500]})

    sent = encoded(twin, table, ColumnNames(value="v"), batch_size=0)

    assert [len(batch.records) for batch in sent] == [1, 1, 1]


def test_keys_and_values_are_counted(twin: ModuleType) -> None:
    table = pa.table({"k": ["a", None, "ccc"], "v": ["x" * 10, "y", None]})

    sent = encoded(twin, table, ColumnNames(key="k", value="v", partition=0))

    assert sum(batch.payload for batch in sent) == 1 + 3 + 10 + 1


def test_a_row_that_does_not_fit_into_the_budget_is_encoded_next_time(twin: ModuleType) -> None:
    table = pa.table({"v": [f"value {number}" for number in range(50)]})

    assert values(twin, table, budget=300) == [b"value %d" % number for number in range(50)]


# -- sources -------------------------------------------------------------------------------------------------------------


def chunked() -> pa.Table:
    parts = [["a", None], [], ["b"], ["c", "d", "e"], []]
    return pa.table({"v": pa.chunked_array([pa.array(part, pa.string()) for part in parts])})


def reader() -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(chunked().schema, iter(chunked().to_batches()))


SOURCES: Mapping[str, Callable[[], object]] = {
    "pyarrow.Table": chunked,
    "pyarrow.Table of slices": lambda: pa.table({"v": ["no", "a", None, "b", "c", "d", "e", "no"]}).slice(1, 6),
    "pyarrow.RecordBatch": lambda: pa.record_batch({"v": ["a", None, "b", "c", "d", "e"]}),
    "pyarrow.RecordBatchReader": reader,
    "pyarrow.StructArray": lambda: pa.array([{"v": each} for each in ("no", "a", None, "b", "c", "d", "e")]).slice(1),
    "polars": lambda: pl.DataFrame({"v": ["a", None, "b", "c", "d", "e"]}),
    "polars, categories": lambda: pl.DataFrame({"v": ["a", None, "b", "c", "d", "e"]}, schema={"v": pl.Categorical}),
    "polars, chunks": lambda: pl.concat(
        [pl.DataFrame({"v": ["a", None]}), pl.DataFrame({"v": list("bcde")})], rechunk=False
    ),
    "duckdb": lambda: duckdb.sql("select unnest(['a', null, 'b', 'c', 'd', 'e']) as v"),
    "pandas": lambda: pd.DataFrame({"v": ["a", None, "b", "c", "d", "e"]}),
    "nanoarrow": lambda: nanoarrow.ArrayStream(reader()),
    "nanoarrow array": lambda: nanoarrow.c_array(pa.record_batch({"v": ["a", None, "b", "c", "d", "e"]})),
}


@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)
def test_every_kind_of_table_is_read(twin: ModuleType, make: Callable[[], object]) -> None:
    assert values(twin, make()) == [b"a", None, b"b", b"c", b"d", b"e"]


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"v": pa.array([], pa.string())}),
        pa.RecordBatchReader.from_batches(pa.schema([("v", pa.string())]), []),
        pl.DataFrame({"v": []}, schema={"v": pl.String}),
        pa.table({"v": pa.chunked_array([[], []], pa.string())}),
    ],
    ids=["no rows", "no chunks", "polars", "empty chunks"],
)
def test_an_empty_table_makes_nothing(twin: ModuleType, table: object) -> None:
    assert encoded(twin, table, ColumnNames(value="v")) == []


@pytest.mark.parametrize("what", [[1, 2], {"v": ["a"]}, "table", None, pl.LazyFrame({"v": ["a"]}), pl.DataFrame])
def test_an_object_that_is_not_a_table_is_refused(what: object) -> None:
    with pytest.raises(InvalidRecord, match="Arrow PyCapsule interface"):
        columns.open_table(what)


def test_a_lazy_table_is_refused_with_what_to_do() -> None:
    with pytest.raises(InvalidRecord, match=r"collect\(\)"):
        columns.open_table(pl.LazyFrame({"v": ["a"]}))


@pytest.mark.parametrize(
    "what", [pa.array(["a"]), pa.chunked_array([["a"]]), pl.Series(["a"])], ids=["array", "chunked", "series"]
)
def test_a_single_column_is_no_table(twin: ModuleType, what: object) -> None:
    with pytest.raises(InvalidRecord, match="must have columns, but this is a single column of type"):
        twin.ArrowSource(what)


def test_the_failure_of_a_stream_comes_out_with_its_words(twin: ModuleType) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"v": ["a"]})
        raise RuntimeError("the disk is gone")

    source = twin.ArrowSource(pa.RecordBatchReader.from_batches(pa.schema([("v", pa.string())]), batches()))

    assert source.read().num_rows == 1
    with pytest.raises(OSError, match=r"^The table could not be read: .*the disk is gone"):
        source.read()
    assert source.read() is None


def test_a_type_that_pyarrow_does_not_know_is_refused_where_pyarrow_has_to_read_it() -> None:
    frame = pl.DataFrame({"v": ["a"], "n": pl.Series([1], dtype=pl.Int128)})
    with pytest.raises(InvalidRecord, match=r"pyarrow cannot read this table: .*'_pli128'. Cast the column"):
        JsonTable(frame, ColumnNames(), None)
    with pytest.raises(InvalidRecord, match=r"pyarrow cannot read this table: .*'_pli128'. Cast the column"):
        _columns_pure.ArrowSource(frame)


# -- what can never be sent ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "kind", "content", "message"),
    [
        ("timestamp", pa.int64(), -1, r"Row 2 .* timestamp -1 \(column 'c'"),
        ("timestamp", pa.timestamp("ns"), -1, "Row 2 .* timestamp -1 "),
        ("timestamp", pa.timestamp("s"), 2**62, "Row 2 .* timestamp 4611686018427387904 "),
        ("partition", pa.int8(), -3, r"Row 2 .* partition -3 \(column 'c'\)"),
        ("partition", pa.uint64(), 2**64 - 1, "Row 2 .* partition 18446744073709551615 "),
        ("partition", pa.int64(), 2**31, "Row 2 .* partition 2147483648 "),
        (
            "headers",
            HEADER_TYPES[2],
            [{"key": None, "value": b""}],
            "Row 2 .* a header in column 'c' is null or has no name",
        ),
        ("headers", HEADER_TYPES[2], [None], "Row 2 .* a header in column 'c' is null or has no name"),
    ],
)
def test_a_row_that_can_never_be_sent_is_named(
    twin: ModuleType, column: str, kind: pa.DataType, content: object, message: str
) -> None:
    usual: Any = None if column != "headers" else []
    raw = pa.int64() if "timestamp" in str(kind) else kind
    array = pa.array([usual, usual, content, usual], raw).cast(kind)
    table = pa.table({"v": ["x"] * 4, "c": array})

    with pytest.raises(InvalidRecord, match=message):
        encoded(twin, table, ColumnNames(value="v", **{column: "c"}))


def test_a_record_that_is_too_large_is_named_before_anything_of_its_slice_is_encoded(twin: ModuleType) -> None:
    table = pa.table({"v": pa.chunked_array([["x"], ["x", "x" * 1000, "x"]])})
    source = twin.ArrowSource(table)
    encoder = twin.ColumnEncoder(
        source.fields, bind(source.fields, ColumnNames(value="v")), largest=1096, largest_option="buffer_memory"
    )
    encoder.load(source.read())
    encoder.check(10_000)
    encoder.encode(10_000, 100, 1, NOW, turns(1))
    encoder.load(source.read())

    with pytest.raises(
        RecordTooLarge, match="Row 2 of the table takes up to 1097 bytes as a record, more than buffer_memory=1096"
    ):
        encoder.check(10_000)

    assert encoder.row == 1
    assert [builder.count for _, builder, _ in encoder.take_all()] == [1]


def free_choice(twin: Any, rows: int) -> Any:
    """An encoder of rows that may go to any partition."""
    source = twin.ArrowSource(pa.table({"v": ["x" * 10] * rows}))
    binding = bind(source.fields, ColumnNames(value="v"))
    encoder = twin.ColumnEncoder(source.fields, binding, largest=1096, largest_option="buffer_memory")
    encoder.load(source.read())
    return encoder


def test_a_partition_has_its_turn_although_its_batches_are_taken_before_they_are_full(twin: ModuleType) -> None:
    encoder = free_choice(twin, 40)
    gone_to: list[int] = []
    choose = turns(4)
    while encoder.remaining:
        encoder.check(1)
        encoder.encode(10_000, 200, 4, NOW, choose)
        gone_to += [partition for partition, _, _ in encoder.take_all()]

    runs = [(partition, len(list(same))) for partition, same in itertools.groupby(gone_to)]
    assert [partition for partition, _ in runs][:5] == [0, 1, 2, 3, 0]
    assert {length for _, length in runs[:-1]} == {3}  # of 78 bytes each


@pytest.mark.parametrize("choices", [0, 1, 3])
def test_whatever_is_raised_while_rows_are_encoded_the_bytes_that_are_held_are_known(
    twin: ModuleType, choices: int
) -> None:
    encoder = free_choice(twin, 100)
    left = iter(range(choices))
    size, _ = encoder.check(10_000)
    with pytest.raises(StopIteration):
        encoder.encode(size + BATCH_OVERHEAD, 200, 4, NOW, lambda: next(left))
    held = encoder.size
    batches = [builder for _, builder, _ in encoder.take_all()]

    assert encoder.size == 0
    assert held == sum(builder.size for builder in batches)
    assert encoder.row == sum(builder.count for builder in batches)
    assert len(batches) == choices
    encoder.encode(size + BATCH_OVERHEAD, 200, 4, NOW, turns(4))
    assert encoder.row == 100


def counts(objects: list[Any]) -> list[int]:
    return [sys.getrefcount(each) for each in objects]


#: The size of batches whose bodies are worth being used again.
KEPT: Final = 5000


def bodies(encoder: Any, batches: int, size: int) -> Iterator[bytes]:
    """The bodies of so many full batches of this size; only who iterates holds them, and the encoder perhaps."""
    choose = turns(4)
    for _ in range(batches):
        full: list[Any] = []
        while not full:
            encoder.check(1)
            encoder.encode(10_000, size, 4, NOW, choose)
            full = encoder.take_full()
        yield full.pop()[1].close()


def test_a_body_that_is_still_referenced_is_never_written_to_again(twin: ModuleType) -> None:
    encoder = free_choice(twin, 30_000)
    kept = [(body, bytes(bytearray(body))) for body in bodies(encoder, 50, KEPT)]
    viewed = [(memoryview(body), bytes(bytearray(body))) for body in bodies(encoder, 50, KEPT)]

    assert all(body == copy for body, copy in (*kept, *viewed))
    assert len({id(body) for body, _ in kept}) == 50


@pytest.mark.skipif(len(TWINS) == 1, reason="the native encoder was not built here")
def test_the_body_of_a_batch_that_is_done_is_used_again() -> None:
    encoder = free_choice(import_module(TWINS[1]), 30_000)
    places: set[int] = set()
    others: list[bytes] = []
    for body in bodies(encoder, 100, KEPT):
        places.add(id(body))
        size = len(body)
        del body
        others.append(bytes(size))  # would lie where the body was, had that been given back

    assert len(places) <= 2
    assert not places & {id(other) for other in others}


@pytest.mark.skipif(len(TWINS) == 1, reason="the native encoder was not built here")
@pytest.mark.parametrize(("size", "most"), [(KEPT, 256), (2000, 0)])
def test_few_bodies_are_kept_and_no_small_ones(size: int, most: int) -> None:
    """To look at all that are kept must cost less than to make a body."""
    encoder = free_choice(import_module(TWINS[1]), 90_000)
    held = list(bodies(encoder, 300, size))
    [mine] = counts([bytearray()])

    assert sum(count > mine for count in counts(held)) == most


@pytest.mark.skipif(len(TWINS) == 1, reason="pyarrow reads it there, and believes it")
@pytest.mark.parametrize("offsets", [[0, 5, 2**63 - 1], [0, 2**63 - 1, 2**63 - 1], [2**62, 2**63 - 1, 2**63 - 1]])
@pytest.mark.parametrize("column", ["value", "key"])
def test_an_offset_beyond_the_end_of_the_buffer_is_refused(offsets: list[int], column: str) -> None:
    written = bytearray(struct.pack("<3q", 0, 5, 10))
    buffers = [None, pa.py_buffer(written), pa.py_buffer(b"x" * 10)]
    lying = pa.LargeBinaryArray.from_buffers(pa.large_binary(), 2, buffers)
    table = pa.table({"value": pa.array([b"a", b"b"]), column: lying})
    written[:] = struct.pack("<3q", *offsets)  # which pyarrow would have refused
    names = ColumnNames(value="value", key="key" if column == "key" else None)

    with pytest.raises((InvalidRecord, RecordTooLarge)):
        encoded(import_module(TWINS[1]), table, names)


def test_after_an_empty_chunk_nothing_is_read_of_the_one_before(twin: ModuleType) -> None:
    schema = pa.schema([("value", pa.binary())])
    chunks = [pa.record_batch([pa.array(values, pa.binary())], schema) for values in ([b"a", b"b"], [], [b"c"])]
    source = twin.ArrowSource(pa.RecordBatchReader.from_batches(schema, chunks))
    binding = bind(source.fields, ColumnNames(value="value"))
    encoder = twin.ColumnEncoder(source.fields, binding, largest=1000, largest_option="max_request_size")

    checked = []
    while (chunk := source.read()) is not None:
        encoder.load(chunk)
        checked.append(encoder.check(1000)[0] > 0)
        encoder.encode(10_000, 1000, 1, NOW, lambda: 0)

    assert checked == [True, False, True]
    assert [builder.count for _, builder, _ in encoder.take_all()] == [3]


def test_a_row_that_is_null_as_a_whole_is_named() -> None:
    if len(TWINS) == 1:
        pytest.skip("pyarrow makes a row of nulls of it")
    native = import_module(TWINS[1])
    with pytest.raises(InvalidRecord, match="Row 1 of the table is null"):
        encoded(native, pa.array([{"v": "a"}, None]), ColumnNames(value="v"))


@pytest.mark.skipif(len(TWINS) == 1, reason="the native encoder was not built here")
def test_a_slice_of_a_mebibyte_takes_the_processor_a_millisecond_or_two() -> None:
    native: Any = import_module(TWINS[1])
    table = pa.table(
        {"v": pa.array([b"x" * 100] * 100_000, pa.binary()), "k": [f"{number}" for number in range(100_000)]}
    )
    source = native.ArrowSource(table)
    binding = bind(source.fields, ColumnNames(key="k", value="v"))
    encoder = native.ColumnEncoder(source.fields, binding, largest=1 << 20, largest_option="max_request_size")
    encoder.load(source.read())
    took: list[float] = []
    while encoder.remaining:
        began = thread_time()
        size, _ = encoder.check(1 << 20)
        encoder.encode(size + BATCH_OVERHEAD, 16_384, 12, NOW, lambda: 0)
        took.append(thread_time() - began)

    assert min(took) < 0.005, "the quickest: a machine that is busy disturbs the others"


# -- both encoders -------------------------------------------------------------------------------------------------------

FIELDS = st.none() | st.binary(max_size=30)
HEADER_LISTS = st.none() | st.lists(st.tuples(st.text(max_size=5), FIELDS), max_size=3)
ROWS = st.lists(
    st.tuples(
        FIELDS,
        FIELDS,
        st.none() | st.integers(0, 2**63 - 1),
        st.none() | st.integers(0, 4),
        HEADER_LISTS,
        FIELDS,
    ),
    max_size=40,
)


@settings(max_examples=60)
@given(
    rows=ROWS,
    cuts=st.lists(st.integers(0, 40), max_size=4),
    skipped=st.integers(0, 5),
    batch_size=st.integers(0, 400),
    slice_size=st.integers(0, 400),
    budget=st.integers(300, 1000),
    named=st.sets(st.sampled_from(["key", "timestamp", "partition", "lists", "header"])),
    ignore_keys=st.booleans(),
)
def test_every_encoder_makes_the_batches_that_records_one_by_one_would(
    rows: list[Any],
    cuts: list[int],
    skipped: int,
    batch_size: int,
    slice_size: int,
    budget: int,
    named: set[str],
    ignore_keys: bool,
) -> None:
    table = table_of(rows, cuts).slice(skipped)
    rows = rows[skipped:]
    names = ColumnNames(
        key="key" if "key" in named else None,
        value="value",
        timestamp="timestamp" if "timestamp" in named else None,
        partition="partition" if "partition" in named else None,
        headers=[*(["lists"] if "lists" in named else []), *([{"own": "header"}] if "header" in named else [])],
    )
    expected = one_by_one(rows, named, batch_size, ignore_keys)

    for name in TWINS:
        made = encoded(
            import_module(name),
            table,
            names,
            batch_size=batch_size,
            slice_size=slice_size,
            budget=budget,
            ignore_keys=ignore_keys,
        )

        assert [(batch.partition, batch.body) for batch in made] == expected, name


#: Types whose values lie one behind the other, which have their own loop in the native encoder, and one whose do not.
VALUE_TYPES = [pa.binary(), pa.large_binary(), pa.string(), pa.large_string(), pa.string_view()]
#: Where lengths begin to take another byte: of values, and of records.
LENGTHS = [0, 1, 15, 56, 57, 63, 64, 100, 8183, 8184, 8191, 8192]


@settings(max_examples=80)
@given(
    kind=st.sampled_from(VALUE_TYPES),
    runs=st.lists(st.tuples(st.none() | st.sampled_from(LENGTHS), st.integers(1, 40)), max_size=6),
    cuts=st.lists(st.integers(0, 200), max_size=2),
    skipped=st.integers(0, 50),
    batch_size=st.integers(0, 20_000),
    slice_size=st.integers(0, 20_000),
    budget=st.integers(9_000, 20_000),
    ticks_ms=st.sampled_from([-70, -1, 0, 1, 70, 10_000, 2**40]),
)
def test_values_alone_make_the_same_batches_in_every_encoder(
    kind: pa.DataType,
    runs: list[tuple[int | None, int]],
    cuts: list[int],
    skipped: int,
    batch_size: int,
    slice_size: int,
    budget: int,
    ticks_ms: int,
) -> None:
    lengths = [length for length, count in runs for _ in range(count)]
    contents = [None if length is None else f"{row}".zfill(length)[:length] for row, length in enumerate(lengths)]
    column = pa.array(contents, pa.string()).cast(kind)
    borders = [0, *sorted(min(cut, len(contents)) for cut in cuts), len(contents)]
    table = pa.table({"v": pa.chunked_array([column[a:b] for a, b in itertools.pairwise(borders)])}).slice(skipped)

    made = [
        encoded(
            import_module(name),
            table,
            ColumnNames(value="v"),
            batch_size=batch_size,
            slice_size=slice_size,
            budget=budget,
            ticks_ms=ticks_ms,
        )
        for name in TWINS
    ]

    reported = [record.value for batch in made[0] for record in batch.records]
    assert sorted(each or b"" for each in reported) == sorted((each or "").encode() for each in contents[skipped:])
    for other in made[1:]:
        assert [batch[:4] for batch in other] == [batch[:4] for batch in made[0]]


@pytest.mark.parametrize("kind", VALUE_TYPES, ids=str)
def test_the_records_of_a_long_batch_have_offsets_of_every_length(kind: pa.DataType) -> None:
    contents = [f"{row}" for row in range(8_200)]
    table = pa.table({"v": pa.array(contents, pa.string()).cast(kind)})

    for name in TWINS:
        (batch,) = encoded(
            import_module(name), table, ColumnNames(value="v"), batch_size=10**6, slice_size=10**6, ticks_ms=1
        )

        assert [(each.offset, each.value) for each in batch.records] == [
            (row, value.encode()) for row, value in enumerate(contents)
        ]


@pytest.mark.parametrize("kind", VALUE_TYPES, ids=str)
def test_a_value_that_is_longer_than_it_may_be_is_found_among_others(twin: ModuleType, kind: pa.DataType) -> None:
    table = pa.table({"v": pa.array(["x" * 100] * 70 + ["x" * 504] + ["x" * 100], pa.string()).cast(kind)})

    with pytest.raises(InvalidRecord, match="Row 70 of the table"):
        encoded(twin, table, ColumnNames(value="v"), largest=600)
    assert len(values(twin, table, largest=601)) == 72


def test_a_row_for_which_no_budget_is_left_keeps_the_partition_that_was_chosen_for_it(twin: ModuleType) -> None:
    rows = [(None, None, None, partition, None, None) for partition in (None, None, None, 0, None, None)]
    names = ColumnNames(value="value", partition="partition")

    made = encoded(twin, table_of(rows, []), names, batch_size=0, slice_size=180, budget=301)

    assert [(batch.partition, batch.body) for batch in made] == one_by_one(rows, {"partition"}, 0, False)


def table_of(rows: Sequence[Any], cuts: Iterable[int]) -> pa.Table:
    keys, contents, timestamps, partitions, lists, headers = zip(*rows, strict=True) if rows else ([],) * 6
    table = pa.table(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(contents, pa.large_binary()),
            "timestamp": pa.array(timestamps, pa.int64()),
            "partition": pa.array(partitions, pa.int16()),
            "lists": pa.array(lists, pa.map_(pa.string(), pa.binary())),
            "header": pa.array(headers, pa.binary_view()),
        }
    )
    borders = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    return pa.concat_tables(table.slice(a, b - a) for a, b in itertools.pairwise(borders))


def one_by_one(rows: Sequence[Any], named: set[str], batch_size: int, ignore_keys: bool) -> list[tuple[int, bytes]]:
    """The expected result by the rules, with the builder alone."""
    from aioproducer.record._pure import RecordBatchBuilder

    choose = turns(3)
    sticky = -1
    open_batches: dict[int, Any] = {}
    full: list[tuple[int, bytes]] = []

    def make_room(partition: int, bound: int) -> bool:
        builder = open_batches.get(partition)
        if builder is None or builder.size + bound <= batch_size:
            return False
        full.append((partition, bytes(open_batches.pop(partition).close())))
        return True

    for key, value, timestamp, partition, lists, header in rows:
        if "key" not in named:
            key = None
        if "timestamp" not in named or timestamp is None:
            timestamp = NOW
        if "partition" not in named:
            partition = None
        headers = [*(lists or [] if "lists" in named else []), *([("own", header)] if "header" in named else [])]
        bound = record_size_upper_bound(key, value, headers)
        if partition is None and key is not None and not ignore_keys:
            partition = partition_for_key(key, 3)
        if partition is None:
            if sticky < 0:
                sticky = choose()
            if make_room(sticky, bound):
                sticky = choose()
            partition = sticky
        make_room(partition, bound)
        builder = open_batches.setdefault(partition, RecordBatchBuilder())
        builder.append(timestamp, key, value, headers)
    return full + [(partition, bytes(builder.close())) for partition, builder in sorted(open_batches.items())]


# -- what is wrong with columns ------------------------------------------------------------------------------------------

WRONG: Mapping[str, tuple[ColumnNames, str]] = {
    "no value": (ColumnNames(), r"value= is missing: .*value_format='json'"),
    "missing": (
        ColumnNames(value="payload"),
        "value='payload': the table has no such column. Its columns are 'value', 'id'",
    ),
    "misspelt": (ColumnNames(value="valeu"), "value='valeu': the table has no such column. Did you mean 'value'?"),
    "case": (ColumnNames(value="VALUE"), "Did you mean 'value'?"),
    "twice": (ColumnNames(value="twice"), "value='twice': 2 columns of the table have this name"),
    "no name": (ColumnNames(value=7), "invalid value=7: must be the name of a column"),  # type: ignore[arg-type]
    "number": (ColumnNames(value="id"), "value='id': this column is int64; a value must be text or bytes"),
    "key": (
        ColumnNames(value="value", key="when"),
        r"key='when': this column is timestamp\[us\]; a key must be text or bytes",
    ),
    "decimal": (ColumnNames(value="price"), "value='price': this column is decimal;"),
    "dictionary": (ColumnNames(value="code"), "value='code': this column is dictionary of int64;"),
    "timestamp": (ColumnNames(value="value", timestamp="day"), "timestamp='day': this column is date32; it must be a"),
    "time": (ColumnNames(value="value", timestamp="value"), "timestamp='value': this column is string; it must be a"),
    "partition": (
        ColumnNames(value="value", partition="value"),
        "partition='value': this column is string; partitions are",
    ),
    "negative": (ColumnNames(value="value", partition=-1), "partition=-1: must be an integer of at least 0"),
    "bool": (ColumnNames(value="value", partition=True), "partition=True: must be an integer"),
    "lists": (
        ColumnNames(value="value", headers="numbers"),
        "headers='numbers': this column is list; a column of headers must be",
    ),
    "one": (
        ColumnNames(value="value", headers="value"),
        r"headers='value': this column is string; .*headers={'name': 'value'}",
    ),
    "header": (
        ColumnNames(value="value", headers={"h": "id"}),
        r"headers\['h'\]='id': this column is int64; headers must be text",
    ),
    "no header": (ColumnNames(value="value", headers={"h": "idd"}), r"headers\['h'\]='idd': .*Did you mean 'id'\?"),
    "surrogate": (ColumnNames(value="value", headers={"\ud800": "value"}), "lone surrogate"),
    "constant": (ColumnNames(value="value", headers={"h": 1}), r"headers\['h'\]=1: must be the name of a column"),  # type: ignore[dict-item]
    "header name": (ColumnNames(value="value", headers={1: "id"}), "the name of a header must be text, not 1"),  # type: ignore[dict-item]
}


@pytest.mark.parametrize(("names", "message"), WRONG.values(), ids=WRONG)
def test_a_column_that_cannot_be_what_it_is_to_be_is_refused(
    twin: ModuleType, names: ColumnNames, message: str
) -> None:
    table = pa.Table.from_arrays(
        [
            pa.array(["a"]),
            pa.array([1]),
            pa.array([datetime(2026, 1, 1)]),  # noqa: DTZ001 - of a table without time zones
            pa.array([Decimal("1.5")]),
            pa.array([1]).dictionary_encode(),
            pa.array([date(2026, 1, 1)]),
            pa.array([[1]]),
            pa.array(["a"]),
            pa.array(["a"]),
        ],
        ["value", "id", "when", "price", "code", "day", "numbers", "twice", "twice"],
    )

    with pytest.raises(InvalidRecord, match=message):
        bind(twin.ArrowSource(table).fields, names)


def test_both_encoders_see_the_same_columns() -> None:
    kinds = [
        *BYTE_TYPES,
        *HEADER_TYPES,
        *(
            pa.type_for_alias(name)
            for name in ["null", "bool", "int8", "uint64", "float16", "float32", "float64", "date32", "date64"]
        ),
        pa.timestamp("ns", "UTC"),
        pa.timestamp("s"),
        pa.time32("ms"),
        pa.time64("ns"),
        pa.duration("us"),
        pa.decimal128(10, 2),
        pa.month_day_nano_interval(),
        pa.struct([("a", pa.list_(pa.int8()))]),
        pa.binary(7),
        pa.uuid(),
    ]
    table = pa.Table.from_batches([], pa.schema([(f"{number}", kind) for number, kind in enumerate(kinds)]))

    def reported(twin: str) -> list[object]:
        return [simple(field) for field in import_module(twin).ArrowSource(table).fields]

    def simple(field: Any) -> object:
        return (
            field.format,
            [simple(child) for child in field.children],
            field.dictionary and simple(field.dictionary),
        )

    assert all(reported(twin) == reported(TWINS[0]) for twin in TWINS)


# -- JSON ----------------------------------------------------------------------------------------------------------------


def json_values(table: object, names: ColumnNames | None = None, columns: Sequence[str] | None = None) -> list[Any]:
    source = JsonTable(table, names or ColumnNames(), columns)
    encoder = make_encoder(source, bind(source.fields, names or ColumnNames(), source.value))
    while (chunk := source.read()) is not None:
        for part in source.parts(chunk, encoder.row):
            encoder.load(part)
            while encoder.remaining:
                size, _ = encoder.check(1 << 20)
                encoder.encode(size + BATCH_OVERHEAD, 1 << 20, 1, NOW, lambda: 0)
    return [
        None if record.value is None else json.loads(record.value)
        for _, builder, _ in encoder.take_all()
        for record in builder.read_records()
    ]


def make_encoder(source: Any, binding: Any) -> columns.ColumnEncoder:
    return columns.ColumnEncoder(source.fields, binding, largest=1 << 20, largest_option="max_request_size")


def test_the_columns_that_are_nothing_else_become_a_json_object() -> None:
    table = pa.table({"id": ["a", "b"], "n": [1, None], "f": [1.5, float("nan")], "b": [True, False]})

    assert json_values(table, ColumnNames(key="id")) == [
        {"n": 1, "f": 1.5, "b": True},
        {"n": None, "f": None, "b": False},
    ]


def test_the_columns_of_a_json_object_can_be_chosen() -> None:
    table = pa.table({"a": [1], "b": [2], "c": [3]})

    assert json_values(table, ColumnNames(), ["c", "a"]) == [{"c": 3, "a": 1}]


def test_an_index_of_pandas_is_part_of_a_json_object_where_it_has_a_name() -> None:
    frame = pd.DataFrame({"n": [1, 2, 3, 4]}, index=[7, 8, 9, 10])
    filtered = frame[frame.n != 2]

    assert json_values(filtered) == [{"n": 1}, {"n": 3}, {"n": 4}]
    assert json_values(filtered.rename_axis("id")) == [{"n": 1, "id": 7}, {"n": 3, "id": 9}, {"n": 4, "id": 10}]
    assert json_values(filtered, columns=["__index_level_0__"])[0] == {"__index_level_0__": 7}


def test_json_holds_times_decimals_lists_and_structs() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_901, UTC)
    table = pa.table(
        {
            "utc": pa.array([moment]),
            "ns": pa.array([1_767_323_045_678_901_234], pa.int64()).cast(pa.timestamp("ns", "UTC")),
            "day": [date(2026, 1, 2)],
            "time": pa.array([time(3, 4, 5)]),
            "time_ns": pa.array([1], pa.time64("ns")),
            "price": [Decimal("12.50")],
            "tiny": [Decimal("1E-10")],
            "list": [[1, 2]],
            "struct": [{"x": {"y": "z"}}],
            "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
            "category": pa.array(["c"]).dictionary_encode(),
        }
    )

    (value,) = json_values(table)

    assert value == {
        "utc": "2026-01-02T03:04:05.678901+00:00",
        "ns": "2026-01-02T03:04:05.678901+00:00",
        "day": "2026-01-02",
        "time": "03:04:05",
        "time_ns": "00:00:00",
        "price": "12.50",
        "tiny": "0.0000000001",
        "list": [1, 2],
        "struct": {"x": {"y": "z"}},
        "map": {"k": 1},
        "category": "c",
    }


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.timestamp("ns")),
        pa.large_list(pa.timestamp("ns")),
        pa.list_(pa.timestamp("ns"), 1),
        pa.list_view(pa.timestamp("ns")),
        pa.large_list_view(pa.timestamp("ns")),
        pa.list_(pa.struct([("t", pa.timestamp("ns"))])),
        pa.struct([("t", pa.list_(pa.timestamp("ns")))]),
        pa.map_(pa.string(), pa.timestamp("ns")),
        pa.dictionary(pa.int8(), pa.timestamp("ns")),
    ],
    ids=str,
)
def test_json_holds_times_to_the_microsecond_wherever_they_are(kind: pa.DataType) -> None:
    def content(kind: pa.DataType, moment: Any) -> Any:
        if pa.types.is_struct(kind):
            return {"t": content(kind.field("t").type, moment)}
        if pa.types.is_map(kind):
            return {"t": moment}
        return [content(kind.value_type, moment)] if pa.types.is_nested(kind) else moment

    array = (
        pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array([1_001], pa.timestamp("ns")))
        if pa.types.is_dictionary(kind)
        else pa.array([content(kind, 1_001)], kind)
    )

    assert json_values(pa.table({"c": array})) == [{"c": content(kind, "1970-01-01T00:00:00.000001")}]


DUPLICATE_KEYS = pa.array([[("k", 1)], [("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int64()))


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (
            pa.array([0, 3_000_000], pa.int32()).cast(pa.date32()),
            r"\(date32\[day\]\): date value out of range\. Fix it",
        ),
        (pa.array([0, 2**60], pa.timestamp("s")), r"\(timestamp\[s\]\): .+"),
        (
            pa.array([b"ok", b"\xff"]).view(pa.string()),
            r"\(string\): 'utf-8' codec can't decode byte 0xff .*\. Fix it",
        ),
        (DUPLICATE_KEYS, r"\(map<string, int64>\): .*duplicate key was 'k'\)\. Fix it, or leave"),
    ],
    ids=["date", "timestamp", "text", "map"],
)
def test_a_row_that_json_cannot_hold_is_named(column: pa.Array, reason: str) -> None:
    table = pa.table({"a": pa.concat_arrays([column[:1], column[:1], column[1:]]), "b": [1, 2, 3]})

    with pytest.raises(InvalidRecord, match=rf"^Row 2 of the table cannot be written as JSON: column 'a' {reason}"):
        json_values(table)


def test_json_of_a_long_table_comes_in_parts_and_in_order() -> None:
    table = pa.table({"n": range(12_000)})

    assert json_values(table) == [{"n": number} for number in range(12_000)]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([b"x"]), "column 'c' is binary, which JSON cannot represent"),
        (pa.array([[b"x"]]), "column 'c' is list with binary, which JSON"),
        (pa.array([1], pa.duration("s")), r"column 'c' is duration\[s\], which JSON"),
        (pa.array([[(1, 2)]], pa.map_(pa.int64(), pa.int64())), "column 'c' is map with int64, which JSON"),
    ],
)
def test_a_column_that_json_has_no_form_for_is_refused_before_anything_is_read(column: pa.Array, message: str) -> None:
    with pytest.raises(InvalidRecord, match=message):
        JsonTable(pa.table({"c": column}), ColumnNames(), None)


def test_columns_of_one_name_cannot_be_one_json_object() -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])

    with pytest.raises(InvalidRecord, match="have the same name"):
        JsonTable(table, ColumnNames(), None)


# -- giving back what was lent -------------------------------------------------------------------------------------------


class Lender:
    """Hands a table out through its own structs, and counts how often each is given back."""

    def __init__(self, table: pa.Table) -> None:
        self.lent: dict[str, int] = {}
        self.released: dict[str, int] = {}
        self.while_released: Callable[[], object] | None = None  # called once, while the stream is being released
        self.while_asked: Callable[[], object] | None = None  # called by get_last_error; get_next then fails
        self._reader = table.to_reader()
        self._keep: list[Any] = []

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        capsule = self._reader.__arrow_c_stream__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        stream = STREAM.from_address(pointer(capsule, b"arrow_array_stream") or 0)
        inner_schema, inner_next = GET(stream.get_schema), GET(stream.get_next)

        def get_schema(this: int, out: int) -> int:
            code = int(inner_schema(this, out))
            self._count("schema", SCHEMA.from_address(out))
            return code

        def get_next(this: int, out: int) -> int:
            if self.while_asked is not None:
                return errno.EIO
            code = int(inner_next(this, out))
            self._count("array", ARRAY.from_address(out))
            return code

        def get_last_error(this: int) -> int | None:
            assert self.while_asked is not None
            self.while_asked()
            return None  # no text: that of the code is used

        stream.get_last_error = self._kept(LAST_ERROR(get_last_error))
        stream.get_schema, stream.get_next = self._kept(GET(get_schema)), self._kept(GET(get_next))
        self._keep += [inner_schema, inner_next]
        self._count("stream", stream)
        return capsule

    def _count(self, kind: str, struct: Any) -> None:
        if not struct.release:
            return
        inner = RELEASE(struct.release)

        def release(this: int) -> None:
            self.released[kind] = self.released.get(kind, 0) + 1
            if kind == "stream":
                hook, self.while_released = self.while_released, None
                if hook is not None:
                    hook()
                if self.released[kind] > 1:
                    return  # the library would crash
            inner(this)

        self.lent[kind] = self.lent.get(kind, 0) + 1
        struct.release = self._kept(RELEASE(release))

    def _kept(self, function: Any) -> int | None:
        self._keep.append(function)
        return ctypes.cast(function, ctypes.c_void_p).value


RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
GET = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
LAST_ERROR = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


class SCHEMA(ctypes.Structure):
    _fields_ = (
        ("format", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("metadata", ctypes.c_char_p),
        ("flags", ctypes.c_int64),
        ("n_children", ctypes.c_int64),
        ("children", ctypes.c_void_p),
        ("dictionary", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )


class ARRAY(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("length", "null_count", "offset", "n_buffers", "n_children")),
        ("buffers", ctypes.c_void_p),
        ("children", ctypes.c_void_p),
        ("dictionary", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )


class STREAM(ctypes.Structure):
    _fields_ = (
        ("get_schema", ctypes.c_void_p),
        ("get_next", ctypes.c_void_p),
        ("get_last_error", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )


@pytest.fixture
def lender() -> Lender:
    return Lender(pa.table({"v": pa.chunked_array([["a"], ["b", "c"], ["d" * 2000]])}))


def test_everything_that_was_lent_is_given_back_once(twin: ModuleType, lender: Lender) -> None:
    assert len(values(twin, lender)) == 4

    gc.collect()
    assert lender.released == lender.lent
    assert lender.lent["array"] == 3


def test_everything_is_given_back_after_an_error_of_a_row(twin: ModuleType, lender: Lender) -> None:
    with pytest.raises(RecordTooLarge):
        values(twin, lender, largest=1000)

    gc.collect()
    assert lender.released == lender.lent


def test_everything_is_given_back_where_the_columns_are_wrong(twin: ModuleType, lender: Lender) -> None:
    with pytest.raises(InvalidRecord):
        encoded(twin, lender, ColumnNames(value="no"))

    gc.collect()
    assert lender.released == lender.lent
    assert lender.lent["stream"] == 1


@pytest.mark.parametrize("read", [0, 1, 4])
def test_a_source_that_is_closed_gives_everything_back_at_once(twin: ModuleType, lender: Lender, read: int) -> None:
    source = twin.ArrowSource(lender)
    for _ in range(read):
        source.read()

    source.close()
    source.close()

    assert source.read() is None
    assert lender.released == lender.lent


def test_a_source_that_is_closed_while_a_thread_reads_is_given_back_when_it_has(twin: ModuleType) -> None:
    reads, goes_on = threading.Event(), threading.Event()

    def batches() -> Iterator[pa.RecordBatch]:
        reads.set()
        assert goes_on.wait(10)
        yield pa.record_batch({"v": ["a"]})

    source = twin.ArrowSource(pa.RecordBatchReader.from_batches(pa.schema([("v", pa.string())]), batches()))
    thread = threading.Thread(target=source.read)
    thread.start()
    assert reads.wait(10)

    source.close()
    goes_on.set()
    thread.join(10)

    assert not thread.is_alive()
    assert source.read() is None


def test_a_source_that_is_closed_while_it_is_released_is_released_once(twin: ModuleType, lender: Lender) -> None:
    """A reading thread that meets the end releases the stream without the GIL, and the event loop may close it just then."""
    source = twin.ArrowSource(lender)
    lender.while_released = source.close

    while source.read() is not None:
        pass

    assert lender.released["stream"] == 1


def test_a_source_that_is_closed_while_its_error_is_read_is_released_afterwards(
    twin: ModuleType, lender: Lender
) -> None:
    released_before: list[int] = []

    def close() -> None:
        source.close()
        released_before.append(lender.released.get("stream", 0))

    source = twin.ArrowSource(lender)
    lender.while_asked = close

    with pytest.raises(OSError):
        source.read()

    assert lender.released["stream"] == 1
    assert not any(released_before)


def test_a_table_whose_stream_was_read_already_is_refused(twin: ModuleType) -> None:
    class Once:
        capsule = chunked().__arrow_c_stream__()

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return self.capsule

    once = Once()
    twin.ArrowSource(once)

    with pytest.raises(ValueError):
        twin.ArrowSource(once)
