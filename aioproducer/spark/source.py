"""The data source ``aioproducer``, as PySpark sees it; what it does is told in classes that know nothing of Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)

from aioproducer.errors import ConfigError
from aioproducer.spark.sink_columns import SinkColumns
from aioproducer.spark.sink_options import SinkOptions
from aioproducer.spark.task_run import TaskRun
from aioproducer.spark.task_summary import TaskSummary
from aioproducer.spark.topic_split import load_pyarrow

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["AioProducerSource"]


class AioProducerSource(DataSource):
    """Writes DataFrames and streams to Kafka: ``spark.dataSource.register(AioProducerSource)``, then
    ``df.write.format("aioproducer").mode("append")`` or ``df.writeStream.format("aioproducer")``.

    Columns and options are those of Spark's own sink for Kafka; README.md beside this file tells the rest.
    """

    @classmethod
    def name(cls) -> str:
        """The name that ``format()`` takes."""
        return "aioproducer"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer of a batch job; raises `ConfigError` for options and columns that do not fit."""
        return _BatchWriter(*_checked(self.options, schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """The writer of one micro-batch; Spark asks for another one when it commits."""
        writer: DataSourceStreamWriter = _StreamWriter(*_checked(self.options, schema, overwrite))
        return writer


class _CommitMessage(WriterCommitMessage):
    """What a task hands the driver."""

    def __init__(self, summary: TaskSummary) -> None:
        self.summary = summary


class _Writer:
    """What writers of jobs and of streams have in common; pickled on the driver, and used in the tasks."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Send the rows of one task."""
        return _CommitMessage(TaskRun(self._options, self._columns).run(iterator))


class _BatchWriter(_Writer, DataSourceArrowWriter):
    """The writer of a batch job."""


#: PySpark 4.0 knows Arrow writers only for batch jobs, and asks for nothing but that class when it hands over the rows.
_STREAM_WRITERS: tuple[type, ...] = (
    (datasource.DataSourceStreamArrowWriter,)
    if hasattr(datasource, "DataSourceStreamArrowWriter")
    else (DataSourceStreamWriter, DataSourceArrowWriter)
)


class _StreamMethods(_Writer):
    """The writer of a micro-batch."""

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Every task has succeeded."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """A task, or the commit, has failed."""


_StreamWriter: Any = type("_StreamWriter", (_StreamMethods, *_STREAM_WRITERS), {"__doc__": _StreamMethods.__doc__})


def _checked(options: Any, schema: StructType, overwrite: bool) -> tuple[SinkOptions, SinkColumns]:
    load_pyarrow()
    if overwrite:
        raise ConfigError(
            "Kafka's topics cannot be overwritten: use .mode('append'), and in streams no output mode 'complete'."
        )
    checked = SinkOptions.from_spark(dict(options))
    return checked, SinkColumns.of([(field.name, field.dataType.simpleString()) for field in schema.fields], checked)
