"""The reader takes what a broker would store and refuses everything else."""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import fields

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer.errors import CorruptRecord
from aioproducer.record import Codec, RecordBatchBuilder, compress, encode_batch
from aioproducer.record.reader import Record, RecordBatch, read_batches
from aioproducer.types import TimestampType

# position and format of the fields of a batch's header
FIELDS = {
    "base_offset": (0, ">q"),
    "length": (8, ">i"),
    "partition_leader_epoch": (12, ">i"),
    "magic": (16, ">b"),
    "crc": (17, ">I"),
    "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"),
    "base_timestamp": (27, ">q"),
    "max_timestamp": (35, ">q"),
    "producer_id": (43, ">q"),
    "producer_epoch": (51, ">h"),
    "base_sequence": (53, ">i"),
    "count": (57, ">i"),
}
OUTSIDE_OF_THE_CHECKSUM = {*range(8), *range(12, 16)}  # base offset and partition leader epoch: brokers write them


def small_batch(codec: Codec = Codec.NONE) -> bytes:
    builder = RecordBatchBuilder()
    builder.append(1000, b"key", b"value", [("name", b"header")])
    builder.append(1001, None, b"")
    batch = encode_batch(builder, codec)
    batch.stamp(9, 2, 30)
    return b"".join(batch.pieces)


def with_fields(batch: bytes, **changes: int) -> bytes:
    """The batch with other fields, and the right checksum for them unless that is changed too."""
    changed = bytearray(batch)
    for name in changes:
        position, fmt = FIELDS[name]
        struct.pack_into(fmt, changed, position, changes[name])
    if "crc" not in changes:
        struct.pack_into(">I", changed, 17, crc32c(changed[21:]))
    return bytes(changed)


def with_body(body: bytes, count: int = 1, codec: Codec = Codec.NONE) -> bytes:
    """A batch around these bytes, right in every other way."""
    packed = compress(codec, body)
    batch = small_batch()[:61] + packed
    return with_fields(
        batch, length=49 + len(packed), count=count, last_offset_delta=count - 1, attributes=codec, max_timestamp=1000
    )


def read(data: bytes) -> RecordBatch:
    [batch] = read_batches(data)
    return batch


def test_every_field_of_a_batch_is_reported() -> None:
    data = with_fields(small_batch(Codec.GZIP), base_offset=70, partition_leader_epoch=4)

    batch = read(data)

    crc = int.from_bytes(data[17:21], "big")
    assert batch == RecordBatch(
        base_offset=70,
        partition_leader_epoch=4,
        crc=crc,
        codec=Codec.GZIP,
        timestamp_type=TimestampType.CREATE_TIME,
        is_transactional=False,
        is_control=False,
        last_offset_delta=1,
        base_timestamp=1000,
        max_timestamp=1001,
        producer_id=9,
        producer_epoch=2,
        base_sequence=30,
        size=len(data),
        records=[Record(70, 1000, b"key", b"value", (("name", b"header"),)), Record(71, 1001, None, b"")],
    )
    assert (batch.count, batch.last_offset) == (2, 71)


def test_batches_that_follow_each_other_are_read_one_by_one() -> None:
    first, second = small_batch(), with_fields(small_batch(Codec.ZSTD), base_offset=2)

    batches = list(read_batches(memoryview(bytearray(first + second))))

    assert [(batch.base_offset, batch.size) for batch in batches] == [(0, len(first)), (2, len(second))]
    assert list(read_batches(b"")) == []


def test_a_corrupt_batch_does_not_hide_the_good_ones_before_it() -> None:
    batches = read_batches(small_batch() + b"\x00" * 100)

    assert next(batches).count == 2
    with pytest.raises(CorruptRecord):
        next(batches)


def test_a_batch_that_is_cut_off_is_refused_or_passed_over_as_the_caller_wants() -> None:
    batch = small_batch()
    for end in range(1, len(batch)):
        with pytest.raises(CorruptRecord, match=r"truncated to \d+ bytes"):
            list(read_batches(batch + batch[:end]))[1:]
        assert len(list(read_batches(batch + batch[:end], partial_tail=True))) == 1


