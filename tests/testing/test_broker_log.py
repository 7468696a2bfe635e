from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest
from crc32c import crc32c

from aioproducer.errors import ConfigError
from aioproducer.protocol import ErrorCode
from aioproducer.record import Codec, RecordBatchBuilder, encode_batch
from aioproducer.record.reader import read_batches
from aioproducer.testing.broker.log import Appended, LogRules, PartitionLog, Refused, TopicConfig
from aioproducer.types import TimestampType

NOW = 1_700_000_000_000
MAX_SEQUENCE = 2**31 - 1

# Where the fields of a batch stand.
LENGTH, MAGIC, CRC, ATTRIBUTES, LAST_OFFSET_DELTA = 8, 16, 17, 21, 23
MAX_TIMESTAMP, PRODUCER_ID, BASE_SEQUENCE, COUNT = 35, 43, 53, 57


def batch(
    *values: bytes | None,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    timestamp: int = NOW,
    key: bytes | None = None,
    codec: Codec = Codec.NONE,
    transactional: bool = False,
) -> bytes:
    builder = RecordBatchBuilder()
    for value in values or (b"value",):
        builder.append(timestamp, key, value)
    encoded = encode_batch(builder, codec)
    encoded.stamp(producer_id, epoch, sequence, transactional)
    return b"".join(encoded.pieces)


def idempotent(sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0) -> bytes:
    return batch(*[b"v"] * count, producer_id=producer_id, epoch=epoch, sequence=sequence)


def patched(data: bytes, at: int, layout: str, value: int, *, fix_crc: bool = True) -> bytes:
    raw = bytearray(data)
    struct.pack_into(layout, raw, at, value)
    if fix_crc:
        struct.pack_into(">I", raw, CRC, crc32c(bytes(raw[ATTRIBUTES:])))
    return bytes(raw)


def with_body(body: bytes, *, count: int = 1) -> bytes:
    """A batch whose header is right for these bytes, whatever they are."""
    raw = bytearray(batch(*[b"v"] * count)[:61] + body)
    struct.pack_into(">i", raw, LENGTH, len(raw) - 12)
    struct.pack_into(">I", raw, CRC, crc32c(bytes(raw[ATTRIBUTES:])))
    return bytes(raw)


def append(log: PartitionLog, data: bytes, *, rules: LogRules | None = None, now_ms: int = NOW) -> Appended | Refused:
    return log.append(data, leader_epoch=3, now_ms=now_ms, rules=rules or LogRules())


def appended(log: PartitionLog, data: bytes, *, rules: LogRules | None = None) -> Appended:
    result = append(log, data, rules=rules)
    assert isinstance(result, Appended), result
    return result


def refused(log: PartitionLog, data: bytes, *, rules: LogRules | None = None) -> Refused:
    before = (log.end_offset, len(log.batches))
    result = append(log, data, rules=rules)
    assert isinstance(result, Refused), result
    assert (log.end_offset, len(log.batches)) == before
    return result


@pytest.fixture
def log() -> PartitionLog:
    return PartitionLog("orders", 0)


def test_records_get_consecutive_offsets_over_batches(log: PartitionLog) -> None:
    assert appended(log, batch(b"a", b"b")).base_offset == 0
    assert appended(log, batch(b"c")).base_offset == 2

    assert [(record.offset, record.value) for record in log.records()] == [(0, b"a"), (1, b"b"), (2, b"c")]


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_is_accepted_and_stored_as_it_was_sent(log: PartitionLog, codec: Codec) -> None:
    data = batch(b"a" * 1000, b"b" * 1000, codec=codec)

    appended(log, data)

    assert log.batches[0].sent == data
    assert log.batches[0].raw[ATTRIBUTES:] == data[ATTRIBUTES:]
    assert [record.value for record in log.records()] == [b"a" * 1000, b"b" * 1000]


def test_the_stored_batch_carries_its_offset_and_leader_epoch_and_is_still_valid(log: PartitionLog) -> None:
    appended(log, batch(b"a"))
    appended(log, batch(b"b"))

    (stored,) = read_batches(log.batches[1].raw)

    assert (stored.base_offset, stored.partition_leader_epoch) == (1, 3)


