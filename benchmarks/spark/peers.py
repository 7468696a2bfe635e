"""Sinks that PySpark users write without ours, and one that does nothing: it shows the cost of Spark's own part."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceWriter, WriterCommitMessage

from benchmarks.clients.confluent import Outcomes, options, produce, produce_with
from benchmarks.job import Job
from benchmarks.spark.rows import CASES
from benchmarks.unavailable import optional

__all__ = ["ConfluentSource", "CountingSource", "produce_rows", "source_options"]


class _CountingWriter(DataSourceArrowWriter):
    """Takes the Arrow batches, and looks at nothing but their length."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Count the rows of one task."""
        sum(batch.num_rows for batch in iterator)
        return WriterCommitMessage()


def _counting_stream_writer() -> Any:
    """The same for micro-batches, of which PySpark 4.0 hands over no Arrow batches."""

    class Writer(datasource.DataSourceStreamArrowWriter):
        def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
            return _CountingWriter().write(iterator)

    return Writer()


class CountingSource(DataSource):
    """``format("benchmark-count")``: Spark's way to Python and back, and nothing behind it."""

    @classmethod
    def name(cls) -> str:
        """The name that ``format()`` takes."""
        return "benchmark-count"

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        """The writer of a job."""
        return _CountingWriter()

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
        """The writer of a query's micro-batches."""
        return _counting_stream_writer()


class _ConfluentWriter(DataSourceArrowWriter):
    """produce() with a delivery callback for each row of the Arrow batches, and flush() at the end."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Send the rows of one task."""
        with _producer(self._job) as (producer, outcomes):
            for batch in iterator:
                values = batch.column("value").to_pylist()
                if self._job.case.keyed:
                    keys = ({"key": key} for key in batch.column("key").to_pylist())
                    produce_with(producer, self._job.topic, values, outcomes, keys)
                else:
                    produce(producer, self._job.topic, values, outcomes)
        return WriterCommitMessage()


class ConfluentSource(DataSource):
    """``format("benchmark-confluent")``: the quickest sink that can be written in Python with confluent-kafka."""

    @classmethod
    def name(cls) -> str:
        """The name that ``format()`` takes."""
        return "benchmark-confluent"

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        """The writer of a job."""
        found = self.options
        return _ConfluentWriter(Job(CASES[found["case"]], found["servers"], found["topic"], 0))


def source_options(job: Job) -> Mapping[str, str]:
    """The options of `ConfluentSource`."""
    return {"case": job.case.name, "servers": job.servers, "topic": job.topic}


def produce_rows(job: Job) -> Callable[[Iterable[Any]], None]:
    """For ``df.foreachPartition``: what most PySpark programs that write to Kafka without a jar do."""

    def write(rows: Iterable[Any]) -> None:
        with _producer(job) as (producer, outcomes):
            produce(producer, job.topic, (row.value for row in rows), outcomes)

    return write


@contextmanager
def _producer(job: Job) -> Generator[tuple[Any, Outcomes]]:
    """A producer that has nothing left to deliver when the block is left."""
    producer = optional("confluent_kafka").Producer(options(job))
    yield producer, Outcomes()
    left = producer.flush()
    if left:
        raise RuntimeError(f"{left} records were not delivered.")
