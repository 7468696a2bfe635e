"""Rows that only the broker would refuse, by the rules of their topic, are found before anything is sent."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from aioproducer import Producer
from aioproducer.errors import DeliveryError, InvalidRecord, SendManyError
from aioproducer.spark.exactly_once.job_coordinator import JobCoordinator
from aioproducer.spark.exactly_once.task_attempt import TaskAttempt
from aioproducer.spark.exactly_once.task_summary import TaskSummary
from aioproducer.spark.options.sink import SinkOptions
from aioproducer.spark.sink.columns import SinkColumns
from aioproducer.spark.sink.task_run import TaskRun
from aioproducer.testing import FakeBroker, TopicConfig, TopicSpec
from aioproducer.types import TimestampType

HOUR = 3_600_000
SCHEMA = pa.schema([("key", pa.string()), ("value", pa.binary()), ("timestamp", pa.int64()), ("partition", pa.int32())])
GUARANTEES = {
    "at least once": {},
    "exactly once": {"delivery.guarantee": "exactly-once", "transactional.id": "t"},
}


def now() -> int:
    return time.time_ns() // 1_000_000


class Row(NamedTuple):
    key: str | None = "k"
    value: bytes | None = b"v"
    timestamp: int | None = None
    partition: int = 0


@pytest.fixture(params=list(GUARANTEES))
def guarantee(request: pytest.FixtureRequest) -> dict[str, str]:
    return GUARANTEES[request.param]


def table(rows: Sequence[tuple[Any, ...]], schema: pa.Schema = SCHEMA) -> Any:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, each.type) for column, each in zip(columns, schema, strict=True)]
    return pa.record_batch(arrays, schema=schema)


def run(broker: FakeBroker, batches: list[Any], **more: str) -> TaskSummary:
    """One task, which is committed where it is part of a transaction."""
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "on.record.error": "dead-letter:letters", **more}
    if "topic" not in batches[0].schema.names:
        given.setdefault("topic", "orders")
    options = SinkOptions.from_spark(given)
    kinds = {"string": "string", "binary": "binary", "int64": "bigint", "int32": "int", "double": "double"}
    columns = SinkColumns.of([(each.name, kinds[str(each.type)]) for each in batches[0].schema], options)
    if not options.is_exactly_once:
        return TaskRun(options, columns).run(batches)
    coordinator = JobCoordinator(options, is_stream=False)
    transaction = asyncio.run(coordinator.begin())
    summary = TaskRun(options, columns, transaction, TaskAttempt(1, 0, "q", 0)).run(batches)
    asyncio.run(coordinator.commit([summary], "q", 0))
    return summary


def values(broker: FakeBroker, topic: str) -> list[bytes | None]:
    return [record.value for record in broker.records(topic, committed=True)]


# -- each rule -----------------------------------------------------------------------------------------------------------

BEFORE, AFTER = {"message_timestamp_before_max_ms": HOUR}, {"message_timestamp_after_max_ms": 2 * HOUR}
DIFFERENCE = {"message_timestamp_difference_max_ms": HOUR}


def ahead(by_ms: int) -> Callable[[], Row]:
    """Of the time at which it is asked for: the tests before this one may have taken hours."""
    return lambda: Row(timestamp=now() + by_ms)


@pytest.mark.parametrize(
    ("versions", "config", "row", "sentence"),
    [
        ("4.3", {"max_message_bytes": 500}, lambda: Row(value=b"x" * 500), "more than max.message.bytes=500."),
        ("4.3", {"compacted": True}, lambda: Row(key=None), "no key, but the topic's cleanup.policy is compact."),
        ("4.3", BEFORE, ahead(-HOUR - 1), "message.timestamp.before.max.ms=3600000 on arrival."),
        ("4.3", AFTER, ahead(3 * HOUR), "message.timestamp.after.max.ms=7200000 ahead of the broker"),
        ("4.3", {}, ahead(2 * HOUR), "message.timestamp.after.max.ms=3600000 ahead of the broker"),
        ("3.5", DIFFERENCE, ahead(-2 * HOUR), "message.timestamp.difference.max.ms=3600000 on arrival"),
        ("3.5", DIFFERENCE, ahead(2 * HOUR), "message.timestamp.difference.max.ms=3600000 ahead of"),
        ("4.3", {}, lambda: Row(timestamp=-5), "The timestamp -5 is before 1970."),
    ],
)
def test_a_row_that_breaks_a_rule_of_its_topic_is_a_dead_letter(
    versions: str, config: dict[str, Any], row: Callable[[], Row], sentence: str, guarantee: dict[str, str]
) -> None:
    refused, fine = row(), Row(value=b"fine", timestamp=now() - HOUR // 2)
    topics: dict[str, int | TopicSpec] = {"orders": TopicSpec(config=TopicConfig(**config)), "letters": 1}

    with FakeBroker(topics=topics, versions=versions) as broker:
        with pytest.raises((SendManyError, InvalidRecord)):
            run(broker, [table([refused])], **{"on.record.error": "fail"}, **guarantee)
        summary = run(broker, [table([fine, refused, fine]), table([refused])], **guarantee)

        assert (summary.rows, summary.dead_letters) == (2, 2)
        assert values(broker, "orders") == [b"fine", b"fine"]
        letters = broker.records("letters", committed=True)
    assert [(each.key, each.value) for each in letters] == [
        (None if refused.key is None else b"k", refused.value),
    ] * 2
    for each in letters:
        reported = dict(each.headers)
        assert reported["aioproducer.topic"] == b"orders"
        assert sentence in (reported["aioproducer.error"] or b"").decode()


def test_each_row_is_measured_by_the_rules_of_its_own_topic(guarantee: dict[str, str]) -> None:
    schema = pa.schema(
        [("key", pa.string()), ("value", pa.binary()), ("topic", pa.string()), ("partition", pa.int32())]
    )
    rows = [
        (key, value, topic, 0)
        for topic in ("orders", "returns")
        for key, value in ((None, b"without"), ("k", b"x" * 500))
    ]
    topics: dict[str, int | TopicSpec] = {
        "orders": TopicSpec(config=TopicConfig(compacted=True)),
        "returns": TopicSpec(config=TopicConfig(max_message_bytes=500)),
        "letters": 1,
    }

    with FakeBroker(topics=topics) as broker:
        summary = run(broker, [table(rows, schema)] * 3, **guarantee)

        assert (summary.rows, summary.dead_letters) == (6, 6)
        assert values(broker, "orders") == [b"x" * 500] * 3
        assert values(broker, "returns") == [b"without"] * 3
        assert broker.count("DescribeConfigs") == 3  # once for each topic


def test_a_topic_that_stamps_the_records_itself_takes_any_timestamp() -> None:
    config = TopicConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME, message_timestamp_before_max_ms=HOUR)

    with FakeBroker(topics={"orders": TopicSpec(config=config), "letters": 1}) as broker:
        summary = run(broker, [table([Row(timestamp=0), Row(timestamp=now() + 100 * HOUR)])])

    assert (summary.rows, summary.dead_letters) == (2, 0)


def test_a_row_that_would_be_too_old_once_it_is_there_is_also_found() -> None:
    config = TopicConfig(message_timestamp_before_max_ms=HOUR)

    with FakeBroker(topics={"orders": TopicSpec(config=config), "letters": 1}) as broker:
        now = time.time_ns() // 1_000_000
        summary = run(broker, [table([Row(timestamp=now - HOUR + 5_000), Row(timestamp=now - HOUR + 60_000)])])

    assert (summary.rows, summary.dead_letters) == (1, 1)


def test_a_row_that_is_too_far_ahead_for_a_clock_that_is_behind_is_also_found() -> None:
    config = TopicConfig(message_timestamp_after_max_ms=HOUR)

    with FakeBroker(topics={"orders": TopicSpec(config=config), "letters": 1}) as broker:
        now = time.time_ns() // 1_000_000
        summary = run(broker, [table([Row(timestamp=now + HOUR - 1_000), Row(timestamp=now + HOUR - 60_000)])])

    assert (summary.rows, summary.dead_letters) == (1, 1)


def test_of_a_short_limit_a_tenth_is_left_for_clocks_that_differ() -> None:
    config = TopicConfig(message_timestamp_after_max_ms=60_000)

    with FakeBroker(topics={"orders": TopicSpec(config=config), "letters": 1}) as broker:
        now = time.time_ns() // 1_000_000
        rows = [Row(timestamp=now + ahead) for ahead in (52_000, 59_000)]  # the limit is 54 s
        summary = run(broker, [table(rows)])

    assert (summary.rows, summary.dead_letters) == (1, 1)


@pytest.mark.parametrize("limit", [2**63 - 2, 2**63 - 1_700_000_000_000])
def test_a_limit_beyond_the_end_of_time_is_none(limit: int) -> None:
    config = TopicConfig(message_timestamp_before_max_ms=limit, message_timestamp_after_max_ms=limit)

    with FakeBroker(topics={"orders": TopicSpec(config=config), "letters": 1}) as broker:
        summary = run(broker, [table([Row(timestamp=now()), Row(timestamp=0)])])

    assert (summary.rows, summary.dead_letters) == (2, 0)


@pytest.mark.parametrize(("unit", "last"), [("s", -1_000), ("ms", -1), ("us", -1), ("ns", -1)])
def test_a_timestamp_less_than_a_millisecond_before_1970_is_refused(unit: str, last: int) -> None:
    stamps = pa.array([now() - HOUR], pa.timestamp("ms", "UTC")).cast(pa.timestamp(unit, "UTC"), safe=False)
    before = pa.array([last, -2 if unit == "ms" else -1_001, 0, None], pa.timestamp(unit, "UTC"))
    batch = pa.record_batch({"value": list("abcde"), "timestamp": pa.concat_arrays([stamps, before])})

    with FakeBroker(topics={"orders": 1, "letters": 1}) as broker:
        given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "on.record.error": "dead-letter:letters"}
        options = SinkOptions.from_spark({**given, "topic": "orders"})
        TaskRun(options, SinkColumns.of([("value", "string"), ("timestamp", "timestamp")], options)).run([batch])

        assert values(broker, "orders") == [b"a", b"d", b"e"]
        assert values(broker, "letters") == [b"b", b"c"]
        reported = dict(broker.records("letters")[0].headers)["aioproducer.error"] or b""
    assert b"is before 1970." in reported


@pytest.mark.parametrize("stamp", [math.nan, math.inf, -math.inf, 1e300, 9.3e15, -0.5])
def test_rows_with_invalid_seconds_become_dead_letters_that_name_the_timestamp(
    guarantee: dict[str, str], stamp: float
) -> None:
    seconds = pa.array([now() / 1000, stamp, None, 1e300], pa.float64())
    partitions = pa.array([0] * 4, pa.int32())
    batch = pa.record_batch({"value": [b"a", b"b", b"c", b"d"], "timestamp": seconds, "partition": partitions})
    began = now()

    with FakeBroker(topics={"orders": 1, "letters": 1}) as broker:
        summary = run(broker, [batch], **guarantee)

        assert (values(broker, "orders"), values(broker, "letters")) == ([b"a", b"c"], [b"b", b"d"])
        letter, _ = broker.records("letters")
    assert (summary.rows, summary.dead_letters) == (2, 2)
    assert letter.timestamp_ms >= began
    reported = (dict(letter.headers)["aioproducer.error"] or b"").decode()
    assert ("is before 1970." if stamp == -0.5 else f"The timestamp {stamp} is not valid in Kafka") in reported
    assert reported.endswith(f"The topic of dead letters does not accept its timestamp either: {stamp}.")


@pytest.mark.parametrize("unit", ["us", "ms"])
def test_timestamps_of_spark_are_measured_in_milliseconds(unit: str) -> None:
    stamps = pa.array([now() - HOUR, now() + 2 * HOUR], pa.timestamp("ms", "UTC")).cast(pa.timestamp(unit, "UTC"))
    batch = pa.record_batch({"value": ["fine", "ahead"], "timestamp": stamps})

    with FakeBroker(topics={"orders": 1, "letters": 1}) as broker:
        given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "on.record.error": "dead-letter:letters"}
        options = SinkOptions.from_spark({**given, "topic": "orders"})
        TaskRun(options, SinkColumns.of([("value", "string"), ("timestamp", "timestamp")], options)).run([batch])

        assert (values(broker, "orders"), values(broker, "letters")) == ([b"fine"], [b"ahead"])


# -- what a letter carries -----------------------------------------------------------------------------------------------


def test_a_letter_keeps_its_timestamp_unless_the_topic_of_dead_letters_also_refuses_it() -> None:
    topics: dict[str, int | TopicSpec] = {
        "orders": TopicSpec(config=TopicConfig(message_timestamp_before_max_ms=HOUR)),
        "letters": TopicSpec(config=TopicConfig(message_timestamp_before_max_ms=3 * HOUR)),
    }
    old, ancient = now() - 2 * HOUR, now() - 4 * HOUR

    with FakeBroker(topics=topics) as broker:
        run(broker, [table([Row(timestamp=old), Row(timestamp=ancient)])])

        kept, stamped = broker.records("letters")
    assert kept.timestamp_ms == old
    assert stamped.timestamp_ms >= old + 2 * HOUR
    reported = (dict(stamped.headers)["aioproducer.error"] or b"").decode()
    assert reported.endswith(f"The topic of dead letters does not accept its timestamp either: {ancient}.")


def test_a_letter_names_the_timestamp_that_is_too_far_for_a_date() -> None:
    far = 400_000_000_000_000_000  # microseconds: in the year 14645
    stamps = pa.array([far, -1_000], pa.timestamp("us", "UTC"))
    batch = pa.record_batch({"value": ["far", "early"], "timestamp": stamps})

    with FakeBroker(topics={"orders": 1, "letters": 1}) as broker:
        given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "on.record.error": "dead-letter:letters"}
        options = SinkOptions.from_spark({**given, "topic": "orders"})
        TaskRun(options, SinkColumns.of([("value", "string"), ("timestamp", "timestamp")], options)).run([batch])

        reported = [(dict(each.headers)["aioproducer.error"] or b"").decode() for each in broker.records("letters")]
    assert reported[0].endswith(f"does not accept its timestamp either: {far} us since 1970.")
    assert reported[1].endswith("does not accept its timestamp either: 1969-12-31 23:59:59.999000+00:00.")


def test_a_row_with_several_faults_is_reported_all_of_them() -> None:
    with FakeBroker(topics={"orders": TopicSpec(config=TopicConfig(500, compacted=True)), "letters": 1}) as broker:
        run(broker, [table([Row(None, b"x" * 500)])])

        [letter] = broker.records("letters")
    reported = dict(letter.headers)["aioproducer.error"] or b""
    assert b"max.message.bytes=500. The record has no key" in reported


# -- sizes ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_rows_are_too_large_exactly_where_the_broker_refuses_them(codec: str) -> None:
    limit, random = 1000, Random(1)
    rows = [Row(f"{row}", random.randbytes(850 + 4 * row)) for row in range(60)]
    rows += [Row(f"{60 + row}", b"x" * 40 * row) for row in range(60)]
    topics = {name: TopicSpec(config=TopicConfig(limit)) for name in ("asked", "orders")}

    with FakeBroker(topics=topics | {"letters": 1}) as broker:
        refused = asyncio.run(refused_one_by_one(broker, rows, codec))
        summary = run(broker, [table(rows)], **{"kafka.compression.type": codec})

        assert 0 < len(refused) < len(rows)
        assert [letter.key for letter in broker.records("letters")] == refused
    assert (summary.rows, summary.dead_letters) == (len(rows) - len(refused), len(refused))


async def refused_one_by_one(broker: FakeBroker, rows: Sequence[Row], codec: Any) -> list[bytes]:
    """The keys of those that the broker refuses in a separate batch."""
    refused: list[bytes] = []
    async with Producer(broker.bootstrap_servers, compression_type=codec, batch_size=0) as producer:
        for row in rows:
            assert row.key is not None
            try:
                await producer.send("asked", row.value, key=row.key.encode())
            except DeliveryError:
                refused.append(row.key.encode())
    return refused


def test_the_size_of_a_row_depends_on_the_codec_of_its_topic() -> None:
    limited = TopicSpec(config=TopicConfig(1000))
    with FakeBroker(topics={"orders": limited, "logs": limited, "letters": 1}) as broker:
        for topic in ("orders", "logs"):
            run(
                broker,
                [table([Row(topic, b"x" * 2000)])],
                **{"kafka.compression.type": "logs:none,*:gzip", "topic": topic},
            )

        assert [each.key for each in broker.records("orders")] == [b"orders"]
        [letter] = broker.records("letters")
    assert letter.key == b"logs"
    assert b"(compression none), more than max.message.bytes=1000" in (dict(letter.headers)["aioproducer.error"] or b"")


def test_a_topic_that_stores_uncompressed_measures_what_it_stores(guarantee: dict[str, str]) -> None:
    rows = [Row("fits", b"x" * 900), Row("small as it is sent", b"x" * 1000)]
    topics: dict[str, int | TopicSpec] = {
        "orders": TopicSpec(config=TopicConfig(1000, compression_type="uncompressed")),
        "letters": 1,
    }

    with FakeBroker(topics=topics) as broker:
        summary = run(broker, [table(rows)], **{"kafka.compression.type": "gzip"}, **guarantee)

        [letter] = broker.records("letters", committed=True)
    assert (summary.rows, letter.key) == (1, b"small as it is sent")
    assert b"bytes uncompressed" in (dict(letter.headers)["aioproducer.error"] or b"")


def test_no_batch_is_larger_than_the_topic_takes(guarantee: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    rows = [Row(f"{row}", b"x" * 100) for row in range(2000)]
    topics: dict[str, int | TopicSpec] = {"orders": TopicSpec(config=TopicConfig(20_000)), "letters": 1}

    with FakeBroker(topics=topics) as broker, caplog.at_level(logging.WARNING):
        summary = run(broker, [table(rows)], **guarantee)

        assert max(len(batch.sent) for batch in broker.batches("orders")) > 5_000
    assert summary.rows == 2000
    assert "is split" not in caplog.text


def test_a_batch_that_is_too_large_though_each_row_fits_is_split(guarantee: dict[str, str]) -> None:
    schema = pa.schema([("value", pa.binary()), ("topic", pa.string()), ("partition", pa.int32())])
    rows = [(b"%d" % row, "orders", 0) for row in range(2000)]

    with FakeBroker(topics={"orders": TopicSpec(config=TopicConfig(3_000)), "letters": 1}) as broker:
        summary = run(broker, [table(rows, schema)], **guarantee)

        assert (summary.rows, summary.dead_letters) == (2000, 0)
        assert values(broker, "orders") == [value for value, _, _ in rows]


# -- if the rules are unknown ------------------------------------------------------------------------------------------


def test_where_the_rules_cannot_be_read_such_a_row_fails_the_task_as_ever(caplog: pytest.LogCaptureFixture) -> None:
    with (
        FakeBroker(topics={"orders": TopicSpec(config=TopicConfig(compacted=True)), "letters": 1}) as broker,
        caplog.at_level(logging.WARNING, "aioproducer.spark"),
    ):
        broker.fail("DescribeConfigs", "TOPIC_AUTHORIZATION_FAILED", times=None)
        with pytest.raises(SendManyError):
            run(broker, [table([Row(key=None)])] * 3)

    assert [message.partition(", so")[0] for message in caplog.messages] == [
        "Could not read the configuration of topic 'orders'",
        "Could not read the configuration of topic 'letters'",
    ]