def test_the_broker_stamps_the_records_of_a_log_append_time_topic() -> None:
    log = PartitionLog("orders", 0, TopicConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME))

    result = appended(log, batch(b"a", timestamp=5))

    assert result.log_append_time_ms == NOW
    assert [record.timestamp_ms for record in log.records()] == [NOW]
    (stored,) = read_batches(log.batches[0].raw)
    assert (stored.timestamp_type, stored.records[0].timestamp_ms) == (TimestampType.LOG_APPEND_TIME, NOW)


GOOD = batch(b"value", b"other")

BAD_BATCHES: Sequence[tuple[str, bytes, ErrorCode]] = (
    ("nothing", b"", ErrorCode.INVALID_RECORD),
    ("a header cut off", GOOD[:15], ErrorCode.INVALID_RECORD),
    ("records cut off", GOOD[:-1], ErrorCode.INVALID_RECORD),
    ("two batches", GOOD + GOOD, ErrorCode.INVALID_RECORD),
    ("a byte too many", GOOD + b"\0", ErrorCode.INVALID_RECORD),
    ("a length below any batch", patched(GOOD, LENGTH, ">i", 13), ErrorCode.CORRUPT_MESSAGE),
    ("a negative length", patched(GOOD, LENGTH, ">i", -1), ErrorCode.CORRUPT_MESSAGE),
    ("a length below the header", patched(GOOD, LENGTH, ">i", 48)[:60], ErrorCode.CORRUPT_MESSAGE),
    ("magic 0", patched(GOOD, MAGIC, ">b", 0), ErrorCode.INVALID_RECORD),
    ("magic 1", patched(GOOD, MAGIC, ">b", 1), ErrorCode.INVALID_RECORD),
    ("magic 3", patched(GOOD, MAGIC, ">b", 3), ErrorCode.CORRUPT_MESSAGE),
    ("a wrong CRC", patched(GOOD, CRC, ">I", 1, fix_crc=False), ErrorCode.CORRUPT_MESSAGE),
    ("a flipped bit in a record", GOOD[:-2] + bytes([GOOD[-2] ^ 1]) + GOOD[-1:], ErrorCode.CORRUPT_MESSAGE),
    ("a base offset", patched(GOOD, 0, ">q", 1), ErrorCode.INVALID_RECORD),
    ("a lastOffsetDelta too large", patched(GOOD, LAST_OFFSET_DELTA, ">i", 77), ErrorCode.INVALID_RECORD),
    ("a negative lastOffsetDelta", patched(GOOD, LAST_OFFSET_DELTA, ">i", -1), ErrorCode.INVALID_RECORD),
    ("a count too large", patched(GOOD, COUNT, ">i", 3), ErrorCode.INVALID_RECORD),
    ("a count of zero", patched(GOOD, COUNT, ">i", 0), ErrorCode.INVALID_RECORD),
    (
        "a count and delta that agree, with fewer records",
        patched(patched(GOOD, COUNT, ">i", 3), LAST_OFFSET_DELTA, ">i", 2),
        ErrorCode.INVALID_RECORD,
    ),
    (
        "a count and delta that agree, with more records",
        patched(patched(GOOD, COUNT, ">i", 1), LAST_OFFSET_DELTA, ">i", 0),
        ErrorCode.INVALID_RECORD,
    ),
    ("a wrong maxTimestamp", patched(GOOD, MAX_TIMESTAMP, ">q", NOW + 1), ErrorCode.INVALID_RECORD),
    ("a control batch", patched(GOOD, ATTRIBUTES, ">h", 0x20), ErrorCode.INVALID_RECORD),
    ("LogAppendTime from the client", patched(GOOD, ATTRIBUTES, ">h", 0x08), ErrorCode.INVALID_TIMESTAMP),
    ("a producer id without a sequence", patched(GOOD, PRODUCER_ID, ">q", 7), ErrorCode.INVALID_RECORD),
    (
        "a transactional batch",
        batch(producer_id=7, epoch=0, sequence=0, transactional=True),
        ErrorCode.INVALID_TXN_STATE,
    ),
    ("records that are noise", with_body(b"\x55" * 40), ErrorCode.INVALID_RECORD),
    ("a record with a wrong length", with_body(b"\x10\0\0\0\x01\x02v\0"), ErrorCode.INVALID_RECORD),
    ("a negative number of headers", with_body(b"\x10\0\0\0\x01\x02v\x01"), ErrorCode.INVALID_RECORD),
    ("wrong offset deltas", with_body(b"\x0e\0\0\x02\x01\x02v\0"), ErrorCode.INVALID_RECORD),
    ("an unknown codec", patched(GOOD, ATTRIBUTES, ">h", 5), ErrorCode.UNKNOWN_SERVER_ERROR),
    *(
        (f"{codec.name} in name only", patched(GOOD, ATTRIBUTES, ">h", codec), ErrorCode.UNKNOWN_SERVER_ERROR)
        for codec in Codec
        if codec is not Codec.NONE
    ),
)


