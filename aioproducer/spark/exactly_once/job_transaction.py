"""The one transaction that all tasks of a micro-batch, or of a batch job, write into, as the driver ships it to them."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from aioproducer.core.transactions.handle import TransactionHandle
from aioproducer.errors import KafkaError, SharedPartition, TransactionAbortable
from aioproducer.spark.exactly_once.commit_marker import (
    CommitMarker,
    CommitMarkerMismatch,
    CommitMarkerMissing,
    CommitMarkerSetBack,
    marker_group,
)
from aioproducer.spark.exactly_once.earlier_commit import EarlierCommit
from aioproducer.spark.exactly_once.task_attempt import TaskAttempt
from aioproducer.spark.options.sink import MarkerMismatch, MissingMarker

__all__ = ["AttemptRefused", "JobTransaction", "attempt_refused", "shared_by_tasks"]

logger = logging.getLogger("aioproducer.spark")


@dataclass(frozen=True, slots=True)
class JobTransaction:
    """The transaction, and what Kafka knows of commits before it.

    ``marker`` is that of the last batch that was committed with this transactional id (None: there is none). ``job`` is the
    commit of the same ``job.id`` in the commit log, None if there is none. ``began_at`` is when the transaction began, in
    seconds since 1970 by the driver's clock.
    """

    handle: TransactionHandle
    marker: CommitMarker | None = None
    missing_marker: MissingMarker = MissingMarker.FAIL
    mismatch: MarkerMismatch = MarkerMismatch.FAIL
    job: EarlierCommit | None = None
    began_at: float = 0.0

    def earlier(self, attempt: TaskAttempt) -> EarlierCommit | None:
        """The commit of the batch with the number of this one; None if this batch is to be written.

        Raises `CommitMarkerMissing` if nobody can tell, `CommitMarkerMismatch` if nobody knows what the earlier one
        held, and `CommitMarkerSetBack` if the marker was set back and the query's checkpoint was not, or not to the
        same batch.
        """
        if self.job is not None:
            return self.job
        marker = self.marker
        if marker is None or marker.query != attempt.query:
            self._check_begins(attempt)
            return None
        if marker.leaves_out(attempt.batch):
            raise self._set_back(attempt, marker)
        if attempt.batch > marker.batch:
            return None
        found = EarlierCommit(
            attempt.batch,
            marker.contents.get(attempt.batch),
            marker.at_ms if attempt.batch == marker.batch else None,
            last_batch=marker.batch,
        )
        if found.contents is None and self.mismatch is MarkerMismatch.FAIL:
            raise CommitMarkerMismatch(found.unknown(attempt.query))
        return found

    def why_it_ended(self, timeout_ms: int, now: float) -> str:
        """The reason why brokers do not take rows of this transaction any more; ``now`` in seconds since 1970."""
        if now - self.began_at >= timeout_ms / 1000:
            return (
                f"The batch took longer than transaction.timeout.ms={timeout_ms}, so Kafka aborted its transaction. Raise "
                "that option, up to the brokers' transaction.max.timeout.ms, or make batches smaller."
            )
        return (
            f"Another process has ended the transaction: another query or job has begun with the same transactional.id "
            f"{self._id!r} (give each its own, and run each only once at a time), its marker was set back with `aioproducer "
            "spark reset-marker`, or another attempt at one of its tasks has failed, as after the loss of an executor "
            "(Spark's log has it)."
        )

    def _check_begins(self, attempt: TaskAttempt) -> None:
        """Whether a query may write of whose commits the marker knows nothing."""
        marker = self.marker
        is_trusted = self.missing_marker is MissingMarker.TRUST_CHECKPOINT
        if attempt.batch > 0 and not is_trusted:
            raise self._missing(attempt)
        if marker is None:
            return
        if attempt.is_of_job:  # one job comes after the other
            logger.info("The marker of transactional_id %r is %s; %s begins.", self._id, marker, attempt.query)
            return
        if not is_trusted and marker.batch >= 0:  # else it was set back, so that nothing counts as written
            raise self._of_another_query(attempt, marker)
        logger.warning(
            "The commit marker of transactional_id %r is of another query: %s. Query %s begins at batch %d and writes it.",
            self._id, marker, attempt.query, attempt.batch,
        )  # fmt: skip

    @property
    def _id(self) -> str:
        return self.handle.transactional_id

    def _set_back(self, attempt: TaskAttempt, marker: CommitMarker) -> CommitMarkerSetBack:
        first, here = marker.batch + 1, attempt.batch - 1
        left_out = f"batch {first}" if first == here else f"batches {first} to {here}"
        way_out = (
            f" To go on as it is, set the marker with aioproducer spark reset-marker --batch {here}."
            if marker.may_be_set_to(here)
            else ""
        )
        return CommitMarkerSetBack(
            f"Query {attempt.query} goes on at batch {attempt.batch}, but its commit marker was set back from batch "
            f"{marker.set_back_from}, and batch {first} is the next one to be written: {left_out} would be left out. The "
            "query was running all along, or its checkpoint was not rolled back to where the marker is. Nothing of this "
            f"batch was written. Stop the query, and roll its checkpoint back so that it goes on at batch {first}.{way_out}"
        )

    def _missing(self, attempt: TaskAttempt) -> CommitMarkerMissing:
        group = marker_group(self._id)
        if self.marker is not None:
            return CommitMarkerMissing(
                f"Query {attempt.query} goes on at batch {attempt.batch}, but its commit marker, the offset of consumer "
                f"group {group!r}, is of another query: {self.marker}. Two queries must not share a transactional.id: give "
                "each its own. If the checkpoint was copied from another query, its batches were committed under that "
                "query's id. Nothing was written. To write this batch all the same, set "
                ".option('commit.marker.missing', 'trust-checkpoint') for one run."
            )
        return CommitMarkerMissing(
            f"Query {attempt.query} goes on at batch {attempt.batch}, but its commit marker, the offset of consumer group "
            f"{group!r}, is gone (deleted, with its topic perhaps, or expired by the brokers' offsets.retention.minutes). "
            "So nobody can tell whether this batch was committed before the query stopped. Nothing was written. Look at the "
            "topic; then set .option('commit.marker.missing', 'trust-checkpoint') for one run, which writes the batch."
        )

    def _of_another_query(self, attempt: TaskAttempt, marker: CommitMarker) -> CommitMarkerMissing:
        return CommitMarkerMissing(
            f"Query {attempt.query} begins at batch 0, but transactional.id {self._id!r} has committed another query's "
            f"batches: {marker}. If the checkpoint was deleted or is in another place, the rows that it covered would be "
            "written a second time: restore it. If both queries are to run, give each its own transactional.id. If this "
            "query replaces the other on purpose, set .option('commit.marker.missing', 'trust-checkpoint') for its first "
            "run. Nothing was written."
        )


class AttemptRefused(TransactionAbortable):
    """Another attempt at the task has written into the transaction, or may have."""


def attempt_refused(attempt: TaskAttempt) -> AttemptRefused:
    """The error for an attempt that is not the first one at its task, and so must not write.

    The transaction may hold rows of an earlier one, and brokers cannot tell the two apart. An attempt that fails with an
    error of its own reports it (`TaskFailure`), so Spark makes another one only if the first was lost or still runs.
    """
    return AttemptRefused(
        f"Spark ran a task of this batch again (attempt {attempt.number}), and in one transaction for all tasks no task may "
        "run twice. The attempt before it was lost - its executor or its Python worker died, or what computes its rows "
        "failed; Spark's log has it under 'Lost task' - or it still runs, because of speculation (set "
        "spark.speculation=false). Nothing of the batch becomes visible, and it can run again as a whole. "
        "aioproducer.spark.write_exactly_once() and foreach_batch() let Spark do that by itself."
    )


def shared_by_tasks(error: KafkaError) -> SharedPartition:
    """The error for a partition that two tasks wrote, with the way out in words of Spark."""
    return SharedPartition(
        f"{error} Give each of Kafka's partitions to one task: aioproducer.spark.partition_for_kafka(df, topic, "
        "bootstrap_servers) does so. If each has one, an executor was lost, and Spark ran its tasks again: run the batch "
        "again. Nothing of the transaction becomes visible."
    )
