"""A commit of the batch that Spark runs again: what is known of it, and whether it is the same batch."""

from __future__ import annotations

from typing import NamedTuple

from aioproducer.spark.exactly_once.commit_marker import utc
from aioproducer.spark.exactly_once.fingerprint import Fingerprint

__all__ = ["EarlierCommit"]


class EarlierCommit(NamedTuple):
    """The batch with this number was committed; ``contents`` is None if nobody knows any more what it held.

    ``at_ms`` is when, None if that is not known. ``last_batch`` is the last one that the query has committed. ``job_id``
    is that of a job in the commit log, which has neither.
    """

    batch: int
    contents: Fingerprint | None
    at_ms: int | None = None
    last_batch: int = 0
    job_id: str | None = None

    def is_of(self, found: Fingerprint) -> bool:
        """Whether that commit was of these rows."""
        return self.contents == found

    def left_out(self, query: str, found: Fingerprint, *, is_same: bool) -> str:
        """What to say of rows that are not written."""
        what = f"job.id {self.job_id!r}" if self.job_id is not None else f"Batch {self.batch} of query {query}"
        if is_same:
            return f"{what} was committed before{self._when}, with the same contents ({found}): nothing is written."
        return (
            f"{what} was committed before{self._when} ({self._known}). Its contents differ now ({found}); nothing of them "
            "is written, as commit.marker.mismatch=skip says."
        )

    def mismatch(self, query: str, found: Fingerprint) -> str:
        """Why the batch was refused: these rows are not those that were committed."""
        if self.job_id is not None:
            return (
                f"job.id {self.job_id!r} was committed before{self._when} with {self._known}; now the job has {found}. Each "
                "job.id is written once. Nothing was written. If these are other rows, choose another job.id. If they "
                "replace the earlier ones, remove that commit with `aioproducer spark forget-job`: the earlier rows stay in "
                "the topic. To leave the job out, set .option('commit.marker.mismatch', 'skip')."
            )
        return (
            f"Batch {self.batch} of query {query} was committed before{self._when} with {self._known}; now it has {found}. "
            f"{self._reason(found)} Skipping it would lose rows, so the query has stopped. Nothing was written. "
            f"{self._ways_on}"
        )

    def unknown(self, query: str) -> str:
        """Why the batch was refused: nobody can tell whether its rows are those that were committed."""
        return (
            f"Batch {self.batch} of query {query} was committed before, and its contents are no longer known: the commit "
            f"marker, which is at batch {self.last_batch}, keeps those of the last batches only. {self._reason(None)} "
            "Skipping it could lose rows, so the query has stopped. Nothing was written. "
            f"{self._ways_on}"
        )

    @property
    def _when(self) -> str:
        return "" if self.at_ms is None else f" at {utc(self.at_ms)}"

    @property
    def _known(self) -> str:
        return "contents that are not known" if self.contents is None else str(self.contents)

    def _reason(self, found: Fingerprint | None) -> str:
        if self.batch < self.last_batch:
            return (
                f"The checkpoint was rolled back: the query has committed batch {self.last_batch}, and a restart alone "
                "repeats no batch before that one."
            )
        same_shape = (
            found is not None
            and self.contents is not None
            and (self.contents.rows, self.contents.size) == (found.rows, found.size)
        )
        causes = [
            "the checkpoint was rolled back",
            "the source cannot be replayed exactly (its files or records changed, or it was stopped and is gone)",
            "the query itself gives other values each time (rand(), uuid(), a UDF that asks for the time)",
        ]
        if same_shape:  # rows of the same number and length: it is far more likely that they were computed anew
            causes.reverse()
        return f"Either {causes[0]}, or {causes[1]}, or {causes[2]}."

    @property
    def _ways_on(self) -> str:
        back = f" --batch {self.batch - 1}" if self.batch > 0 else ""
        return (
            "Ways on: restore the newest checkpoint; or write this batch and those after it, which makes duplicates of rows "
            f"that were committed before: aioproducer spark reset-marker{back}; or, if the committed rows are the right "
            "ones, skip it: .option('commit.marker.mismatch', 'skip') for one run."
        )