@pytest.mark.parametrize("codec", Codec)
def test_every_flip_of_every_byte_is_noticed_but_in_the_two_fields_that_brokers_write(codec: Codec) -> None:
    good = read(small_batch(codec))
    data = bytearray(small_batch(codec))
    for position in range(len(data)):
        for flip in (1, 2, 4, 8, 16, 32, 64, 128, 255):
            data[position] ^= flip
            if position in OUTSIDE_OF_THE_CHECKSUM and not data[0] & 0x80:
                batch = read(bytes(data))
                assert [record[1:] for record in batch.records] == [record[1:] for record in good.records]
                assert {
                    field.name for field in fields(batch) if getattr(batch, field.name) != getattr(good, field.name)
                } <= {
                    "base_offset",
                    "partition_leader_epoch",
                    "records",
                }
            else:
                with pytest.raises(CorruptRecord):
                    read(bytes(data))
            data[position] ^= flip


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"magic": 1}, r"version \(magic\) 1"),
        ({"magic": 3}, r"version \(magic\) 3"),
        ({"crc": 5}, "checksum 0x00000005"),
        ({"base_offset": -1}, "base offset -1"),
        ({"attributes": 5}, "attributes 0x0005"),
        ({"attributes": 7}, "attributes 0x0007"),
        ({"attributes": 0x80}, "attributes 0x0080"),
        ({"attributes": -0x8000}, "attributes"),
        ({"attributes": Codec.GZIP}, "not valid gzip"),
        ({"attributes": Codec.SNAPPY}, "not valid snappy"),
        ({"attributes": Codec.LZ4}, "not valid lz4"),
        ({"attributes": Codec.ZSTD}, "not valid zstd"),
        ({"last_offset_delta": 2}, "announced count of 2 records, but offset delta 2"),
        ({"last_offset_delta": 0}, "announced count of 2 records, but offset delta 0"),
        ({"count": 0, "last_offset_delta": -1}, "0 records"),
        ({"count": -1, "last_offset_delta": -2}, "-1 records"),
        ({"count": 1, "last_offset_delta": 0}, "bytes follow the last of 1 records"),
        ({"count": 3, "last_offset_delta": 2}, "Record 2 of 3"),
        ({"count": 2**31 - 1, "last_offset_delta": 2**31 - 2}, "cannot hold the announced 2147483647 records"),
        ({"max_timestamp": 1000}, "latest timestamp 1000 in its header, but 1001 in its records"),
        ({"base_timestamp": 2**63 - 1}, "invalid timestamp"),
        ({"base_timestamp": -5}, "invalid timestamp -5"),
        ({"length": 48}, "announced size of 60 bytes, less than its header"),
        ({"length": -1}, "announced size of 11 bytes"),
        ({"length": -(2**31)}, "announced size of -"),
        ({"length": 2**31 - 1}, "truncated"),
    ],
)
def test_fields_that_contradict_each_other_are_refused_with_the_reason(changes: dict[str, int], reason: str) -> None:
    with pytest.raises(CorruptRecord, match=reason):
        read(with_fields(small_batch(), **changes))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("0e 00 00 00 01 02 76", "announced length of 7 bytes, but 6 remain"),
        ("0a 00 00 00 01 02 76 00", "announced length of 5 bytes"),
        ("01 00 00 00 01 02 76 00", "announced length of -1 bytes"),
        ("0e 01 00 00 01 02 76 00", "attributes are 0x01"),
        ("0e 00 00 02 01 02 76 00", "offset delta is 1"),
        ("0e 00 00 00 03 02 76 00", "has the length -2"),
        ("0e 00 00 00 01 04 76 00", "truncated"),
        ("0e 00 00 00 01 7e 76 00", "announced length of 63 bytes, but 2 remain"),
        ("0e 00 00 00 01 02 76 02", "announced count of 1 headers in 0 bytes"),
        ("0e 00 00 00 01 02 76 01", "announced count of -1 headers"),
        ("0e 00 00 00 01 00 00 00", "fields end 1 bytes before its end"),
        ("0e 00 00 00 01 02 76 00 00", "1 bytes follow"),
        ("12 00 00 00 01 02 76 02 01 00", "name of a header is null"),
        ("14 00 00 00 01 02 76 02 02 ff 01", "utf-8"),
        ("0e 00 80 80 80 80 80 80 80", "truncated"),
        ("22 00 80 80 80 80 80 80 80 80 80 80 01 00 01 02 76 00", "more than 10 bytes"),
        ("20 00 80 80 80 80 80 80 80 80 80 02 00 01 02 76 00", "more than 64 bits"),
        ("16 00 00 00 80 80 80 80 80 00 76 00", "more than 5 bytes"),
        ("14 00 00 80 80 80 80 10 01 01 00", "more than 32 bits"),
        ("", "cannot hold the announced 1 records"),
    ],
)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_records_that_are_not_exactly_right_are_refused_whatever_the_checksum(
    body: str, reason: str, codec: Codec
) -> None:
    with pytest.raises(CorruptRecord, match=reason):
        read(with_body(bytes.fromhex(body), codec=codec))


