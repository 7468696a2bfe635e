"""A program that writes jobs with `write_exactly_once`, one after the other, all with one transactional id.

``python -m tests.spark.barrier_jobs MASTER BOOTSTRAP TOPIC JOBS`` prints the number of rows after
each job, as a line. The first job writes the numbers below `ROWS`, and so on.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from aioproducer.spark import write_exactly_once
from tests.spark.local_spark import start
from tests.spark.streams import run_program

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ROWS", "write_job"]

#: How many rows each job writes: enough for a test to find its tasks at work.
ROWS: Final = 100_000


def write_job(spark: SparkSession, bootstrap_servers: str, topic: str, job: int) -> int:
    """Write the numbers of that job; returns how many they are."""
    df = spark.range(job * ROWS, (job + 1) * ROWS).selectExpr("string(id) AS key", "string(id) AS value")
    servers = {"kafka.bootstrap.servers": bootstrap_servers}
    return write_exactly_once(df, {**servers, "topic": topic, "transactional.id": topic, "job.id": f"{job}"}).rows


def main(master: str, bootstrap_servers: str, topic: str, jobs: str) -> None:
    """Write the jobs."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    quick = {"spark.executor.memory": "512m", "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s"}
    session = start(master, **quick)
    for job in range(int(jobs)):
        sys.stdout.write(f"{write_job(session, bootstrap_servers, topic, job)}\n")
        sys.stdout.flush()
    session.stop()


if __name__ == "__main__":
    run_program(main)
