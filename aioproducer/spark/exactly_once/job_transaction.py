"""The transaction that all tasks of a micro-batch or batch job write into, as the driver ships it to them."""

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
    """The transaction, and the earlier commits recorded in Kafka.

    ``marker`` belongs to the last batch that was committed with this transactional id, ``job`` to the same ``job.id`` in
    the commit log; each is None if there is none. ``began_at`` is when the transaction began, in seconds since 1970 by the
    driver's clock.
    """

    handle: TransactionHandle
    marker: CommitMarker | None = None
    missing_marker: MissingMarker = MissingMarker.FAIL
    mismatch: MarkerMismatch = MarkerMismatch.FAIL
    job: EarlierCommit | None = None
    began_at: float = 0.0

    def earlier(self, attempt: TaskAttempt) -> EarlierCommit | None:
        """The commit of the batch with this number; None if this batch must be written.

        Raises `CommitMarkerMissing` if it is unknown, `CommitMarkerMismatch` if the contents of the earlier batch are
        unknown, and `CommitMarkerSetBack` if the marker was reset but the query's checkpoint was not rolled back to the
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
        """Why brokers no longer accept rows of this transaction; ``now`` in seconds since 1970."""
        if now - self.began_at >= timeout_ms / 1000:
            return (
                f"The batch took longer than transaction.timeout.ms={timeout_ms}, so Kafka aborted its transaction. Raise "
                "that option, up to the brokers' transaction.max.timeout.ms, or make batches smaller."
            )
        return (
            f"Another process ended the transaction: another query or job started with the same transactional.id "
            f"{self._id!r} (give each its own, and run each only once at a time), its marker was reset with `aioproducer "
            "spark reset-marker`, or another attempt of one of its tasks failed, for example after an executor was lost "
            "(see Spark's log)."
        )

    def _check_begins(self, attempt: TaskAttempt) -> None:
        """Check that a query may write whose commits the marker does not know."""
        marker = self.marker
        is_trusted = self.missing_marker is MissingMarker.TRUST_CHECKPOINT
        if attempt.batch > 0 and not is_trusted:
            raise self._missing(attempt)
        if marker is None:
            return
        if attempt.is_of_job:  # jobs run one after the other
            logger.info("The marker of transactional_id %r is %s; %s begins.", self._id, marker, attempt.query)
            return
        if not is_trusted and marker.batch >= 0:  # else it was reset so that nothing counts as written
            raise self._of_another_query(attempt, marker)
        logger.warning(
            "The commit marker of transactional_id %r belongs to another query: %s. Query %s writes batch %d.",
            self._id, marker, attempt.query, attempt.batch,
        )  # fmt: skip

    @property
    def _id(self) -> str:
        return self.handle.transactional_id

    def _set_back(self, attempt: TaskAttempt, marker: CommitMarker) -> CommitMarkerSetBack:
        first, here = marker.batch + 1, attempt.batch - 1
        left_out = f"batch {first}" if first == here else f"batches {first} to {here}"
        way_out = (
            f" To continue from here anyway, set the marker with aioproducer spark reset-marker --batch {here}."
            if marker.may_be_set_to(here)
            else ""
        )
        return CommitMarkerSetBack(
            f"Query {attempt.query} continues at batch {attempt.batch}, but its commit marker was reset from batch "
            f"{marker.set_back_from}, and the next batch to be written is {first}: {left_out} would be skipped. The query "
            "kept running during the reset, or its checkpoint was not rolled back to the marker's batch. Nothing of this "
            "batch was written. Stop the query, and roll its checkpoint back so that it continues at batch "
            f"{first}.{way_out}"
        )

    def _missing(self, attempt: TaskAttempt) -> CommitMarkerMissing:
        group = marker_group(self._id)
        if self.marker is not None:
            return CommitMarkerMissing(
                f"Query {attempt.query} continues at batch {attempt.batch}, but its commit marker, the offset of consumer "
                f"group {group!r}, belongs to another query: {self.marker}. Two queries must not share a transactional.id: "
                "give each its own. If the checkpoint was copied from another query, its batches were committed under that "
                "query's id. Nothing was written. To write this batch anyway, set "
                ".option('commit.marker.missing', 'trust-checkpoint') for one run."
            )
        return CommitMarkerMissing(
            f"Query {attempt.query} continues at batch {attempt.batch}, but its commit marker, the offset of consumer group "
            f"{group!r}, is gone (deleted, possibly with its topic, or expired by the brokers' offsets.retention.minutes). "
            "So it is unknown whether this batch was committed before the query stopped. Nothing was written. Check the "
            "topic; then set .option('commit.marker.missing', 'trust-checkpoint') for one run to write the batch."
        )

    def _of_another_query(self, attempt: TaskAttempt, marker: CommitMarker) -> CommitMarkerMissing:
        return CommitMarkerMissing(
            f"Query {attempt.query} begins at batch 0, but transactional.id {self._id!r} has committed another query's "
            f"batches: {marker}. If the checkpoint was deleted or moved, the rows that it covered would be written again: "
            "restore it. If both queries should run, give each its own transactional.id. If this query replaces the "
            "other on purpose, set .option('commit.marker.missing', 'trust-checkpoint') for its first run. Nothing was "
            "written."
        )


class AttemptRefused(TransactionAbortable):
    """Another attempt of the task has written into the transaction, or may have."""


def attempt_refused(attempt: TaskAttempt) -> AttemptRefused:
    """The error for an attempt that is not the first of its task and so must not write.

    The transaction may hold rows of an earlier attempt, and brokers cannot distinguish the two. An attempt that fails by
    itself reports the error (`TaskFailure`), so Spark starts another one only if the first was lost or is still running.
    """
    return AttemptRefused(
        f"Spark ran a task of this batch again (attempt {attempt.number}), but with one transaction for all tasks no task "
        "may run twice. The previous attempt was lost (its executor or Python worker died, or computing its rows failed; "
        "see 'Lost task' in Spark's log), or it is still running because of speculation (set spark.speculation=false). "
        "Nothing of the batch becomes visible; run the whole batch again. aioproducer.spark.write_exactly_once() and "
        "foreach_batch() let Spark do that automatically."
    )


def shared_by_tasks(error: KafkaError) -> SharedPartition:
    """The error for a partition that two tasks wrote, with advice for Spark."""
    return SharedPartition(
        f"{error} Assign each Kafka partition to one task with aioproducer.spark.partition_for_kafka(df, topic, "
        "bootstrap_servers). If that is already so, an executor was lost and Spark ran its tasks again: run the batch "
        "again. Nothing of the transaction becomes visible."
    )