@pytest.mark.parametrize(("data", "code"), [bad[1:] for bad in BAD_BATCHES], ids=[bad[0] for bad in BAD_BATCHES])
def test_a_batch_that_is_not_right_is_refused_and_leaves_no_trace(
    log: PartitionLog, data: bytes, code: ErrorCode
) -> None:
    assert refused(log, data).code is code


def test_the_record_that_the_negative_controls_damage_is_fine_undamaged(log: PartitionLog) -> None:
    appended(log, GOOD)
    appended(log, with_body(b"\x0e\0\0\0\x01\x02v\0"))


def test_releases_before_2_4_report_corrupt_message_for_an_invalid_record(log: PartitionLog) -> None:
    result = refused(log, GOOD + GOOD, rules=LogRules(knows_invalid_record=False))

    assert result.code is ErrorCode.CORRUPT_MESSAGE


def test_zstd_needs_produce_version_7(log: PartitionLog) -> None:
    data = batch(codec=Codec.ZSTD)

    assert refused(log, data, rules=LogRules(produce_version=6)).code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    appended(log, data, rules=LogRules(produce_version=7))


def test_a_batch_may_be_exactly_as_large_as_max_message_bytes() -> None:
    data = batch(b"x" * 1000)

    appended(PartitionLog("orders", 0, TopicConfig(max_message_bytes=len(data))), data)
    result = refused(PartitionLog("orders", 0, TopicConfig(max_message_bytes=len(data) - 1)), data)

    assert result.code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_topic_with_its_own_compression_measures_what_it_would_store() -> None:
    data = batch(b"x" * 1000, codec=Codec.GZIP)
    size = len(batch(b"x" * 1000))
    topics = {"producer": len(data), "gzip": len(data), "uncompressed": size}

    for compression, limit in topics.items():
        appended(PartitionLog("orders", 0, TopicConfig(limit, compression_type=compression)), data)
    result = refused(PartitionLog("orders", 0, TopicConfig(size - 1, compression_type="uncompressed")), data)

    assert result.code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_compacted_topic_names_the_records_without_a_key() -> None:
    log = PartitionLog("orders", 0, TopicConfig(compacted=True))

    result = refused(log, batch(b"a", b"b"))
    appended(log, batch(b"a", key=b"k"))

    assert result.code is ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in result.record_errors] == [0, 1]


def test_records_from_more_than_an_hour_ahead_are_refused_since_4_0(log: PartitionLog) -> None:
    data = batch(timestamp=NOW + 3_600_001)

    assert refused(log, data).code is ErrorCode.INVALID_TIMESTAMP
    appended(log, data, rules=LogRules(limits_future_timestamps=False))


def test_a_topic_may_refuse_old_records() -> None:
    log = PartitionLog("orders", 0, TopicConfig(message_timestamp_before_max_ms=1000))

    result = refused(log, batch(timestamp=NOW - 1001))
    appended(log, batch(timestamp=NOW - 1000))

    assert (result.code, len(result.record_errors)) == (ErrorCode.INVALID_TIMESTAMP, 1)


