"""A program that runs a streaming query to its end, unless it kills its own driver at a named point on the way.

``python -m tests.spark.killed_query BOOTSTRAP TOPIC DIRECTORY [POINT BATCH]`` exits with 0 when all files were written.
If its JVM is gone, or the query fails, it prints why on standard error, and kills itself.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from aioproducer.core.transactions.handle import TransactionHandle
from aioproducer.spark import AioProducerSource
from aioproducer.spark.exactly_once.commit_marker import CommitMarker
from aioproducer.spark.exactly_once.job_coordinator import JobCoordinator
from aioproducer.spark.exactly_once.job_transaction import JobTransaction
from aioproducer.spark.exactly_once.task_summary import TaskSummary
from aioproducer.spark.sink.writers import StreamWriter
from aioproducer.transactions.client import TransactionCoordinatorClient
from tests.spark.local_spark import start
from tests.spark.streams import EXACTLY_ONCE, numbers, run_program, write_to_the_end

#: What the driver can be killed at.
POINTS = ("planning", "mid-write", "before the marker", "before EndTxn", "after EndTxn", "in abort")

#: How the workers, which are separate processes, learn when: the point, the batch, and a file with the JVM's pid.
_KILL = "AIOPRODUCER_TEST_KILL"


def kill_at(point: str, batch: int) -> None:
    """End the JVM, and with it everything, if this is the moment."""
    wanted, number, pid_file = os.environ.get(_KILL, "::").split(":", 2)
    if (point, str(batch)) == (wanted, number):
        kill_driver(pid_file)


def kill_driver(pid_file: str) -> NoReturn:
    """SIGKILL for the JVM; this process goes with it."""
    os.kill(int(Path(pid_file).read_text()), signal.SIGKILL)
    Path(pid_file).unlink()
    os._exit(9)


class KilledCoordinator(JobCoordinator):
    """A coordinator that dies on the way."""

    async def begin(self) -> JobTransaction:
        transaction = await super().begin()
        kill_at("planning", 0 if transaction.marker is None else transaction.marker.batch + 1)
        return transaction

    async def commit(self, summaries: Sequence[TaskSummary | None], query: str, batch: int) -> None:
        kill_at("before the marker", batch)
        if os.environ.get(_KILL, "").startswith(f"in abort:{batch}:"):
            raise RuntimeError("so that Spark calls abort()")
        await super().commit(summaries, query, batch)
        kill_at("after EndTxn", batch)

    async def abort(self, handles: Sequence[TransactionHandle]) -> None:
        wanted = os.environ.get(_KILL, "::").split(":")
        if wanted[0] == "in abort":
            kill_at("in abort", int(wanted[1]))
        await super().abort(handles)

    async def _mark(
        self, client: TransactionCoordinatorClient, handle: TransactionHandle, marker: CommitMarker
    ) -> None:
        await super()._mark(client, handle, marker)
        kill_at("before EndTxn", marker.batch)


class KilledWriter(StreamWriter):  # type: ignore[misc]
    """A writer whose first task dies when it has written, while others may still write."""

    coordinators = KilledCoordinator

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        task = TaskContext.get()
        assert task is not None
        message: WriterCommitMessage = super().write(iterator)
        if task.partitionId() == 0:
            kill_at("mid-write", int(str(task.getLocalProperty("streaming.sql.batchId"))))
        return message


class KilledSource(AioProducerSource):
    """The data source, with those."""

    stream_writer = KilledWriter


def main(bootstrap: str, topic: str, directory: str, point: str = "", batch: str = "") -> None:
    """Run the query."""
    from tests.spark import killed_query  # the module as workers import it; objects of __main__ cannot be found by name

    work = Path(directory)
    pid_file = work / "jvm.pid"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ[_KILL] = f"{point}:{batch}:{pid_file}"
    session = start()
    pid_file.write_text(str(session.sparkContext._gateway.proc.pid))  # type: ignore[union-attr]
    session.dataSource.register(killed_query.KilledSource)
    write_to_the_end(numbers(session, work / "files"), bootstrap, topic, work, EXACTLY_ONCE["transactional.id"])


if __name__ == "__main__":
    run_program(main)
