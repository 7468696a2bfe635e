"""Reports the progress of running Spark jobs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

from aioproducer.spark.session.errors import spark_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Progress", "reporting"]

#: ``progress(done, of, note)``: the number of finished tasks, and of all.
Progress: TypeAlias = Callable[[int, int, str], object]

_POLL: Final = 0.25


@contextmanager
def reporting(spark: SparkSession, progress: Progress) -> Generator[None, None, None]:
    """Report the number of finished tasks to ``progress`` while the block runs, from a separate thread."""
    done = threading.Event()
    tracker = spark.sparkContext.statusTracker()
    began = time.monotonic()
    seen: dict[int, tuple[int, int]] = {}

    def look() -> None:
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is not None:
                seen[stage] = (info.numCompletedTasks, info.numTasks)

    def report() -> None:
        while not done.wait(_POLL):
            try:
                look()
            except spark_errors():  # the JVM has ended; the job reports it
                return
            if seen:
                finished = sum(each[0] for each in seen.values())
                progress(finished, sum(each[1] for each in seen.values()), f"{time.monotonic() - began:.0f} s")

    thread = threading.Thread(target=report, name="aioproducer progress", daemon=True)
    thread.start()
    try:
        yield
        progress(1, 1, f"{time.monotonic() - began:.0f} s")
    finally:
        done.set()
        thread.join()
