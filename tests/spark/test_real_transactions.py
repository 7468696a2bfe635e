"""Drivers and tasks of a query on real Kafka, with a consumer that shares nothing with us as the judge."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter

import pytest

from aioproducer.cli.main import main
from aioproducer.errors import SharedPartition
from aioproducer.record.reader import read_batches
from aioproducer.spark.exactly_once.commit_log import CommitLog
from aioproducer.spark.exactly_once.commit_marker import CommitMarker, CommitMarkerMismatch, CommitMarkerSetBack
from aioproducer.spark.exactly_once.fingerprint import Fingerprint
from aioproducer.spark.exactly_once.job_forget import forget_job
from aioproducer.spark.exactly_once.write_failed import WriteFailed
from aioproducer.spark.options.sink import COMMIT_LOG
from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.plugin import KafkaFactory
from tests.spark.query import Query, numbered, rows_of
from tests.spark.read_back import read_committed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PARTITIONS = 4


@pytest.fixture(params=["4.3.1", "4.3.1 with transaction.version=1", "3.9.2"])
def kafka(request: pytest.FixtureRequest, kafka_factory: KafkaFactory) -> KafkaCluster:
    """One broker."""
    version, _, older = request.param.partition(" ")
    return kafka_factory(version, features={"transaction.version": 1} if older else None)


class OnKafka:
    """A separate topic, and queries that write to it under one transactional id."""

    def __init__(self, kafka: KafkaCluster) -> None:
        self.kafka = kafka
        self.topic = f"orders-{uuid.uuid4().hex[:8]}"
        kafka.create_topic(self.topic, PARTITIONS)

    def query(self, name: str = "q1", **options: str) -> Query:
        given = {"transactional.id": self.topic, "kafka.max.block.ms": "120000", **options}
        return Query(self.kafka.bootstrap_servers, self.topic, name, **given)

    def visible(self) -> Counter[int]:
        return read_committed(self.kafka.bootstrap_servers, self.topic, PARTITIONS)


@pytest.fixture
def on(kafka: KafkaCluster) -> OnKafka:
    return OnKafka(kafka)


def test_a_batch_becomes_visible_as_a_whole_and_once(on: OnKafka) -> None:
    query = on.query()
    transaction = query.begin()
    summaries = [query.task(transaction, 0, partition) for partition in range(2)]
    assert on.visible() == Counter()

    query.commit(summaries, 0)
    assert on.visible() == Counter(rows_of(0))

    assert all(each.skipped for each in query.run(0)), "it was committed"
    query.run(1)
    assert on.visible() == Counter(rows_of(0, 1))
    assert query.begin().marker == CommitMarker("q1", 1, 20)


def test_other_rows_under_the_number_of_a_committed_batch_stop_the_query(on: OnKafka) -> None:
    query = on.query()
    for batch in range(3):
        query.run(batch)

    query.values = lambda batch, partition, row: numbered(batch + 50, partition, row)
    for batch in (1, 2):
        with pytest.raises(CommitMarkerMismatch, match=f"Batch {batch} of query q1 was committed before"):
            query.run(batch)

    assert on.visible() == Counter(rows_of(0, 1, 2))


def of_day(on: OnKafka, day: int, **options: str) -> Query:
    """A job whose rows are those of a day."""
    query = on.query(**{"job.id": f"day {day}", **options})
    query.values = lambda _, partition, row: numbered(day, partition, row)
    return query


def test_every_job_is_remembered_by_its_id(on: OnKafka) -> None:
    for day in (30, 31, 30, 31, 30):
        of_day(on, day).run(0)

    assert on.visible() == Counter(rows_of(30, 31))
    other = on.query(**{"job.id": "day 31"})
    with pytest.raises(CommitMarkerMismatch, match=r"choose another job\.id"):
        other.run(0)
    assert asyncio.run(forget_job(other.options.config, COMMIT_LOG, on.topic, "day 31"))
    other.run(0)
    assert on.visible() == Counter(rows_of(0, 30, 31))


def test_a_job_that_died_before_its_commit_is_not_remembered(on: OnKafka) -> None:
    query = on.query(**{"job.id": "day 30"})
    transaction = query.begin()
    summaries = [query.task(transaction, 0, partition) for partition in range(2)]
    log = CommitLog(query.options.config, COMMIT_LOG)
    asyncio.run(log.add(transaction.handle, "day 30", Fingerprint(), 0))
    assert not any(each.failure for each in summaries)

    query.run(0)  # by another driver

    assert on.visible() == Counter(rows_of(0))


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_jobs_are_remembered_when_their_topic_was_compacted(on: OnKafka) -> None:
    log = f"{on.topic}-log"
    often = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.001",
        "segment.ms": "1000",
        "delete.retention.ms": "0",
    }
    on.kafka.create_topic(log, 1, config=often)

    def run(day: int, content: int) -> Query:
        query = of_day(on, content, **{"job.id": f"day {day}", "commit.log.topic": log})
        query.run(0)
        return query

    query = run(0, 0)
    for content in range(1, 6):  # the same job again and again: earlier records of it can go
        assert asyncio.run(forget_job(query.options.config, log, on.topic, "day 0"))
        run(0, content)
    deadline, last = time.monotonic() + 600, 100
    while _records_of(on, log, b'"day 0"') > 2:
        assert time.monotonic() < deadline, "the broker has not compacted the log"
        last += 1
        run(last, last)  # segments end when something is written
        time.sleep(1)

    for day, content in ((0, 5), (last, last), (101, 101)):
        run(day, content)
    assert on.visible() == Counter(rows_of(*range(6), *range(101, last + 1)))


def _records_of(on: OnKafka, topic: str, part_of_key: bytes) -> int:
    batches = on.kafka.admin.fetch_all(topic)[0]
    return sum(
        part_of_key in (record.key or b"") for data in batches for each in read_batches(data) for record in each.records
    )


def test_a_transaction_left_by_a_dead_driver_is_aborted_by_the_next_one(on: OnKafka) -> None:
    query = on.query()
    transaction = query.begin()
    for partition in range(2):
        query.task(transaction, 0, partition)

    query.run(0)

    assert on.visible() == Counter(rows_of(0))


def test_the_older_of_two_drivers_is_fenced(on: OnKafka) -> None:
    older, newer = on.query(), on.query()
    theirs = older.begin()
    summaries = [older.task(theirs, 0, partition) for partition in range(2)]

    newer.run(0)

    with pytest.raises(WriteFailed, match="another query or job started"):
        older.commit(summaries, 0)
    late = older.task(theirs, 0, 2).failure
    assert late is not None
    assert late.is_of_end, late
    newer.run(1)
    assert on.visible() == Counter(rows_of(0, 1))


def test_two_writers_of_one_partition_are_detected_and_nothing_is_visible(on: OnKafka) -> None:
    query = on.query()
    transaction = query.begin()
    first = query.task(transaction, 0, 0, 1000, attempt_id=12)

    second = query.task(transaction, 0, 0, 1000, attempt_id=19).failure
    assert second is not None
    assert "partition_for_kafka" in second.reason
    with pytest.raises(SharedPartition, match="partition_for_kafka"):
        query.commit([first, first], 0)

    assert on.visible() == Counter()
    query.run(0)
    assert on.visible() == Counter(rows_of(0))


def test_dead_letters_have_their_own_producer_and_the_same_transaction(on: OnKafka) -> None:
    letters = f"{on.topic}-letters"
    on.kafka.create_topic(letters, PARTITIONS)
    one_digit = {"on.record.error": f"dead-letter:{letters}", "kafka.max.request.size": "98"}
    query = on.query(**one_digit)
    transaction = query.begin()
    summaries = [query.task(transaction, 0, 0, 12), query.task(transaction, 0, 1, 3)]
    assert [(each.rows, each.dead_letters) for each in summaries] == [(10, 2), (0, 3)]
    assert read_committed(on.kafka.bootstrap_servers, letters, PARTITIONS) == Counter()

    query.commit(summaries, 0)

    assert on.visible() == Counter(range(10))
    assert read_committed(on.kafka.bootstrap_servers, letters, PARTITIONS) == Counter([10, 11, 1000, 1001, 1002])


def test_a_batch_that_takes_longer_than_its_transaction_may_is_aborted_and_done_again(on: OnKafka) -> None:
    query = on.query(**{"transaction.timeout.ms": "15000"})
    transaction = query.begin()
    summaries = [query.task(transaction, 0, partition) for partition in range(2)]
    wait_ended(on)

    with pytest.raises(WriteFailed, match=r"longer than transaction\.timeout\.ms=15000"):
        query.commit(summaries, 0)

    assert on.visible() == Counter()
    on.query().run(0)
    assert on.visible() == Counter(rows_of(0))


def test_a_marker_that_is_set_back_lets_batches_be_written_again(
    on: OnKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    query = on.query()
    for batch in range(3):
        query.run(batch)
    summaries = [query.task(transaction := query.begin(), 3, 0)]
    servers = ["--bootstrap-servers", on.kafka.bootstrap_servers]
    reset = ["spark", "reset-marker", *servers, "--transactional-id", on.topic, "--topic", on.topic, "--yes"]

    assert main([*reset, "--batch", "0"]) == 2, "batch 3 is being written"
    assert "is open" in capsys.readouterr().err
    assert main([*reset, "--batch", "0", "--abort"]) == 0
    with pytest.raises(WriteFailed, match="reset-marker"):
        query.commit(summaries, 3)

    assert transaction.marker == CommitMarker("q1", 2, 20)
    assert query.begin().marker == CommitMarker("q1", 0, None, set_back_from=2)
    with pytest.raises(CommitMarkerSetBack):
        query.run(3)
    assert all(each.skipped for each in query.run(0))
    for batch in range(1, 4):
        query.run(batch)
    assert on.visible() == Counter(rows_of(0, 1, 2, 1, 2, 3))
    assert query.begin().marker == CommitMarker("q1", 3, 20)


def wait_ended(on: OnKafka) -> None:
    """Until the coordinator has ended the transaction by itself, which it looks for every ten seconds."""

    def is_ended() -> bool:
        _, end = on.kafka.admin.list_offsets(on.topic)[0]
        return end > 10  # behind the ten records there is the marker of the abort

    on.kafka._wait_until(is_ended, "the transaction was not ended", 120)
