"""An earlier commit of a batch that Spark repeats: what is known of it, and whether it is the same batch."""

from __future__ import annotations

from typing import NamedTuple

from aioproducer.spark.exactly_once.commit_marker import utc
from aioproducer.spark.exactly_once.fingerprint import Fingerprint

__all__ = ["EarlierCommit"]


class EarlierCommit(NamedTuple):
    """An earlier commit of the batch with number ``batch``; ``contents`` is None if no longer known.

    ``at_ms`` is the time of the commit, None if unknown. ``last_batch`` is the query's last committed batch. ``job_id`` is
    set for a job in the commit log, which has no batches.
    """

    batch: int
    contents: Fingerprint | None
    at_ms: int | None = None
    last_batch: int = 0
    job_id: str | None = None

    def is_of(self, found: Fingerprint) -> bool:
        """Whether that commit had these rows."""
        return self.contents == found

    def left_out(self, query: str, found: Fingerprint, *, is_same: bool) -> str:
        """The message for rows that are skipped."""
        what = f"job.id {self.job_id!r}" if self.job_id is not None else f"Batch {self.batch} of query {query}"
        if is_same:
            return f"{what} was committed before{self._when}, with the same contents ({found}): nothing is written."
        return (
            f"{what} was committed before{self._when} ({self._known}). Its contents differ now ({found}); nothing is "
            "written, because of commit.marker.mismatch=skip."
        )

    def mismatch(self, query: str, found: Fingerprint) -> str:
        """The error message for rows that differ from the committed ones."""
        if self.job_id is not None:
            return (
                f"job.id {self.job_id!r} was committed before{self._when} with {self._known}; now the job has {found}. Each "
                "job.id is written once. Nothing was written. If these are other rows, choose another job.id. If they "
                "replace the earlier ones, remove that commit with `aioproducer spark forget-job`; the earlier rows stay in "
                "the topic. To skip the job, set .option('commit.marker.mismatch', 'skip')."
            )
        return (
            f"Batch {self.batch} of query {query} was committed before{self._when} with {self._known}; now it has {found}. "
            f"{self._reason(found)} Skipping it would lose rows, so the query has stopped. Nothing was written. "
            f"{self._ways_on}"
        )

    def unknown(self, query: str) -> str:
        """The error message for a batch whose committed contents are no longer known."""
        return (
            f"Batch {self.batch} of query {query} was committed before, but its contents are no longer known: the commit "
            f"marker, which is at batch {self.last_batch}, only keeps those of the last batches. {self._reason(None)} "
            "Skipping it could lose rows, so the query has stopped. Nothing was written. "
            f"{self._ways_on}"
        )

    @property
    def _when(self) -> str:
        return "" if self.at_ms is None else f" at {utc(self.at_ms)}"

    @property
    def _known(self) -> str:
        return "unknown contents" if self.contents is None else str(self.contents)

    def _reason(self, found: Fingerprint | None) -> str:
        if self.batch < self.last_batch:
            return (
                f"The checkpoint was rolled back: the query has committed batch {self.last_batch}, and a restart alone "
                "does not repeat batches before that one."
            )
        same_shape = (
            found is not None
            and self.contents is not None
            and (self.contents.rows, self.contents.size) == (found.rows, found.size)
        )
        causes = [
            "the checkpoint was rolled back",
            "the source cannot be replayed exactly (its files or records changed, or it is gone)",
            "the query is not deterministic (rand(), uuid(), a UDF that uses the current time)",
        ]
        if same_shape:  # same number of rows and bytes: most likely the values were computed again
            causes.reverse()
        return f"Either {causes[0]}, or {causes[1]}, or {causes[2]}."

    @property
    def _ways_on(self) -> str:
        back = f" --batch {self.batch - 1}" if self.batch > 0 else ""
        return (
            "What to do: restore the newest checkpoint; or write this batch and those after it, which duplicates rows "
            f"that were committed before: aioproducer spark reset-marker{back}; or, if the committed rows are correct, "
            "skip the batch: .option('commit.marker.mismatch', 'skip') for one run."
        )
