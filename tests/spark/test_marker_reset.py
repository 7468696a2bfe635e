"""A marker that is set back lets batches be written again; and it is not, where a query could lose or double something."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest

from aioproducer import KafkaError, TransactionCoordinatorClient
from aioproducer.spark.exactly_once.commit_marker import (
    CommitMarker,
    CommitMarkerMissing,
    CommitMarkerSetBack,
    marker_group,
)
from aioproducer.spark.exactly_once.marker_reset import MarkerReset, ResetFailed, ResetRefused
from aioproducer.spark.exactly_once.write_failed import WriteFailed
from aioproducer.testing import FakeBroker
from aioproducer.types import OffsetAndMetadata, TopicPartition
from tests.spark.query import Query, rows_of

T = TypeVar("T")

TIME = 1_769_860_800_000


@pytest.fixture(params=["3.9.2", "4.3.1"])
def broker(request: pytest.FixtureRequest) -> Iterator[FakeBroker]:
    with FakeBroker(topics={"orders": 4, "markers": 1}, versions=request.param) as broker:
        yield broker


@pytest.fixture
def query(broker: FakeBroker) -> Query:
    return Query(broker.bootstrap_servers, "orders")


def visible(broker: FakeBroker) -> list[int]:
    return sorted(int(record.value or b"") for record in broker.records("orders", committed=True))


def with_marker(broker: FakeBroker, work: Callable[[MarkerReset], Awaitable[T]], topic: str = "orders") -> T:
    async def run() -> T:
        async with TransactionCoordinatorClient(broker.bootstrap_servers) as client:
            return await work(MarkerReset(client, "t", topic))

    return asyncio.run(run())


def look(broker: FakeBroker) -> CommitMarker:
    seen = with_marker(broker, MarkerReset.look)
    assert seen is not None
    return seen


def set_back(broker: FakeBroker, seen: CommitMarker, batch: int | None = None, *, abort: bool = False) -> CommitMarker:
    return with_marker(broker, lambda marker: marker.reset(seen, batch, abort=abort))


def test_the_marker_names_the_committed_batch_and_its_time(broker: FakeBroker, query: Query) -> None:
    assert with_marker(broker, MarkerReset.look) is None
    query.run(0)

    seen = look(broker)

    assert seen == CommitMarker("q1", 0, 20)
    assert seen.at_ms is not None
    assert "batch 0 of query q1 (20 rows, 2" in str(seen)


def test_after_it_batches_that_run_again_are_written_again(broker: FakeBroker, query: Query) -> None:
    for batch in range(3):
        query.run(batch)

    assert set_back(broker, look(broker)) == CommitMarker("q1", -1, None, set_back_from=2)

    for batch in range(4):
        query.run(batch)
    assert visible(broker) == sorted(rows_of(0, 1, 2, 0, 1, 2, 3))
    assert query.run(3)[0].skipped, "from here on each batch counts as before"


def test_a_query_that_was_idle_all_along_is_refused_and_the_rolled_back_one_loses_nothing(
    broker: FakeBroker, query: Query
) -> None:
    for batch in range(3):
        query.run(batch)
    set_back(broker, look(broker), 0)

    with pytest.raises(
        CommitMarkerSetBack,
        match=r"continues at batch 3, .* was reset from batch 2, and the next batch to be written is 1",
    ):
        query.run(3)
    assert look(broker) == CommitMarker("q1", 0, None, set_back_from=2)
    query.run(1)
    with pytest.raises(CommitMarkerSetBack, match="the next batch to be written is 2"):
        query.run(3)

    for batch in (1, 2, 3):
        query.run(batch)
    assert visible(broker) == sorted(rows_of(0, 1, 2, 1, 2, 3))
    assert look(broker) == CommitMarker("q1", 3, 20)


def test_a_query_that_was_not_rolled_back_and_runs_its_last_batch_again_is_refused(
    broker: FakeBroker, query: Query
) -> None:
    for batch in range(3):
        query.run(batch)
    set_back(broker, look(broker))

    with pytest.raises(CommitMarkerSetBack, match="reset-marker --batch 1"):
        query.run(2)

    assert visible(broker) == rows_of(0, 1, 2)


def test_trusting_the_checkpoint_does_not_help_one_that_was_not_rolled_back(broker: FakeBroker, query: Query) -> None:
    for batch in range(3):
        query.run(batch)
    set_back(broker, look(broker), 0)

    with pytest.raises(CommitMarkerSetBack):
        Query(broker.bootstrap_servers, "orders", **{"commit.marker.missing": "trust-checkpoint"}).run(3)


def test_once_the_query_is_where_it_was_batches_may_be_left_out_again(broker: FakeBroker, query: Query) -> None:
    for batch in range(3):
        query.run(batch)
    set_back(broker, look(broker), 1)
    query.run(2)

    query.run(7)

    assert look(broker) == CommitMarker("q1", 7, 20)


def test_a_job_is_done_again_once(broker: FakeBroker) -> None:
    nightly = Query(broker.bootstrap_servers, "orders", "job nightly")
    nightly.run(0)
    set_back(broker, look(broker))
    assert not nightly.run(0)[0].skipped
    assert nightly.run(0)[0].skipped
    set_back(broker, look(broker))

    assert not Query(broker.bootstrap_servers, "orders", "job weekly").run(0)[0].skipped
    assert look(broker) == CommitMarker("job weekly", 0, 20)


def test_a_new_checkpoint_also_begins_again_after_it(broker: FakeBroker, query: Query) -> None:
    for batch in range(3):
        query.run(batch)
    set_back(broker, look(broker))

    Query(broker.bootstrap_servers, "orders", "q2").run(0)

    with pytest.raises(CommitMarkerMissing, match="belongs to another query: batch 0 of query q2"):
        query.run(3)


def test_it_can_be_set_to_where_the_checkpoint_is_and_to_where_it_was(broker: FakeBroker, query: Query) -> None:
    for batch in range(4):
        query.run(batch)
    set_back(broker, look(broker))

    assert set_back(broker, look(broker), 1) == CommitMarker("q1", 1, None, set_back_from=3)
    assert set_back(broker, look(broker), 0) == CommitMarker("q1", 0, None, set_back_from=3)
    with pytest.raises(ResetRefused, match=r"--batch takes 0 to 3, other than 0\."):
        set_back(broker, look(broker), 4)
    with pytest.raises(ResetRefused, match="the marker already records"):
        set_back(broker, look(broker), 0)
    assert set_back(broker, look(broker), 3) == CommitMarker("q1", 3, None)

    query.run(4)
    assert visible(broker) == rows_of(0, 1, 2, 3, 4)


def test_from_a_batch_that_was_written_again_it_is_set_back_only(broker: FakeBroker, query: Query) -> None:
    for batch in range(4):
        query.run(batch)
    set_back(broker, look(broker), 0)
    query.run(1)

    with pytest.raises(ResetRefused, match=r"--batch takes 0 to 0\."):
        set_back(broker, look(broker), 2)
    assert set_back(broker, look(broker), 0) == CommitMarker("q1", 0, None, set_back_from=3)


def test_batches_up_to_the_one_it_is_set_to_stay_skipped(broker: FakeBroker, query: Query) -> None:
    for batch in range(4):
        query.run(batch)

    set_back(broker, look(broker), 1)

    for batch in range(4):
        query.run(batch)
    assert visible(broker) == sorted(rows_of(0, 1, 2, 3, 2, 3))


def test_a_marker_on_a_separate_topic_is_set_back_there(broker: FakeBroker) -> None:
    elsewhere = Query(broker.bootstrap_servers, "orders", **{"commit.marker.topic": "markers"})
    elsewhere.run(0)
    assert with_marker(broker, MarkerReset.look) is None
    seen = with_marker(broker, MarkerReset.look, "markers")
    assert seen is not None

    with_marker(broker, lambda marker: marker.reset(seen, None), "markers")

    elsewhere.run(0)
    assert visible(broker) == sorted(rows_of(0, 0))


@pytest.mark.parametrize("batch", [2, 3])
def test_it_is_set_back_only(broker: FakeBroker, query: Query, batch: int) -> None:
    for number in range(3):
        query.run(number)
    broker.forget_requests()

    with pytest.raises(ResetRefused, match=r"--batch takes 0 to 1\."):
        set_back(broker, look(broker), batch)

    assert broker.count("InitProducerId") == 0, "no producer was fenced"
    assert look(broker).batch == 2


def test_twice_is_refused_with_what_is_there(broker: FakeBroker, query: Query) -> None:
    query.run(0)
    set_back(broker, look(broker))

    with pytest.raises(ResetRefused, match=r"the marker already records no batch of query q1 \(reset from batch 0, "):
        set_back(broker, look(broker))


def test_an_open_transaction_is_seen(broker: FakeBroker, query: Query) -> None:
    assert not with_marker(broker, MarkerReset.has_open_transaction), "this transactional id is unknown yet"
    transaction = query.begin()
    query.task(transaction, 0, 0)
    assert with_marker(broker, MarkerReset.has_open_transaction)

    query.abort(transaction)

    assert not with_marker(broker, MarkerReset.has_open_transaction)


def test_a_batch_that_is_being_written_since_it_was_looked_at_is_left_alone(broker: FakeBroker, query: Query) -> None:
    query.run(0)
    seen = look(broker)
    transaction = query.begin()
    summaries = [query.task(transaction, 1, partition) for partition in range(2)]
    broker.forget_requests()

    with pytest.raises(ResetFailed, match="has begun since"):
        set_back(broker, seen)

    assert broker.count("InitProducerId") == 0, "no producer was fenced"
    query.commit(summaries, 1)
    assert visible(broker) == rows_of(0, 1)


def test_a_batch_that_has_not_written_yet_is_not_seen_and_fails_when_it_does(broker: FakeBroker, query: Query) -> None:
    query.run(0)
    query.run(1)
    transaction = query.begin()

    set_back(broker, look(broker), 0)

    with pytest.raises(KafkaError):
        query.commit([query.task(transaction, 2, partition) for partition in range(2)], 2)
    for batch in (1, 2):
        query.run(batch)
    assert visible(broker) == sorted(rows_of(0, 1, 1, 2))


def test_a_query_that_runs_after_all_fails_and_neither_loses_nor_doubles_a_row(
    broker: FakeBroker, query: Query
) -> None:
    query.run(0)
    transaction = query.begin()
    summaries = [query.task(transaction, 1, partition) for partition in range(2)]

    set_back(broker, look(broker), abort=True)

    with pytest.raises(WriteFailed, match="reset-marker"):
        query.commit(summaries, 1)
    with pytest.raises(CommitMarkerSetBack):
        query.run(1)
    assert visible(broker) == rows_of(0)
    for batch in range(2):
        query.run(batch)
    assert visible(broker) == sorted(rows_of(0, 0, 1))


def test_a_batch_that_was_committed_since_it_was_looked_at_keeps_its_marker(broker: FakeBroker, query: Query) -> None:
    query.run(0)
    seen = look(broker)
    query.run(1)

    with pytest.raises(ResetFailed, match="was changed to batch 1 of query q1"):
        set_back(broker, seen)

    assert query.run(1)[0].skipped
    assert visible(broker) == rows_of(0, 1)


def test_a_query_that_starts_meanwhile_wins(broker: FakeBroker, query: Query) -> None:
    query.run(0)
    seen = look(broker)

    class Interrupted(TransactionCoordinatorClient):
        """A query begins when the marker has been read for the second time."""

        async def send_offsets(self, *args: object, **kwargs: object) -> None:
            await asyncio.to_thread(query.run, 1)
            await super().send_offsets(*args, **kwargs)  # type: ignore[arg-type]

    async def run() -> None:
        async with Interrupted(broker.bootstrap_servers) as client:
            await MarkerReset(client, "t", "orders").reset(seen, None)

    with pytest.raises(ResetFailed, match="has begun in the meantime"):
        asyncio.run(run())

    assert look(broker) == CommitMarker("q1", 1, 20)


def test_brokers_that_cannot_list_open_transactions_are_distinguished(query: Query, broker: FakeBroker) -> None:
    broker.set_versions("2.8.2")

    with pytest.raises(ResetRefused, match=r"Kafka 3\.0\. Stop the query, and use --abort"):
        with_marker(broker, MarkerReset.has_open_transaction)


def test_the_marker_of_an_older_version_has_no_time() -> None:
    old = OffsetAndMetadata(6, '{"v":1,"q":"q1","b":5,"n":7}')

    found = CommitMarker.read(old)

    assert (found, str(found)) == (CommitMarker("q1", 5, 7), "batch 5 of query q1 (7 rows)")
    with pytest.raises(CommitMarkerMissing):
        CommitMarker.read(OffsetAndMetadata(6, "[]"))


def test_when_it_was_is_part_of_the_marker_and_does_not_make_it_another_one() -> None:
    marker = CommitMarker("q1", 5, 7, at_ms=TIME)

    found = CommitMarker.read(marker.position())

    assert found is not None
    assert found.at_ms == TIME
    assert found == CommitMarker("q1", 5, 7)
    assert str(found) == "batch 5 of query q1 (7 rows, 2026-01-31 12:00:00 UTC)"


def test_that_it_was_set_back_is_part_of_the_marker() -> None:
    by_hand = CommitMarker("q1", 4, None, at_ms=TIME, set_back_from=7)
    behind = CommitMarker("q1", 5, 20, set_back_from=7)

    assert CommitMarker.read(by_hand.position()) == by_hand != CommitMarker("q1", 4, None)
    assert CommitMarker.read(behind.position()) == behind
    assert str(by_hand) == "batch 4 of query q1 (reset from batch 7, 2026-01-31 12:00:00 UTC)"
    assert str(behind) == "batch 5 of query q1 (20 rows, reset from batch 7)"
    assert str(CommitMarker("q1", -1, None)) == "no batch of query q1"


def test_a_marker_as_it_was_set_back_before_that_was_part_of_it_lets_every_batch_through(
    broker: FakeBroker, query: Query
) -> None:
    async def set_back_as_before() -> None:
        async with TransactionCoordinatorClient(broker.bootstrap_servers) as client:
            handle = await client.init("t")
            position = OffsetAndMetadata(0, '{"v":1,"q":"q1","b":-1,"n":0,"t":1769860800000}')
            await client.send_offsets(handle, {TopicPartition("orders", 0): position}, marker_group("t"))
            await client.commit(handle)

    asyncio.run(set_back_as_before())

    query.run(5)

    assert visible(broker) == rows_of(5)
