"""Writes a DataFrame exactly once in a barrier stage, which Spark retries by itself when a task fails.

All tasks of a barrier stage run at once, and if one fails Spark runs them all again. So each attempt can have its own
transaction, which the first task begins and passes to the others: beginning it aborts what an earlier attempt left open, and
fences its writers. No task ends before all have written. The driver aborts the transaction of the last attempt, which the
failed task names. (A barrier stage that returns its rows to the driver cannot be retried, so they are shuffled first.)
"""

from __future__ import annotations

import asyncio
import base64
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast

from aioproducer.errors import ConfigError, KafkaError
from aioproducer.spark.exactly_once.job_coordinator import JobCoordinator
from aioproducer.spark.exactly_once.job_transaction import JobTransaction
from aioproducer.spark.exactly_once.task_attempt import TaskAttempt, job_query
from aioproducer.spark.exactly_once.task_failure import TaskFailure
from aioproducer.spark.exactly_once.task_summary import TaskSummary
from aioproducer.spark.exactly_once.write_failed import WriteFailed
from aioproducer.spark.libraries import need_pandas
from aioproducer.spark.options.given import OptionValue
from aioproducer.spark.options.sink import DeliveryGuarantee, SinkOptions
from aioproducer.spark.session.errors import cause_of
from aioproducer.spark.sink.barrier_failure import name_transaction, named_transactions
from aioproducer.spark.sink.batch_report import BatchReport
from aioproducer.spark.sink.columns import SinkColumns
from aioproducer.spark.sink.kafka_partitions import partition_for_kafka, slots
from aioproducer.spark.sink.task_run import TaskRun
from aioproducer.spark.sink.topic_rules_reader import TopicRulesReader
from aioproducer.transactions.client import TransactionCoordinatorClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["BarrierWrite", "foreach_batch", "write_exactly_once"]

#: Seconds; the write has already failed, and this is only for its message.
_TO_ASK: Final = 10.0


def write_exactly_once(df: DataFrame, options: Mapping[str, OptionValue]) -> TaskSummary:
    """Write all rows in one transaction, retried by Spark if a task fails; returns the number of rows and bytes.

    ``options`` are those of the data source: at least ``kafka.bootstrap.servers``, ``topic`` and ``transactional.id``. With
    ``job.id`` a job that has already succeeded under this id writes nothing (``skipped``). The rows are shuffled by
    `partition_for_kafka`. All tasks must run at once, so there are at most as many as the cluster has slots; dynamic
    allocation is not supported.

    Raises `WriteFailed` with the reason if the last attempt or the commit failed: the transaction is aborted, and nothing
    becomes visible. Raises `CommitUnknown` if the commit got no response: the rows may or may not be visible.
    """
    write = BarrierWrite(options, is_stream=False)
    return write.run(df, job_query(write.options.job_id), 0)


def foreach_batch(options: Mapping[str, OptionValue]) -> Callable[[DataFrame, int], None]:
    """A function for ``writeStream.foreachBatch()`` that writes each micro-batch as `write_exactly_once` does, with marker.

    Raises `ConfigError` for invalid options, and in a Spark Connect client, which knows neither the number of slots nor
    the query's id.
    """
    from pyspark.sql import is_remote

    if is_remote():
        raise _with_spark_connect()
    write = BarrierWrite(options, is_stream=True)

    def write_batch(df: DataFrame, batch: int) -> None:
        _check_slots(df)
        query = df.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        if query is None:
            raise ConfigError("foreach_batch() is for writeStream.foreachBatch(): no query runs in this thread.")
        write.run(df, query, batch)

    return write_batch


@dataclass(frozen=True, slots=True)
class _Task:
    """The code and parameters of each task of the barrier stage."""

    options: SinkOptions
    columns: SinkColumns
    query: str
    batch: int
    is_stream: bool
    rules: TopicRulesReader

    def run(self, batches: Iterable[Any]) -> TaskSummary:
        from pyspark import BarrierTaskContext

        context = BarrierTaskContext.get()
        transaction = self._transaction(context)
        attempt = TaskAttempt(int(context.taskAttemptId()), 0, self.query, self.batch)
        options = replace(self.options, rate_limit_tasks=len(context.getTaskInfos()))
        try:
            summary = TaskRun(options, self.columns, transaction, attempt, self.rules).run(batches)
            # A task may only succeed if all do. If one succeeds just after another has failed, Spark (SPARK-59094, 4.3.0)
            # counts it for the next attempt as well, which then runs without it: waits for it forever, or writes the rest.
            context.barrier()
            return summary
        except BaseException as error:
            if TaskFailure.of(error).is_of_end:
                ended = WriteFailed(transaction.why_it_ended(self.options.transaction_timeout_ms, time.time()))
                name_transaction(ended, transaction.handle)
                raise ended from error
            name_transaction(error, transaction.handle)
            raise

    def _transaction(self, context: Any) -> JobTransaction:
        begun = ""
        if context.partitionId() == 0:
            coordinator = JobCoordinator(self.options, is_stream=self.is_stream)
            begun = base64.b64encode(pickle.dumps(asyncio.run(coordinator.begin()))).decode()
        gathered: list[str] = context.allGather(begun)
        transaction: JobTransaction = pickle.loads(base64.b64decode(next(each for each in gathered if each)))
        return transaction


