"""Progress reports of running jobs, with a tracker that answers as Spark's does; Spark itself is not needed."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from aioproducer.spark.session.progress import reporting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")


class Tracker:
    """Of two stages, as many tasks done as given."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self.done = 1
        self.error: Exception | None = None

    def getActiveStageIds(self) -> list[int]:  # noqa: N802 - Spark's name
        self.asked.release()
        if self.error is not None:
            raise self.error
        return [3, 4]

    def getStageInfo(self, stage: int) -> SimpleNamespace | None:  # noqa: N802 - Spark's name
        return SimpleNamespace(numCompletedTasks=self.done, numTasks=4) if stage == 3 else None


def session(tracker: Tracker) -> SparkSession:
    return cast("SparkSession", SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker)))


def threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == "aioproducer progress"]


def test_tasks_are_counted_while_they_run_and_all_of_it_is_reported_in_the_end() -> None:
    tracker, seen, noticed = Tracker(), [], threading.Semaphore(0)

    def progress(done: int, of: int, note: str) -> None:
        seen.append((done, of))
        noticed.release()

    with reporting(session(tracker), progress):
        assert noticed.acquire(timeout=30)

    assert seen[0] == (1, 4)
    assert seen[-1] == (1, 1)
    assert threads() == []


def test_where_spark_has_died_it_ends_quietly_and_what_the_job_raised_is_what_comes_out(
    capfd: pytest.CaptureFixture[str],
) -> None:
    tracker, seen = Tracker(), []
    tracker.error = ConnectionRefusedError(111, "Connection refused")

    def load() -> None:
        with reporting(session(tracker), lambda *what: seen.append(what)):
            assert tracker.asked.acquire(timeout=30)
            raise KeyError("of the job")

    with pytest.raises(KeyError):
        load()

    assert seen == []
    assert threads() == []
    assert capfd.readouterr() == ("", "")
