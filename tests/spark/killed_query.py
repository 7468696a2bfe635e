"""A program that runs a streaming query to its end, unless it kills its own driver at a named point on the way.

``python killed_query.py BOOTSTRAP TOPIC DIRECTORY [POINT BATCH]``: exits with 0 when all files were written.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from aioproducer.coordinator_client import TransactionCoordinatorClient
from aioproducer.core.transaction_handle import TransactionHandle
from aioproducer.spark import AioProducerSource
from aioproducer.spark.commit_marker import CommitMarker
from aioproducer.spark.job_coordinator import JobCoordinator
from aioproducer.spark.job_transaction import JobTransaction
from aioproducer.spark.task_summary import TaskSummary
from aioproducer.spark.writers import StreamWriter

#: What the driver can be killed at.
POINTS = ("planning", "mid-write", "before the marker", "before EndTxn", "after EndTxn", "in abort")

#: How the workers, which are processes of their own, learn when: the point, the batch, and a file with the JVM's pid.
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


def main(bootstrap: str, topic: str, directory: Path, point: str = "", batch: str = "") -> None:
    """Run the query."""
    from tests.spark import (
        killed_query,
    )  # the module as workers import it: what __main__ holds cannot be pickled by name
    from tests.spark.local_spark import start
    from tests.spark.streams import EXACTLY_ONCE, numbers

    pid_file = directory / "jvm.pid"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ[_KILL] = f"{point}:{batch}:{pid_file}"
    session = start()
    pid_file.write_text(str(session.sparkContext._gateway.proc.pid))  # type: ignore[union-attr]
    session.dataSource.register(killed_query.KilledSource)
    query = (
        numbers(session, directory / "files")
        .writeStream.format("aioproducer")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.max.block.ms", "240000")  # the busiest machine has the time that it needs
        .option("topic", topic)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .options(**EXACTLY_ONCE)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    session.stop()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent.parent))
    try:
        main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), *sys.argv[4:])
    except BaseException as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        sys.stderr.flush()
        with suppress(OSError, IndexError):  # it is gone already, if all went as planned
            os.kill(int((Path(sys.argv[3]) / "jvm.pid").read_text()), signal.SIGKILL)
        os._exit(3)  # an ordinary exit would wait for the JVM
