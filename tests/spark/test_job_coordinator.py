"""One transaction for all tasks of a batch: it becomes visible as a whole, once, or not at all, whatever is run again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from aioproducer import TopicPartition, TransactionCoordinatorClient
from aioproducer.errors import SharedPartition, TransactionAbortable
from aioproducer.spark.exactly_once.commit_marker import CommitMarker, CommitMarkerMissing, marker_group
from aioproducer.spark.exactly_once.job_transaction import AttemptRefused
from aioproducer.spark.exactly_once.task_attempt import TaskAttempt
from aioproducer.spark.exactly_once.task_failure import TaskFailure
from aioproducer.spark.exactly_once.task_summary import TaskSummary
from aioproducer.spark.exactly_once.write_failed import WriteFailed
from aioproducer.spark.sink.task_run import TaskRun
from aioproducer.testing import FakeBroker
from aioproducer.types import OffsetAndMetadata
from tests.spark.query import Query, rows_of

MARKER = TopicPartition("orders", 0)


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"orders": 4}) as broker:
        yield broker


def visible(broker: FakeBroker) -> list[int]:
    return sorted(int(record.value or b"") for record in broker.records("orders", committed=True))


def query_on(broker: FakeBroker, name: str = "q1", **options: str) -> Query:
    return Query(broker.bootstrap_servers, "orders", name, **options)


def test_a_batch_becomes_visible_as_a_whole_when_it_is_committed(broker: FakeBroker) -> None:
    query = query_on(broker)
    transaction = query.begin()
    summaries = [query.task(transaction, 0, partition) for partition in range(2)]
    assert visible(broker) == []

    query.commit(summaries, 0)

    assert visible(broker) == rows_of(0)
    assert {partition: each.records for summary in summaries for partition, each in summary.written.items()} == {
        TopicPartition("orders", 0): 10,
        TopicPartition("orders", 1): 10,
    }


def test_a_batch_asks_for_one_epoch_and_ends_once(broker: FakeBroker) -> None:
    query = query_on(broker)

    query.run(0)
    query.run(1)

    assert (broker.count("InitProducerId"), broker.count("EndTxn")) == (2, 2)
    assert visible(broker) == rows_of(0, 1)


def test_the_marker_is_committed_with_the_batch(broker: FakeBroker) -> None:
    query = query_on(broker)
    query.run(0)
    query.run(1)

    assert query.begin().marker == CommitMarker("q1", 1, 20)


def test_a_committed_batch_that_runs_again_is_skipped(broker: FakeBroker) -> None:
    """The driver died after EndTxn, before Spark's commit log."""
    query = query_on(broker)
    query.run(0)

    again = query.run(0)

    assert [(each.skipped, each.rows) for each in again] == [(True, 0)] * 2
    assert visible(broker) == rows_of(0)


def test_a_batch_whose_driver_died_before_the_end_runs_again_as_if_it_never_had(broker: FakeBroker) -> None:
    query = query_on(broker)
    transaction = query.begin()
    for partition in range(2):
        query.task(transaction, 0, partition)

    query.run(0)

    assert visible(broker) == rows_of(0)


def test_an_older_driver_is_fenced(broker: FakeBroker) -> None:
    older, newer = query_on(broker), query_on(broker)
    theirs = older.begin()
    summaries = [older.task(theirs, 0, partition) for partition in range(2)]

    newer.run(0)

    with pytest.raises(WriteFailed, match=r"another query or job started with the same transactional\.id 't'"):
        older.commit(summaries, 0)
    failure = older.task(theirs, 0, 2).failure
    assert failure is not None
    assert failure.is_of_end
    assert visible(broker) == rows_of(0)


@pytest.mark.parametrize(("versions", "is_refused"), [("4.3.1", True), ("3.9.2", False)])
def test_a_task_that_fails_ends_the_others_only_where_the_end_shuts_them_out(versions: str, is_refused: bool) -> None:
    """Elsewhere a task that went on would open a transaction with the same epoch, and it would go unnoticed."""
    with FakeBroker(topics={"orders": 4}, versions=versions) as broker:
        query = query_on(broker)
        transaction = query.begin()
        query.task(transaction, 0, 0)

        asyncio.run(query.coordinator().stop_others(transaction.handle))

        assert broker.count("EndTxn") == int(is_refused)
        failure = query.task(transaction, 0, 1).failure
        assert (failure is not None and failure.is_of_end) is is_refused