def test_the_difference_of_older_releases_bounds_each_side_without_a_limit_of_its_own() -> None:
    old, new = batch(timestamp=NOW - 1001), batch(timestamp=NOW + 1001)
    both = PartitionLog("orders", 0, TopicConfig(message_timestamp_difference_max_ms=1000))
    one = PartitionLog(
        "orders", 0, TopicConfig(message_timestamp_difference_max_ms=1000, message_timestamp_after_max_ms=2000)
    )

    assert [refused(both, each).code for each in (old, new)] == [ErrorCode.INVALID_TIMESTAMP] * 2
    assert refused(one, old).code is ErrorCode.INVALID_TIMESTAMP
    appended(one, new)


def test_kafkas_topic_configurations_are_read() -> None:
    config = TopicConfig.from_kafka(
        {
            "max.message.bytes": "100",
            "message.timestamp.type": "LogAppendTime",
            "min.insync.replicas": "2",
            "cleanup.policy": "compact,delete",
            "retention.ms": "1000",
        }
    )

    assert config == TopicConfig(100, TimestampType.LOG_APPEND_TIME, min_insync_replicas=2, compacted=True)
    with pytest.raises(ConfigError, match=r"max\.message\.bytes"):
        TopicConfig.from_kafka({"max.message.bytes": "many"})


# -- sequences ---------------------------------------------------------------------------------------------------------


def test_a_batch_that_is_sent_again_gets_the_offset_of_the_first_time(log: PartitionLog) -> None:
    appended(log, idempotent(0, 3))
    appended(log, idempotent(3, 2))

    again = appended(log, idempotent(0, 3))

    assert (again.base_offset, again.duplicate, log.end_offset) == (0, True, 5)


def test_only_the_last_five_batches_are_recognised(log: PartitionLog) -> None:
    for sequence in range(6):
        appended(log, idempotent(sequence))

    assert appended(log, idempotent(1)).duplicate
    assert refused(log, idempotent(0)).code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize(("sequence", "count"), [(0, 2), (1, 2), (0, 4), (2, 3), (4, 1), (-1 + 2**31, 1)])
def test_a_repetition_that_is_cut_otherwise_is_out_of_order(log: PartitionLog, sequence: int, count: int) -> None:
    appended(log, idempotent(0, 3))

    assert refused(log, idempotent(sequence, count)).code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_is_out_of_order(log: PartitionLog) -> None:
    appended(log, idempotent(0))

    assert refused(log, idempotent(2)).code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    appended(log, idempotent(1))


def test_a_producer_without_state_may_start_anywhere_since_2_5(log: PartitionLog) -> None:
    appended(log, idempotent(5))

    assert refused(log, idempotent(0)).code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_producer_without_state_must_start_at_0_before_2_5(log: PartitionLog) -> None:
    rules = LogRules(accepts_unknown_producers=False)

    assert refused(log, idempotent(5), rules=rules).code is ErrorCode.UNKNOWN_PRODUCER_ID
    appended(log, idempotent(0), rules=rules)


def test_an_older_epoch_is_refused(log: PartitionLog) -> None:
    appended(log, idempotent(0, epoch=4))

    assert refused(log, idempotent(1, epoch=3)).code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_new_epoch_starts_at_sequence_0_and_forgets_the_old_batches(log: PartitionLog) -> None:
    appended(log, idempotent(0, epoch=0))

    assert refused(log, idempotent(1, epoch=1)).code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert not appended(log, idempotent(0, epoch=1)).duplicate
    assert refused(log, idempotent(0, epoch=0)).code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_the_sequence_goes_on_with_0_after_its_largest_value(log: PartitionLog) -> None:
    appended(log, idempotent(MAX_SEQUENCE))
    appended(log, idempotent(0))

    assert [record.sequence for record in log.records()] == [MAX_SEQUENCE, 0]


def test_a_batch_may_span_the_wrap_of_the_sequence_and_is_still_recognised(log: PartitionLog) -> None:
    appended(log, idempotent(MAX_SEQUENCE - 1, 4))

    assert [record.sequence for record in log.records()] == [MAX_SEQUENCE - 1, MAX_SEQUENCE, 0, 1]
    assert appended(log, idempotent(MAX_SEQUENCE - 1, 4)).duplicate
    assert not appended(log, idempotent(2)).duplicate


def test_producers_do_not_share_sequences(log: PartitionLog) -> None:
    appended(log, idempotent(0, producer_id=7))

    assert not appended(log, idempotent(0, producer_id=8)).duplicate


