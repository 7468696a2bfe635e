"""Finds out why a task failed at first, where Spark tells of its last attempt only.

In a transaction that all tasks share each later attempt is refused, whatever it was that ended the first one. What each of
them has said Spark keeps for its web pages, whether these are served or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from aioproducer.spark.job_transaction import is_of_refused_attempt
from aioproducer.spark.load_errors import spark_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["first_failure"]

#: Spark's own limit to what it keeps is spark.ui.retainedTasks, 100,000; each costs a call to the JVM.
_MOST: Final = 10_000


class _TaskFailed(Exception):
    """What Spark has kept of a task's failure."""


def first_failure(spark: SparkSession, error: BaseException) -> BaseException:
    """That of the task's first attempt, where a later attempt was refused for it; else the error as it is."""
    if not is_of_refused_attempt(str(error)):
        return error
    try:
        text = _first_of(spark)
    except spark_errors():  # Spark promises nobody that the store remains as it is
        return error
    return error if text is None else _TaskFailed(text)


def _first_of(spark: SparkSession) -> str | None:
    """What ended a first attempt in the job that has failed last."""
    context: Any = spark.sparkContext
    scala = context._jsc.sc()
    scala.listenerBus().waitUntilEmpty()
    for stage, attempt in _failed_stages(spark):
        tasks = scala.statusStore().taskList(stage, attempt, _MOST)
        for task in map(tasks.apply, range(tasks.size())):
            if task.attempt() == 0 and task.errorMessage().isDefined():
                return str(task.errorMessage().get())
    return None


def _failed_stages(spark: SparkSession) -> Iterator[tuple[int, int]]:
    tracker: Any = spark.sparkContext.statusTracker()
    jobs = {number: tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(None)}
    failed = [number for number, job in jobs.items() if job is not None and job.status == "FAILED"]
    for number in jobs[max(failed)].stageIds if failed else ():
        stage = tracker.getStageInfo(number)
        if stage is not None and stage.numFailedTasks:
            yield stage.stageId, stage.currentAttemptId