def test_rows_that_a_task_gave_up_with_its_transaction_are_not_logged(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Another task has failed and ended the transaction; what computes the rows of this one fails as well."""
    query = query_on(broker)
    transaction = query.begin()

    def rows() -> Iterator[Any]:
        with broker.hold("Produce"):
            yield pa.record_batch({"value": ["1"] * 5000, "partition": pa.array([0] * 5000, pa.int32())})
            broker.wait_for(lambda held: held.count("Produce") > 0)
            asyncio.run(query.coordinator().abort([transaction.handle]))
        raise ValueError("a mistake of the user's")

    attempt = TaskAttempt(1, 0, query.name, 0)
    failure = TaskRun(query.options, query.columns, transaction, attempt).report(rows()).failure

    assert failure is not None
    assert "a mistake of the user's" in failure.reason
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING] == []


def test_a_twin_that_fails_before_the_commit_takes_no_row_from_it() -> None:
    """A lost attempt still runs, and fails just before the driver commits what the others wrote."""
    with FakeBroker(topics={"orders": 4}, versions="3.9.2") as broker:
        query = query_on(broker)
        transaction = query.begin()
        summaries = [query.task(transaction, 0, partition) for partition in range(2)]

        asyncio.run(query.coordinator().stop_others(transaction.handle))
        query.commit(summaries, 0)

        assert visible(broker) == rows_of(0)
        assert query.begin().marker == CommitMarker("q1", 0, 20)


def test_the_driver_aborts_when_a_task_has_failed(broker: FakeBroker) -> None:
    query = query_on(broker)
    transaction = query.begin()
    good = query.task(transaction, 0, 0)
    bad = replace(good, failure=TaskFailure("a row is too large"), written={})

    with pytest.raises(
        WriteFailed, match=r"^The rows were not written: a row is too large\. None of them become visible"
    ):
        query.commit([good, bad], 0)

    assert broker.count("EndTxn") == 1
    assert visible(broker) == []


def test_an_error_in_the_rows_that_a_task_is_given_is_reported_as_well(broker: FakeBroker) -> None:
    query = query_on(broker)
    transaction = query.begin()

    def broken() -> Iterator[Any]:
        yield from ()
        raise ValueError("half a batch")

    summary = TaskRun(query.options, query.columns, transaction, TaskAttempt(0, 0, query.name)).report(broken())

    assert summary.failure is not None
    assert summary.failure.reason == "half a batch"


def test_an_abort_of_nothing_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Before Kafka 3.0 a transaction without records cannot be distinguished from a committed one."""
    with FakeBroker(topics={"orders": 4}, versions="2.8.2") as broker:
        query = query_on(broker)

        query.abort(query.begin())

    assert broker.count("EndTxn") == 1
    assert [each for each in caplog.records if each.levelname == "WARNING"] == []


def test_two_tasks_that_write_one_partition_are_refused_and_nothing_is_visible(broker: FakeBroker) -> None:
    query = query_on(broker)
    transaction = query.begin()
    written = query.task(transaction, 0, 0)

    with pytest.raises(SharedPartition, match="partition_for_kafka"):
        query.commit([written, written], 0)

    assert visible(broker) == []
    query.run(0)
    assert visible(broker) == rows_of(0)


def test_a_task_that_meets_another_in_its_partition_names_the_way_out(broker: FakeBroker) -> None:
    query = query_on(broker)
    transaction = query.begin()
    query.task(transaction, 0, 0, 1000, attempt_id=12)

    failure = query.task(transaction, 0, 0, 1000, attempt_id=19).failure

    assert failure is not None
    assert "partition_for_kafka" in failure.reason
    assert not failure.is_of_end


def test_a_stage_that_runs_again_with_attempt_0_is_detected_by_its_batches(broker: FakeBroker) -> None:
    """Equal sequences of two writers count as repeats; the number of the attempt cuts the batches otherwise."""
    query = query_on(broker)
    transaction = query.begin()
    query.task(transaction, 0, 0, 1000, attempt_id=12)

    assert query.task(transaction, 0, 0, 1000, attempt_id=19).failure is not None

    query.abort(transaction)
    assert visible(broker) == []


def test_a_later_attempt_at_a_task_is_refused_before_it_writes(broker: FakeBroker) -> None:
    query = query_on(broker)
    transaction = query.begin()
    broker.forget_requests()

    with pytest.raises(AttemptRefused, match="write_exactly_once"):
        query.task(transaction, 0, 0, number=1)

    assert broker.requests == []


def test_task_summaries_that_do_not_fit_together_are_not_committed(broker: FakeBroker) -> None:
    query = query_on(broker)
    transaction = query.begin()
    done = query.task(transaction, 0, 0)

    with pytest.raises(TransactionAbortable, match="1 of 2 tasks did not report"):
        query.commit([done, None], 0)
    with pytest.raises(TransactionAbortable, match="different transactions or batches"):
        query.commit([done, TaskSummary(transaction=transaction, query="q1", batch=1)], 0)
    with pytest.raises(TransactionAbortable):
        query.commit([done], 7)

    assert visible(broker) == []


def test_an_abort_after_the_commit_changes_nothing(broker: FakeBroker) -> None:
    """Spark calls abort() with all messages where commit() has raised, whatever became of it."""
    query = query_on(broker)
    summaries = query.run(0)
    handle = summaries[0].handle
    assert handle is not None

    asyncio.run(query.coordinator().abort([handle]))

    assert visible(broker) == rows_of(0)
    query.run(1)
    assert visible(broker) == rows_of(0, 1)


def test_a_lost_answer_to_the_commit_is_asked_for_again(broker: FakeBroker) -> None:
    query = query_on(broker)
    transaction = query.begin()
    summaries = [query.task(transaction, 0, partition) for partition in range(2)]
    broker.drop_connection("EndTxn", when="after")

    query.commit(summaries, 0)

    assert visible(broker) == rows_of(0)


def test_a_transaction_that_took_too_long_is_aborted_and_the_batch_runs_again(broker: FakeBroker) -> None:
    query = query_on(broker)
    transaction = query.begin()
    transaction = replace(transaction, began_at=transaction.began_at - 601)  # longer ago than it may take
    summaries = [query.task(transaction, 0, partition) for partition in range(2)]
    broker.expire_transaction("t")

    with pytest.raises(WriteFailed, match=r"longer than transaction\.timeout\.ms=600000,"):
        query.commit(summaries, 0)

    assert visible(broker) == []
    query.run(0)
    assert visible(broker) == rows_of(0)


def delete_marker(broker: FakeBroker) -> None:
    broker.cluster.groups.group(marker_group("t")).offsets.clear()


def test_a_marker_that_is_gone_stops_a_query_that_goes_on(broker: FakeBroker) -> None:
    query = query_on(broker)
    query.run(0)
    delete_marker(broker)

    with pytest.raises(CommitMarkerMissing, match="trust-checkpoint"):
        query.run(1)

    assert visible(broker) == rows_of(0)
    query_on(broker, **{"commit.marker.missing": "trust-checkpoint"}).run(1)
    assert visible(broker) == rows_of(0, 1)


def test_a_new_checkpoint_writes_nothing_a_second_time_unless_that_is_asked_for(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    query_on(broker).run(0)

    with pytest.raises(CommitMarkerMissing, match=r"If the checkpoint was deleted .*'trust-checkpoint'"):
        query_on(broker, "q2").run(0)
    assert visible(broker) == rows_of(0)

    query_on(broker, "q2", **{"commit.marker.missing": "trust-checkpoint"}).run(0)

    assert visible(broker) == sorted(rows_of(0, 0))
    assert "belongs to another query: batch 0 of query q1 (20 rows" in caplog.text
    query_on(broker, "q2").run(1)
    assert visible(broker) == sorted(rows_of(0, 0, 1))


def test_another_querys_marker_is_not_accepted_by_a_query_that_goes_on(broker: FakeBroker) -> None:
    query_on(broker).run(0)

    with pytest.raises(CommitMarkerMissing, match=r"must not share a transactional\.id"):
        query_on(broker, "q2").run(3)


def test_a_checkpoint_that_was_rolled_back_repeats_nothing(broker: FakeBroker) -> None:
    query = query_on(broker)
    for batch in range(3):
        query.run(batch)

    for batch in range(4):
        query.run(batch)

    assert visible(broker) == rows_of(0, 1, 2, 3)


def test_an_offset_that_is_no_marker_is_not_mistaken_for_one(broker: FakeBroker) -> None:
    async def commit_something_else() -> None:
        async with TransactionCoordinatorClient(broker.bootstrap_servers) as client:
            handle = await client.init("other")
            await client.send_offsets(handle, {MARKER: OffsetAndMetadata(5, "mine")}, marker_group("t"))
            await client.commit(handle)

    asyncio.run(commit_something_else())

    with pytest.raises(CommitMarkerMissing, match="did not write"):
        query_on(broker).begin()


def test_a_job_without_rows_commits_its_marker(broker: FakeBroker) -> None:
    query = query_on(broker)
    transaction = query.begin()
    summary: Any = query.task(transaction, 0, 0, rows=0)

    query.commit([summary], 0)

    assert query.begin().marker == CommitMarker("q1", 0, 0)
