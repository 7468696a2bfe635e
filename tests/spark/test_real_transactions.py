"""Drivers and tasks of a query on real Kafka, with a consumer that shares nothing with us as the judge."""

from __future__ import annotations

import uuid
from collections import Counter

import pytest

from aioproducer.cli.main import main
from aioproducer.errors import KafkaError, ProducerFenced, SharedPartition, TransactionAbortable
from aioproducer.spark.commit_marker import CommitMarker, CommitMarkerSetBack
from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.plugin import KafkaFactory
from tests.spark.query import Query, rows_of
from tests.spark.read_back import read_committed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PARTITIONS = 4


@pytest.fixture(params=["4.3.1", "4.3.1 with transaction.version=1", "3.9.2"])
def kafka(request: pytest.FixtureRequest, kafka_factory: KafkaFactory) -> KafkaCluster:
    """One broker."""
    version, _, older = request.param.partition(" ")
    return kafka_factory(version, features={"transaction.version": 1} if older else None)


class OnKafka:
    """A topic of its own, and queries that write to it under one transactional id."""

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


def test_what_a_dead_driver_has_left_is_aborted_by_the_next(on: OnKafka) -> None:
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

    with pytest.raises(ProducerFenced):
        older.commit(summaries, 0)
    with pytest.raises(KafkaError):
        older.task(theirs, 0, 2)
    newer.run(1)
    assert on.visible() == Counter(rows_of(0, 1))


def test_two_writers_of_one_partition_are_found_out_and_nothing_is_visible(on: OnKafka) -> None:
    query = on.query()
    transaction = query.begin()
    first = query.task(transaction, 0, 0, 1000, attempt_id=12)

    with pytest.raises(SharedPartition, match="partition_for_kafka"):
        query.task(transaction, 0, 0, 1000, attempt_id=19)
    with pytest.raises(SharedPartition, match="partition_for_kafka"):
        query.commit([first, first], 0)

    assert on.visible() == Counter()
    query.run(0)
    assert on.visible() == Counter(rows_of(0))


def test_dead_letters_have_a_producer_of_their_own_and_the_same_transaction(on: OnKafka) -> None:
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

    with pytest.raises((ProducerFenced, TransactionAbortable), match=r"transaction\.timeout\.ms=15000"):
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
    with pytest.raises(ProducerFenced):
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
