"""The one transaction that all tasks of a micro-batch, or of a batch job, write into, as the driver ships it to them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from aioproducer.core.transaction_handle import TransactionHandle
from aioproducer.errors import KafkaError, SharedPartition, TransactionAbortable
from aioproducer.spark.commit_marker import CommitMarker, CommitMarkerMissing, CommitMarkerSetBack, marker_group
from aioproducer.spark.sink_options import MissingMarker
from aioproducer.spark.task_attempt import TaskAttempt

__all__ = ["JobTransaction", "is_of_refused_attempt", "shared_by_tasks"]

logger = logging.getLogger("aioproducer.spark")

_REFUSED: Final = "is not possible inside a transaction that all tasks share"


@dataclass(frozen=True, slots=True)
class JobTransaction:
    """The transaction, and the marker of the last batch that was committed before it began (None: there is none)."""

    handle: TransactionHandle
    marker: CommitMarker | None
    missing_marker: MissingMarker = MissingMarker.FAIL

    def is_done(self, attempt: TaskAttempt) -> bool:
        """Whether the batch was committed already, so that nothing is to be written.

        Raises `CommitMarkerMissing` where nobody can tell, and `CommitMarkerSetBack` where the marker was set back and the
        query's checkpoint was not, or not to the same batch.
        """
        marker = self.marker
        if marker is not None and marker.query == attempt.query:
            if marker.leaves_out(attempt.batch):
                raise self._set_back(attempt, marker)
            return attempt.batch <= marker.batch
        if attempt.batch > 0 and self.missing_marker is MissingMarker.FAIL:
            raise self._missing(attempt)
        if marker is not None:
            logger.log(  # one job comes after the other; a stream's query changes where its checkpoint was deleted
                logging.INFO if attempt.is_of_job else logging.WARNING,
                "The marker of transactional_id %r tells of %s; query %s begins at batch %d and sends all of it.",
                self.handle.transactional_id, marker, attempt.query, attempt.batch,
            )  # fmt: skip
        return False

    def set_back_from(self, attempt: TaskAttempt) -> int | None:
        """What the marker that this batch commits has to say of one that was set back; see `CommitMarker`."""
        marker = self.marker
        if marker is None or marker.query != attempt.query or marker.set_back_from is None:
            return None
        return marker.set_back_from if attempt.batch < marker.set_back_from else None

    def check_attempt(self, attempt: TaskAttempt) -> None:
        """Raises `TransactionAbortable` for an attempt that is not the first one at its task.

        The transaction may hold rows of an earlier one, and the brokers cannot tell these two apart.
        """
        if attempt.number > 0:
            raise TransactionAbortable(
                f"Attempt {attempt.number} at a task {_REFUSED}: an earlier one has failed, or runs at the same time. The "
                "batch is aborted and runs again as a whole; the first attempt's error says why. (Set "
                "spark.speculation=false; aioproducer.spark.write_exactly_once() lets Spark retry by itself.)"
            )

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
        group = marker_group(self.handle.transactional_id)
        there = (
            "is gone (deleted, or expired by the brokers' offsets.retention.minutes)"
            if self.marker is None
            else f"is of another query: {self.marker}"
        )
        return CommitMarkerMissing(
            f"Query {attempt.query} goes on at batch {attempt.batch}, but its commit marker, the offset of consumer group "
            f"{group!r}, {there}. So nobody can tell whether this batch was committed before the query stopped. Look at the "
            "topic; then set .option('commit.marker.missing', 'trust-checkpoint') for one run, which sends the batch."
        )


def is_of_refused_attempt(error: str) -> bool:
    """Whether this is what `JobTransaction.check_attempt` has said, so that an earlier attempt's error says why."""
    return _REFUSED in error


def shared_by_tasks(error: KafkaError) -> SharedPartition:
    """The error for a partition that two tasks wrote, with the way out in words of Spark."""
    return SharedPartition(
        f"{error} Give each of Kafka's partitions to one task: aioproducer.spark.partition_for_kafka(df, topic, "
        "bootstrap_servers) does so. Nothing of the transaction becomes visible."
    )
