"""Record batches byte by byte, and the promises of a builder and a closed batch."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aioproducer.errors import ConfigError, InvalidRecord, ProducerStateError, RecordTooLarge
from aioproducer.record import BATCH_OVERHEAD, Codec, EncodedBatch, RecordBatchBuilder, _pure, encode_batch
from aioproducer.record.reader import Record, read_batches

Builder = type[RecordBatchBuilder]

INT64_MAX = 2**63 - 1


def wire(batch: EncodedBatch) -> bytes:
    return b"".join(batch.pieces)


def test_a_batch_of_one_small_record_has_exactly_these_bytes(builder_class: Builder) -> None:
    builder = builder_class()

    builder.append(1000, None, b"v")

    assert wire(encode_batch(builder)).hex(" ") == " ".join(
        [
            "00 00 00 00 00 00 00 00",  # base offset
            "00 00 00 39",  # length of what follows: 57
            "ff ff ff ff",  # partition leader epoch
            "02",  # magic
            "ae 59 b0 8f",  # CRC-32C
            "00 00",  # attributes
            "00 00 00 00",  # last offset delta
            "00 00 00 00 00 00 03 e8",  # base timestamp
            "00 00 00 00 00 00 03 e8",  # max timestamp
            "ff ff ff ff ff ff ff ff",  # producer id
            "ff ff",  # producer epoch
            "ff ff ff ff",  # base sequence
            "00 00 00 01",  # number of records
            "0e 00 00 00 01 02 76 00",  # length 7, attributes, deltas, null key, 1 byte, "v", no headers
        ]
    )


def test_a_transactional_batch_with_everything_in_it_has_exactly_these_bytes(builder_class: Builder) -> None:
    builder = builder_class()
    builder.append(5000, b"k", None, [("", b"x"), ("é", None), ("", b"")])
    builder.append(4000, b"", b"a" * 64)
    builder.append(INT64_MAX, None, None)

    batch = encode_batch(builder)
    batch.stamp(producer_id=0x0102030405060708, producer_epoch=0x0A0B, base_sequence=0x7FFFFFFF, transactional=True)

    assert wire(batch).hex(" ") == " ".join(
        [
            "00 00 00 00 00 00 00 00",
            "00 00 00 9c",
            "ff ff ff ff",
            "02",
            "aa 53 14 17",
            "00 10",  # transactional
            "00 00 00 02",
            "00 00 00 00 00 00 13 88",
            "7f ff ff ff ff ff ff ff",
            "01 02 03 04 05 06 07 08",
            "0a 0b",
            "7f ff ff ff",
            "00 00 00 03",
            # length 16, attributes, timestamp 0, offset 0, key "k", null value, three headers
            "20 00 00 00 02 6b 01 06 00 02 78 04 c3 a9 01 00 00",
            # length 72, attributes, timestamp -1000, offset 1, empty key, 64 bytes, no headers
            "90 01 00 cf 0f 02 00 80 01 " + " ".join(["61"] * 64) + " 00",
            # length 15, attributes, timestamp 2**63 - 1 - 5000, offset 2, null key, null value, no headers
            "1e 00 ee b1 ff ff ff ff ff ff ff 01 04 01 01 00",
        ]
    )


def test_append_returns_the_size_of_the_record_and_the_builder_has_its_own(builder_class: Builder) -> None:
    builder = builder_class()
    assert (builder.size, builder.count, builder.base_timestamp, builder.max_timestamp) == (BATCH_OVERHEAD, 0, -1, -1)

    sizes = [builder.append(7, None, b"v"), builder.append(9, b"k" * 100, b"v" * 10_000), builder.append(8, None, None)]

    assert builder.size == BATCH_OVERHEAD + sum(sizes)
    assert encode_batch(builder).size == builder.size == len(wire(encode_batch(builder)))
    assert (builder.count, builder.base_timestamp, builder.max_timestamp) == (3, 7, 9)
    assert builder.largest_record == encode_batch(builder).largest_record == max(sizes)


def test_keys_values_and_headers_may_be_any_kind_of_bytes_and_are_copied(builder_class: Builder) -> None:
    builder = builder_class()
    key, value, header = bytearray(b"key"), bytearray(b"value"), bytearray(b"header")
    builder.append(0, key, memoryview(value), [("h", bytes(header))])
    builder.append(0, memoryview(b"--abc--")[2:5], memoryview(b"a-b-c-")[::2])
    builder.append(0, None, memoryview(b"12345678").cast("I"))

    key[:] = value[:3] = b"???"

    assert [record[2:] for record in builder.read_records()] == [
        (b"key", b"value", (("h", b"header"),)),
        (b"abc", b"abc", ()),
        (None, b"12345678", ()),
    ]


@pytest.mark.parametrize("size", [0, 1, 63, 64, 8191, 8192, 1 << 20])
def test_a_record_of_any_size_comes_back(builder_class: Builder, size: int) -> None:
    builder = builder_class()

    builder.append(1, b"k" * size, b"v" * size, [("h" * size, b"x" * size)])

    expected = [Record(0, 1, b"k" * size, b"v" * size, (("h" * size, b"x" * size),))]
    assert builder.read_records() == expected
    assert next(read_batches(wire(encode_batch(builder)))).records == expected


def test_ten_thousand_records_keep_their_order_and_offsets(builder_class: Builder) -> None:
    builder = builder_class()
    for number in range(10_000):
        builder.append(number, None, b"%d" % number)

    records = builder.read_records()

    assert [(record.offset, record.value) for record in records] == [(n, b"%d" % n) for n in range(10_000)]


@pytest.mark.parametrize("timestamp_ms", [-1, -(2**63), INT64_MAX + 1])
def test_a_timestamp_that_is_not_one_is_refused(builder_class: Builder, timestamp_ms: int) -> None:
    with pytest.raises(InvalidRecord, match=f"timestamp {timestamp_ms}:"):
        builder_class().append(timestamp_ms, None, b"")


@pytest.mark.parametrize(
    ("key", "value", "headers", "error"),
    [
        (None, b"v", [("\ud800", b"")], InvalidRecord),
        ("text", b"v", [], TypeError),
        (None, 5, [], TypeError),
        (None, [1, 2], [], TypeError),
        (None, b"v", [("h", "text")], TypeError),
    ],
)
def test_a_record_that_is_refused_leaves_the_batch_as_it_was(
    builder_class: Builder, key: bytes, value: bytes, headers: list[tuple[str, bytes]], error: type[Exception]
) -> None:
    builder = builder_class()
    with pytest.raises(error):
        builder.append(50, key, value, headers)
    assert (builder.size, builder.count, builder.max_timestamp) == (BATCH_OVERHEAD, 0, -1)
    builder.append(20, b"k", b"v")
    with pytest.raises(error):
        builder.append(50, key, value, headers)

    builder.append(10, None, None)

    assert builder.read_records() == [Record(0, 20, b"k", b"v"), Record(1, 10, None, None)]
    assert (builder.base_timestamp, builder.max_timestamp) == (20, 20)


@pytest.mark.parametrize("refused", [50, 70, 20])
def test_timestamps_count_from_the_first_record_that_was_taken(builder_class: Builder, refused: int) -> None:
    """Also where one with the same timestamp was refused just before."""
    builder = builder_class()
    for timestamp_ms in (50, 70, 70, 50):
        with pytest.raises(InvalidRecord):
            builder.append(refused, None, b"v", [("\ud800", b"")])
        builder.append(timestamp_ms, None, b"v")

    assert [record.timestamp_ms for record in builder.read_records()] == [50, 70, 70, 50]
    assert (builder.base_timestamp, builder.max_timestamp) == (50, 70)


def test_a_closed_batch_accepts_no_record_but_still_reports_its_contents(builder_class: Builder) -> None:
    builder = builder_class()
    builder.append(1, None, b"v")
    body = bytes(builder.close())

    with pytest.raises(ProducerStateError, match="closed"):
        builder.append(1, None, b"v")

    assert builder.close() == body
    assert builder.read_records() == [Record(0, 1, None, b"v")]


def test_a_batch_without_records_cannot_be_encoded(builder_class: Builder) -> None:
    with pytest.raises(ValueError, match="without records"):
        encode_batch(builder_class())


def test_a_batch_that_the_format_cannot_hold_is_refused() -> None:
    builder = _pure.RecordBatchBuilder()
    builder.append(1, None, b"v")
    builder.size = 2**31 - 10  # pretended: memory for a real one is not everywhere

    with pytest.raises(RecordTooLarge, match="would exceed"):
        builder.append(1, None, b"v" * 10)

    assert builder.count == 1


def test_a_stamp_makes_a_new_header_and_leaves_the_former_as_it_was(builder_class: Builder) -> None:
    builder = builder_class()
    builder.append(1, None, b"v")
    batch = encode_batch(builder)
    batch.stamp(7, 0, 100)
    header, body = batch.pieces
    copy = bytes(bytearray(header))

    batch.stamp(7, 1, 0, transactional=True)

    assert header == copy
    assert batch.pieces[0] != header
    assert batch.pieces[1] is body
    [first], [second] = read_batches(header + body), read_batches(wire(batch))
    assert (first.producer_epoch, first.base_sequence, first.is_transactional) == (0, 100, False)
    assert (second.producer_id, second.producer_epoch, second.base_sequence, second.is_transactional) == (7, 1, 0, True)
    assert first.records == second.records


def test_without_a_stamp_a_batch_is_that_of_a_producer_that_is_not_idempotent(builder_class: Builder) -> None:
    builder = builder_class()
    builder.append(1, None, b"v")

    [batch] = read_batches(wire(encode_batch(builder)))

    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    assert (batch.is_transactional, batch.is_control, batch.partition_leader_epoch) == (False, False, -1)


@pytest.mark.parametrize("codec", Codec)
def test_a_closed_batch_gives_its_records_back_for_a_split(builder_class: Builder, codec: Codec) -> None:
    builder = builder_class()
    for number in range(200):
        builder.append(1000 - number, b"k" if number % 2 else None, b"value" * number, [("n", b"%d" % number)])
    batch = encode_batch(builder, codec)

    records = batch.read_records()

    assert records == builder.read_records()
    assert records[7] == Record(7, 993, b"k", b"value" * 7, (("n", b"7"),))
    assert (batch.count, batch.codec, batch.uncompressed_size) == (200, codec, builder.size)
    assert (batch.size < batch.uncompressed_size) is (codec is not Codec.NONE)


def test_a_level_that_does_not_exist_is_refused_when_a_batch_is_encoded(builder_class: Builder) -> None:
    builder = builder_class()
    builder.append(1, None, b"v")

    with pytest.raises(ConfigError, match="invalid compression level 23 for zstd"):
        encode_batch(builder, Codec.ZSTD, 23)


@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [
        (None, None, ()),
        (b"", b"", ()),
        (b"k" * 100, b"v" * 100_000, ()),
        (None, memoryview(bytes(64)).cast("Q"), ()),
        (b"k", None, [("", None), ("é€😀", b"x"), ("name", b"y" * 300)]),
        (bytearray(9), None, [("view", memoryview(bytes(800)).cast("Q"))]),
    ],
)
def test_the_upper_bound_holds_at_any_place_and_time_and_is_not_far_off(
    builder_class: Builder,
    size_upper_bound: Callable[..., int],
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
) -> None:
    builder = builder_class()
    smallest = builder.append(0, key, value, headers)
    for _ in range(100):
        builder.append(0, None, None)
    largest = builder.append(INT64_MAX, key, value, headers)

    bound = size_upper_bound(key, value, headers)

    assert largest <= bound <= smallest + 34 + 8 * len(headers)