def test_a_duplicate_returns_the_largest_timestamp_of_the_batch_as_kafka_does(log: PartitionLog) -> None:
    assert appended(log, idempotent(0)).log_append_time_ms == -1
    assert appended(log, idempotent(0)).log_append_time_ms == NOW


def test_a_forgotten_producer_may_go_on_anywhere(log: PartitionLog) -> None:
    appended(log, idempotent(0))

    log.forget_producer(7)

    assert not appended(log, idempotent(9)).duplicate


DAY = 86_400_000


@pytest.mark.parametrize(
    ("timestamps", "is_forgotten"),
    [
        ([NOW], False),
        ([NOW - DAY + 1], False),
        ([NOW - DAY], True),
        ([NOW, NOW - DAY], True),
        ([NOW - DAY, NOW], False),
    ],
)
def test_the_state_of_a_producer_is_as_old_as_the_timestamp_of_its_last_batch(
    log: PartitionLog, timestamps: list[int], is_forgotten: bool
) -> None:
    batches = [batch(producer_id=7, epoch=0, sequence=at, timestamp=each) for at, each in enumerate(timestamps)]
    for each in batches:
        appended(log, each)

    log.expire_producers(NOW, DAY)

    assert appended(log, batches[-1]).duplicate is not is_forgotten


def test_a_producer_in_a_transaction_is_not_forgotten_and_its_marker_makes_it_young_again(log: PartitionLog) -> None:
    old = batch(producer_id=7, epoch=0, sequence=0, timestamp=NOW - 2 * DAY, transactional=True)
    log.append(old, leader_epoch=0, now_ms=NOW, rules=LogRules(), verified=True)

    log.expire_producers(NOW, DAY)
    assert appended(log, old).duplicate

    log.end_transaction(7, 0, committed=True, leader_epoch=0, coordinator_epoch=0, now_ms=NOW)
    log.expire_producers(NOW + DAY - 1, DAY)
    assert appended(log, old).duplicate
    log.expire_producers(NOW + DAY, DAY)
    assert log.producers == {}


def test_a_producer_whose_broker_stamps_the_records_is_as_old_as_its_last_write() -> None:
    log = PartitionLog("orders", 0, TopicConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME))
    old = batch(producer_id=7, epoch=0, sequence=0, timestamp=NOW - 2 * DAY)
    appended(log, old)

    log.expire_producers(NOW + DAY - 1, DAY)

    assert appended(log, old).duplicate


def test_a_disowned_producer_is_unknown_until_it_starts_again(log: PartitionLog) -> None:
    appended(log, idempotent(0))

    log.forget_producer(7, disown=True)

    assert refused(log, idempotent(1)).code is ErrorCode.UNKNOWN_PRODUCER_ID
    appended(log, idempotent(0, epoch=1))
    appended(log, idempotent(1, epoch=1))


def test_a_fenced_producer_must_take_another_epoch(log: PartitionLog) -> None:
    appended(log, idempotent(0))

    log.fence_producer(7)

    assert refused(log, idempotent(1)).code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(log, idempotent(1, epoch=1)).code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    appended(log, idempotent(0, epoch=1))


# -- reading -----------------------------------------------------------------------------------------------------------


def test_reading_gives_whole_batches_up_to_the_limit_but_always_one(log: PartitionLog) -> None:
    for _ in range(3):
        appended(log, batch(b"a", b"b"))
    size = len(log.batches[0].raw)

    assert log.read(3, 10_000) == log.batches[1].raw + log.batches[2].raw
    assert log.read(0, size * 2) == log.batches[0].raw + log.batches[1].raw
    assert log.read(0, 1) == log.batches[0].raw
    assert log.read(0, 1, at_least_one=False) == b""
    assert log.read(6, 10_000) == b""


def test_deleted_records_are_gone_and_the_start_moves(log: PartitionLog) -> None:
    for _ in range(3):
        appended(log, batch(b"a", b"b"))

    log.delete_records(3)

    assert log.start_offset == 3
    assert [record.offset for record in log.records()] == [3, 4, 5]
    assert len(log.batches) == 2
