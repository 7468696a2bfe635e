"""The writers that Spark creates on the driver and calls in its tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from aioproducer.errors import KafkaError
from aioproducer.spark.exactly_once.job_coordinator import JobCoordinator
from aioproducer.spark.exactly_once.job_transaction import JobTransaction
from aioproducer.spark.exactly_once.task_attempt import TaskAttempt, job_query
from aioproducer.spark.exactly_once.task_summary import TaskSummary
from aioproducer.spark.options.sink import SinkOptions
from aioproducer.spark.sink.batch_report import BatchReport
from aioproducer.spark.sink.columns import SinkColumns
from aioproducer.spark.sink.task_run import TaskRun
from aioproducer.spark.sink.topic_rules_reader import TopicRulesReader

__all__ = ["BatchWriter", "StreamWriter"]


class _CommitMessage(WriterCommitMessage):
    """A task's message to the driver."""

    def __init__(self, summary: TaskSummary) -> None:
        self.summary = summary


class _Writer:
    """The common part of batch and stream writers; pickled on the driver, and used in the tasks."""

    coordinators: ClassVar[type[JobCoordinator]] = JobCoordinator
    is_stream: ClassVar[bool]

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns
        self._rules = TopicRulesReader(options)
        self._transaction: JobTransaction | None = None
        if options.is_exactly_once:
            self._coordinator()  # raises for invalid options

    def __getstate__(self) -> dict[str, Any]:
        # Only the writer that is shipped to tasks is pickled. For a stream Spark creates another one to commit; if that one
        # began a transaction, it would abort the one to be committed, and if it checked the report, it could fail a batch
        # that is written. (Spark pickles twice.)
        if self._options.report is not None:
            BatchReport(self._options.report).check()
        if self._columns.avro is not None and self._columns.avro.schema_id is None:
            self._columns = self._columns.registered(self._options)
        self._rules.learn()
        if self._options.is_exactly_once and self._transaction is None:
            self._transaction = asyncio.run(self._begin())
        return dict(self.__dict__)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Send the rows of one task."""
        task = TaskRun(self._options, self._columns, self._transaction, self._attempt(), self._rules)
        if self._transaction is None:
            return _CommitMessage(task.run(iterator))
        summary = task.report(iterator)
        if summary.failure is not None:
            asyncio.run(self._coordinator().stop_others(self._transaction.handle))
        return _CommitMessage(summary)

    async def _begin(self) -> JobTransaction:
        coordinator = self._coordinator()
        await coordinator.prepare()
        return await coordinator.begin()

    def _committed(self, messages: Sequence[WriterCommitMessage | None], query: str, batch: int) -> None:
        """Every task has ended, with its result or its error."""
        summaries = _summaries(messages)
        if self._options.is_exactly_once:
            try:
                asyncio.run(self._coordinator().commit(summaries, query, batch))
            except KafkaError as error:
                # Spark prints the traceback before the error's message.
                raise error.with_traceback(None) from None
        if self._options.report is not None:
            BatchReport(self._options.report).add([each for each in summaries if each is not None], query, batch)

    def _attempt(self) -> TaskAttempt:
        task = TaskContext.get()
        assert task is not None  # write() runs in tasks
        query, batch = self._job()
        if self.is_stream:
            query = str(task.getLocalProperty("sql.streaming.queryId"))
            batch = int(str(task.getLocalProperty("streaming.sql.batchId")))
        return TaskAttempt(task.taskAttemptId(), task.attemptNumber(), query, batch)

    def _job(self) -> tuple[str, int]:
        """The query and micro-batch of a batch job."""
        return job_query(self._options.job_id), 0

    def _coordinator(self) -> JobCoordinator:
        return self.coordinators(self._options, is_stream=self.is_stream)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """The writer of a batch job."""

    is_stream = False

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Every task has ended."""
        self._committed(messages, *self._job())

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """A task, or the commit, has failed."""
        if self._transaction is not None:
            asyncio.run(self._coordinator().abort([self._transaction.handle]))


#: PySpark 4.0 has Arrow writers only for batch jobs, and only checks for that class when it passes the rows.
_STREAM_WRITERS: tuple[type, ...] = (
    (datasource.DataSourceStreamArrowWriter,)
    if hasattr(datasource, "DataSourceStreamArrowWriter")
    else (DataSourceStreamWriter, DataSourceArrowWriter)
)


class _StreamMethods(_Writer):
    """The writer of a micro-batch."""

    is_stream = True

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Every task has ended."""
        query = next((each.query for each in _summaries(messages) if each is not None), "")
        self._committed(messages, query, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """A task, or the commit, has failed; if no task finished, the beginning of the next batch aborts."""
        if self._options.is_exactly_once:
            handles = {each.handle for each in _summaries(messages) if each is not None and each.handle is not None}
            asyncio.run(self._coordinator().abort(list(handles)))


#: The writer class of a micro-batch for the installed PySpark.
StreamWriter: Any = type("StreamWriter", (_StreamMethods, *_STREAM_WRITERS), {"__doc__": _StreamMethods.__doc__})


def _summaries(messages: Sequence[WriterCommitMessage | None]) -> Sequence[TaskSummary | None]:
    return [each.summary if isinstance(each, _CommitMessage) else None for each in messages]
