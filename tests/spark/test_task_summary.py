"""The summary of a batch's tasks equals that of one task that does all the work."""

from __future__ import annotations

from aioproducer import TopicPartition
from aioproducer.core.transactions.handle import TransactionHandle
from aioproducer.spark.exactly_once.earlier_commit import EarlierCommit
from aioproducer.spark.exactly_once.job_transaction import JobTransaction
from aioproducer.spark.exactly_once.task_summary import TaskSummary
from aioproducer.types import Written

ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)
TRANSACTION = JobTransaction(TransactionHandle("t", 7, 0))


def test_figures_of_tasks_are_added_up_and_those_of_the_batch_are_kept() -> None:
    zero, one = {ZERO: Written(3, 0, 2)}, {ONE: Written(2, 5, 6)}

    total = TaskSummary.together(
        [
            TaskSummary(
                3, 30, TRANSACTION, zero, "q", 4, offsets={ZERO: (0, 2)}, retries=1, dead_letters=2, seconds=0.5
            ),
            TaskSummary(2, 20, TRANSACTION, one, "q", 4, offsets={ONE: (5, 6)}, retries=2, dead_letters=0, seconds=1.5),
        ]
    )

    expected = TaskSummary(5, 50, TRANSACTION, zero | one, "q", 4, {ZERO: (0, 2), ONE: (5, 6)}, 3, 2)
    assert (total, total.seconds) == (expected, 1.5)


def test_the_offsets_of_a_partition_that_several_tasks_wrote_are_the_outermost_ones() -> None:
    total = TaskSummary.together([TaskSummary(offsets={ZERO: (5, 6)}), TaskSummary(offsets={ZERO: (2, 3)})])

    assert total.offsets == {ZERO: (2, 6)}


def test_a_batch_was_written_before_only_if_every_task_reports_it() -> None:
    skipped, written = TaskSummary(earlier=EarlierCommit(0, None)), TaskSummary(rows=1)

    assert TaskSummary.together([skipped, skipped]).skipped
    assert not TaskSummary.together([skipped, written]).skipped
    assert not TaskSummary.together([]).skipped
