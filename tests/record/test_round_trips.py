"""Whatever is written comes back: through our reader, and through those of kio and aiokafka."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest
from aiokafka.record.default_records import (  # type: ignore[import-untyped]
    DefaultRecordBatch,
    DefaultRecordBatchBuilder,
)
from aiokafka.record.default_records import _DefaultRecordBatchPy as PythonRecordBatch
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.records.readers import read_batch

from aioproducer.record import LEVELS, Codec, RecordBatchBuilder, encode_batch
from aioproducer.record.reader import Record, read_batches

Builder = type[RecordBatchBuilder]
Parts: TypeAlias = tuple[int, "bytes | None", "bytes | None", list[tuple[str, "bytes | None"]]]

optional_bytes = st.none() | st.binary(max_size=100) | st.integers(0, 9000).map(lambda size: b"x" * size)
headers = st.lists(st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=20)), max_size=4)
near_timestamps = st.integers(1_700_000_000_000, 1_700_000_010_000)
timestamps = st.integers(0, 2**63 - 1) | near_timestamps
batches = st.lists(st.tuples(timestamps, optional_bytes, optional_bytes, headers), min_size=1, max_size=8)
datable_batches = st.lists(st.tuples(near_timestamps, optional_bytes, optional_bytes, headers), min_size=1, max_size=8)

CODECS_AND_LEVELS = [
    *((codec, None) for codec in Codec),
    *((codec, level) for codec, range_ in LEVELS.items() for level in (1, 4, range_.maximum)),
    (Codec.ZSTD, -131072),
    (Codec.GZIP, -1),
]


def build(builder_class: Builder, records: list[Parts]) -> RecordBatchBuilder:
    builder = builder_class()
    for record in records:
        builder.append(*record)
    return builder


def expected(records: list[Parts]) -> list[Record]:
    return [Record(n, time, key, value, tuple(headers)) for n, (time, key, value, headers) in enumerate(records)]


@settings(deadline=None, max_examples=30)
@given(
    records=batches,
    codec=st.sampled_from(Codec),
    producer=st.tuples(st.integers(-1, 2**63 - 1), st.integers(-1, 2**15 - 1), st.integers(-1, 2**31 - 1)),
    transactional=st.booleans(),
)
def test_appended_records_can_be_read_from_builder_batch_and_bytes(
    builder_class: Builder, records: list[Parts], codec: Codec, producer: tuple[int, int, int], transactional: bool
) -> None:
    builder = build(builder_class, records)
    batch = encode_batch(builder, codec)
    batch.stamp(*producer, transactional)

    [read] = read_batches(b"".join(batch.pieces))

    assert read.records == builder.read_records() == batch.read_records() == expected(records)
    assert (read.producer_id, read.producer_epoch, read.base_sequence) == producer
    assert (read.codec, read.is_transactional, read.size) == (codec, transactional, batch.size)
    assert (read.base_timestamp, read.max_timestamp) == (records[0][0], max(record[0] for record in records))


@settings(deadline=None, max_examples=30)
@given(records=batches)
def test_each_record_takes_the_size_returned_by_append_and_at_most_its_upper_bound(
    builder_class: Builder, size_upper_bound: Callable[..., int], records: list[Parts]
) -> None:
    builder = builder_class()
    size = builder.size

    for record in records:
        taken = builder.append(*record)
        size += taken
        assert builder.size == size
        assert taken <= size_upper_bound(*record[1:])


@settings(deadline=None, max_examples=30)
@given(records=datable_batches, producer_id=st.integers(0, 2**63 - 1), transactional=st.booleans())
def test_our_bytes_are_those_of_aiokafka(
    builder_class: Builder, records: list[Parts], producer_id: int, transactional: bool
) -> None:
    theirs = DefaultRecordBatchBuilder(2, 0, transactional, producer_id, 3, 17, 1 << 20)
    for offset, (timestamp, key, value, record_headers) in enumerate(records):
        assert theirs.append(offset, timestamp, key, value, record_headers) is not None

    ours = encode_batch(build(builder_class, records))
    ours.stamp(producer_id, 3, 17, transactional)

    expected_bytes = bytearray(theirs.build())
    expected_bytes[12:16] = b"\xff" * 4  # aiokafka writes leader epoch 0 where Java writes -1; no reader looks at it
    assert b"".join(ours.pieces) == expected_bytes


@settings(deadline=None, max_examples=30)
@given(records=datable_batches)
def test_kio_reads_what_we_write(builder_class: Builder, records: list[Parts]) -> None:
    batch = encode_batch(build(builder_class, records))
    batch.stamp(5, 6, 7, transactional=True)
    data = b"".join(batch.pieces)

    read, size = read_batch(data, 0)

    assert size == len(data)
    assert (read.producer_id, read.producer_epoch, read.base_sequence, read.attributes) == (5, 6, 7, 0x10)
    assert [
        (record.offset, record.key, record.value, [(header.key, header.value) for header in record.headers])
        for record in read.records
    ] == [
        (offset, key, value, [(name.encode(), content) for name, content in record_headers])
        for offset, (_, key, value, record_headers) in enumerate(records)
    ]


def sample() -> list[Parts]:
    records: list[Parts] = [
        (1_700_000_000_000 - n, b"key %d" % (n % 7) if n % 3 else None, b"value %d " % n * (n % 50), [("n", b"%d" % n)])
        for n in range(400)
    ]
    return [*records, (1, b"", None, [("", None), ("", b""), ("é", b"\xff")]), (2, None, b"big" * 50_000, [])]


@pytest.mark.parametrize(("codec", "level"), CODECS_AND_LEVELS)
@pytest.mark.parametrize("reader", [DefaultRecordBatch, PythonRecordBatch])
def test_aiokafka_reads_what_we_write_with_every_codec_and_level(
    builder_class: Builder, codec: Codec, level: int | None, reader: type[DefaultRecordBatch]
) -> None:
    records = sample()
    batch = encode_batch(build(builder_class, records), codec, level)
    batch.stamp(5, 6, 7, transactional=True)

    theirs = reader(b"".join(batch.pieces))

    assert theirs.validate_crc()
    assert (theirs.compression_type, theirs.is_transactional, theirs.producer_id) == (codec, True, 5)
    assert [
        Record(record.offset, record.timestamp, record.key, record.value, tuple(record.headers)) for record in theirs
    ] == expected(records)


@pytest.mark.parametrize("codec", Codec)
def test_we_read_what_aiokafka_writes_with_every_codec(codec: Codec) -> None:
    records = sample()
    theirs = DefaultRecordBatchBuilder(2, codec, 0, 5, 6, 7, 1 << 20)
    for offset, record in enumerate(records):
        assert theirs.append(offset, *record) is not None

    [batch] = read_batches(bytes(theirs.build()))

    assert batch.codec == codec
    assert batch.records == expected(records)
