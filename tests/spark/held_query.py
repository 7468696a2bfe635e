"""A program that runs a streaming query whose tasks stop in the middle of a batch until the test lets them go on.

``python -m tests.spark.held_query MASTER BOOTSTRAP TOPIC DIRECTORY [SETTING=VALUE ...]`` exits with 0 when all files were
written. If the query fails it prints why on standard error, and kills itself. Files report what the tasks do: `TaskFiles`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage

from aioproducer.spark import AioProducerSource
from aioproducer.spark.sink.writers import StreamWriter
from tests.spark.local_spark import start
from tests.spark.standalone import HOST
from tests.spark.streams import PARTITIONS, run_program, values_of, write_to_the_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["HELD_BATCH", "Attempt", "HeldSource", "TaskFiles"]

#: The batch in which tasks stop.
HELD_BATCH: Final = 1

_POLL_INTERVAL: Final = 0.02


class Attempt(NamedTuple):
    """An attempt at a task of the held batch."""

    partition: int
    number: int
    id: int
    host: str


class TaskFiles:
    """Files in a directory by which the tasks of the held batch and the test communicate."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def hold(self, *partitions: int) -> None:
        """Tasks of these partitions are to stop when they have read some of their rows."""
        for partition in partitions:
            (self._directory / f"hold-{partition}").touch()

    def release(self) -> None:
        """They go on."""
        for file in self._directory.glob("hold-*"):
            file.unlink()

    def is_held(self, partition: int) -> bool:
        """Whether tasks of this partition are to stop."""
        return (self._directory / f"hold-{partition}").exists()

    def attempts(self) -> list[Attempt]:
        """Every attempt at a task that writes, in the order of their ids."""
        found = [file.name.split("_")[1:] for file in self._directory.glob("attempt_*")]
        return sorted((Attempt(int(p), int(n), int(i), host) for p, n, i, host in found), key=lambda each: each.id)

    def mapped_on(self) -> str:
        """The host of the task that shuffled the rows."""
        [host] = {file.name.partition("_")[2] for file in self._directory.glob("mapped_*")}
        return host

    def report_attempt(self, attempt: Attempt) -> None:
        """Called in a task that writes."""
        (self._directory / "_".join(["attempt", *map(str, attempt)])).touch()

    def report_mapped(self, host: str) -> None:
        """Called in the task that shuffles the rows."""
        (self._directory / f"mapped_{host}").touch()


class HeldWriter(StreamWriter):  # type: ignore[misc]
    """A writer that stops in the middle."""

    directory: Path

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        task = TaskContext.get()
        assert task is not None
        if task.getLocalProperty("streaming.sql.batchId") == str(HELD_BATCH):
            reported, partition = TaskFiles(self.directory), task.partitionId()
            reported.report_attempt(
                Attempt(partition, task.attemptNumber(), task.taskAttemptId(), os.environ.get(HOST, ""))
            )
            iterator = _held(iterator, reported, partition)
        message: WriterCommitMessage = super().write(iterator)
        return message


class HeldSource(AioProducerSource):
    """The data source, with that writer."""

    stream_writer = HeldWriter

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        writer: Any = super().streamWriter(schema, overwrite)
        writer.directory = Path(self.options["checkpointlocation"]).parent
        made: DataSourceStreamWriter = writer
        return made


def _held(batches: Iterable[Any], reported: TaskFiles, partition: int) -> Iterator[Any]:
    for number, batch in enumerate(batches):
        while number == 1 and reported.is_held(partition):
            time.sleep(_POLL_INTERVAL)
        yield batch


def shuffled(session: SparkSession, directory: Path) -> DataFrame:
    """The numbers of the files; one task shuffles them to the two that write, and reports where it ran."""

    def tell(batches: Iterable[Any]) -> Iterator[Any]:
        task = TaskContext.get()
        if task is not None and task.getLocalProperty("streaming.sql.batchId") == str(HELD_BATCH):
            TaskFiles(directory).report_mapped(os.environ.get(HOST, ""))
        yield from batches

    rows = values_of(session, directory / "files").selectExpr(
        "value", f"cast(int(value) % {PARTITIONS} AS int) AS partition"
    )
    return rows.mapInArrow(tell, "value string, partition int").repartition(2, "partition")


def main(master: str, bootstrap: str, topic: str, directory: str, *settings: str) -> None:
    """Run the query."""
    from tests.spark import held_query  # the module as workers import it

    os.environ["PYSPARK_PYTHON"] = sys.executable
    quick = {
        "spark.executor.memory": "512m",
        "spark.locality.wait": "0",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "3",
    }
    session = start(master, **quick, **dict(each.split("=", 1) for each in settings))
    session.dataSource.register(held_query.HeldSource)
    write_to_the_end(held_query.shuffled(session, Path(directory)), bootstrap, topic, Path(directory), topic)


if __name__ == "__main__":
    run_program(main)
