"""Which attempt at which task runs, and what of: what a Spark task knows of itself."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TaskAttempt", "job_query"]

_JOB = "job "


def job_query(job_id: str | None) -> str:
    """What stands in the place of a query's id where a batch job writes, with its option ``job.id``."""
    return _JOB + (job_id or "")


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """``id`` is the only number that no other attempt of the application has; ``number`` is 0 again in a stage that Spark
    has submitted again.

    ``query`` and ``batch`` say whose rows these are: a stream's query and micro-batch, or a job and 0.
    """

    id: int = 0
    number: int = 0
    query: str = ""
    batch: int = 0

    @property
    def is_of_job(self) -> bool:
        """Whether it is a batch job, not a stream."""
        return self.query.startswith(_JOB)