class BarrierWrite:
    """Writes DataFrames with the same options, each in its own transaction, with a marker if it may be repeated."""

    def __init__(self, options: Mapping[str, OptionValue], *, is_stream: bool) -> None:
        """Raises `ConfigError` for invalid options, and if pandas is missing."""
        self.options = SinkOptions.from_spark(options, only=DeliveryGuarantee.EXACTLY_ONCE)
        if self.options.topic is None:
            raise ConfigError(
                "The option 'topic' is missing: here all rows go to one topic, and are split by its partitions."
            )
        self._report = None if self.options.report is None else BatchReport(self.options.report)
        self._is_stream = is_stream
        if is_stream:
            self.options.check_stream()
        need_pandas("A write in a barrier stage")
        self._coordinator = JobCoordinator(self.options, is_stream=is_stream)

    def run(self, df: DataFrame, query: str, batch: int) -> TaskSummary:
        """Write the rows, unless this batch was committed before; blocks until they are committed."""
        assert self.options.topic is not None
        _check_slots(df)
        asyncio.run(self._coordinator.prepare())
        if self._report is not None:
            self._report.check()
        # In a barrier stage only a shuffle reduces the number of tasks.
        ready = partition_for_kafka(df, self.options.topic, self.options.config, shuffle=True)
        columns = SinkColumns.of_frame(ready.schema, self.options).registered(self.options)
        rules = TopicRulesReader(self.options)
        rules.learn()
        write = _in_barrier_stage(_Task(self.options, columns, query, batch, self._is_stream, rules))
        summaries = self._collected(cast("Any", ready).mapInArrow(write, "summary binary", barrier=True).repartition(1))
        try:
            asyncio.run(self._coordinator.commit(summaries, query, batch))
        except BaseException:
            handles = {each.handle for each in summaries if each.handle is not None}
            asyncio.run(self._coordinator.abort(list(handles)))
            raise
        if self._report is not None:
            self._report.add(summaries, query, batch)
        return TaskSummary.together(summaries)

    def _collected(self, written: DataFrame) -> Sequence[TaskSummary]:
        try:
            return [pickle.loads(row.summary) for row in written.collect()]
        except Exception as error:  # Spark's, with stack traces of two languages around a task's error
            handles = named_transactions(error, self.options.transactional_id)
            left = "" if handles else asyncio.run(self._left_open())
            asyncio.run(self._coordinator.abort(handles))
            raise WriteFailed(
                f"The rows were not written: {cause_of(error)} None of them become visible.{left}"
            ) from error

    async def _left_open(self) -> str:
        """The message about a transaction that no task could name, for example after its executor was lost.

        It may belong to a newer driver, and in version 1 of the protocol an abort from here would split that in two.
        """
        name = self.options.transactional_id
        try:
            async with TransactionCoordinatorClient(self.options.config) as client:
                is_open = await client.has_open_transaction(name, timeout=_TO_ASK)
        except KafkaError:
            return ""
        if not is_open:
            return ""
        return (
            f" A transaction of transactional.id {name!r} is open, and read_committed readers wait until it is ended "
            "by its writer, by the next write with this id, or after "
            f"transaction.timeout.ms={self.options.transaction_timeout_ms}."
        )


def _in_barrier_stage(task: _Task) -> Callable[[Iterable[Any]], Iterator[Any]]:
    def write(batches: Iterable[Any]) -> Iterator[Any]:
        pa = import_module("pyarrow")
        yield pa.record_batch({"summary": pa.array([pickle.dumps(task.run(batches))], pa.binary())})

    return write


def _check_slots(df: DataFrame) -> None:
    # A barrier stage with more tasks than slots ends the whole Spark application (PySpark 4.3.0).
    if slots(df) is None:
        raise _with_spark_connect()


def _with_spark_connect() -> ConfigError:
    return ConfigError(
        "Barrier stages need as many free slots as tasks, and Spark Connect does not report their number. Instead write "
        "partition_for_kafka(df, topic, servers) with format('aioproducer') and delivery.guarantee=exactly-once."
    )
