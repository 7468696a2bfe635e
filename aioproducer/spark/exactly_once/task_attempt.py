"""The identity of a running Spark task: its task, attempt and batch."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TaskAttempt", "job_query"]

_JOB = "job "


def job_query(job_id: str | None) -> str:
    """The id that a batch job uses instead of a query's id; ``job_id`` is its option ``job.id``."""
    return _JOB + (job_id or "")


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """One attempt at a task.

    ``id`` is the only number that is unique within the application; ``number`` restarts at 0 when Spark resubmits a stage.
    ``query`` and ``batch`` identify the rows: a stream's query and micro-batch, or a job and 0.
    """

    id: int = 0
    number: int = 0
    query: str = ""
    batch: int = 0

    @property
    def is_of_job(self) -> bool:
        """Whether it is a batch job, not a stream."""
        return self.query.startswith(_JOB)