def test_a_record_that_is_right_is_read_from_the_same_frame() -> None:
    assert read(with_body(bytes.fromhex("0e 00 00 00 01 02 76 00"))).records == [Record(0, 1000, None, b"v")]


def test_a_number_in_more_bytes_than_it_needs_is_read_as_brokers_read_it() -> None:
    assert read(with_body(bytes.fromhex("10 00 80 00 00 01 02 76 00"))).records == [Record(0, 1000, None, b"v")]


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=60), st.integers(1, 5), st.sampled_from(Codec))
def test_arbitrary_bytes_under_a_right_checksum_are_refused_or_read_but_nothing_else(
    body: bytes, count: int, codec: Codec
) -> None:
    with suppress(CorruptRecord):
        assert len(read(with_body(body, count, codec)).records) == count


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_changed_records_under_a_right_checksum_are_refused_or_read_but_nothing_else(data: st.DataObject) -> None:
    batch = bytearray(small_batch())
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(21, len(batch) - 1))] = data.draw(st.integers(0, 255))
    with suppress(CorruptRecord):
        assert len(read(with_fields(bytes(batch))).records) == 2


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    if data:
        with pytest.raises(CorruptRecord):
            list(read_batches(data))


def test_timestamps_are_the_brokers_where_it_stamped_the_records() -> None:
    batch = read(with_fields(small_batch(), attributes=0x08, max_timestamp=5000))

    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp_ms for record in batch.records] == [5000, 5000]


def test_the_markers_that_brokers_write_at_the_end_of_a_transaction_are_read() -> None:
    marker = read(with_fields(small_batch(), attributes=0x30))

    assert marker.is_control
    assert marker.is_transactional


def test_a_batch_that_compaction_stamped_is_read() -> None:
    assert read(with_fields(small_batch(), attributes=0x40)).count == 2


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_that_becomes_larger_than_allowed_is_refused(codec: Codec) -> None:
    builder = RecordBatchBuilder()
    builder.append(1, None, bytes(100_000))
    data = b"".join(encode_batch(builder, codec).pieces)

    assert len(list(read_batches(data, max_size=100_012))) == 1
    with pytest.raises(CorruptRecord, match=r"more than the allowed 100005 bytes"):
        list(read_batches(data, max_size=100_005))


def compacted(batch: bytes, **changes: int) -> RecordBatch:
    [found] = read_batches(with_fields(batch, **changes), compacted=True)
    return found


def test_a_batch_that_the_cleaner_has_emptied_is_read_as_one_of_no_records() -> None:
    """Kafka keeps the last batch of each producer, for its sequence, when all of its records are gone."""
    empty = with_fields(small_batch()[:61], length=49, count=0, max_timestamp=-1, base_timestamp=-1)

    batch = compacted(empty, base_offset=40, last_offset_delta=6)

    assert (batch.records, batch.base_offset, batch.last_offset, batch.producer_id) == ([], 40, 46, 9)
    with pytest.raises(CorruptRecord, match="announced count of 0 records"):
        read(empty)


def at_delta(delta: int) -> bytes:
    """A record with this offset delta, in the frame of a batch."""
    return bytes([0x0E, 0, 0, 2 * delta, 1, 2, 0x76, 0])


def test_records_that_the_cleaner_has_left_keep_their_offsets() -> None:
    body = at_delta(2) + at_delta(5)

    batch = compacted(with_body(body, count=2), base_offset=40, last_offset_delta=7)

    assert [each.offset for each in batch.records] == [42, 45]
    assert batch.last_offset == 47


@pytest.mark.parametrize(
    ("deltas", "last"), [((2, 2), 7), ((5, 2), 7), ((2, 8), 7), ((0, 1), 0)], ids=["twice", "back", "too high", "many"]
)
def test_offsets_in_a_compacted_batch_rise_up_to_the_last(deltas: tuple[int, int], last: int) -> None:
    body = b"".join(map(at_delta, deltas))

    with pytest.raises(CorruptRecord):
        compacted(with_body(body, count=2), last_offset_delta=last)
