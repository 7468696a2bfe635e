"""A query as Spark would run it, without Spark: for tests of what decides, which knows nothing of Spark."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Sequence

import pyarrow as pa  # type: ignore[import-untyped]

from aioproducer.spark.exactly_once.job_coordinator import JobCoordinator
from aioproducer.spark.exactly_once.job_transaction import JobTransaction
from aioproducer.spark.exactly_once.task_attempt import TaskAttempt, job_query
from aioproducer.spark.exactly_once.task_summary import TaskSummary
from aioproducer.spark.options.sink import SinkOptions
from aioproducer.spark.sink.columns import SinkColumns
from aioproducer.spark.sink.task_run import TaskRun


class Query:
    """Every call has its own event loop, and everything is pickled on the way, as it is between Spark's processes.

    A stream, or a batch job if there is a ``job.id`` among the options.
    """

    def __init__(self, bootstrap_servers: str, topic: str | None, name: str = "q1", **options: str) -> None:
        given = {
            "kafka.bootstrap.servers": bootstrap_servers,
            "topic": topic,
            "delivery.guarantee": "exactly-once",
            "transactional.id": "t",
            **options,
        }
        self.options = SinkOptions.from_spark(given)
        self.is_stream = self.options.job_id is None
        self.name = name if self.is_stream else job_query(self.options.job_id)
        self.values: Callable[[int, int, int], object] = numbered
        self.of_columns: SinkColumns | None = None

    @property
    def columns(self) -> SinkColumns:
        """Those of the rows that `task` writes, where nothing else was said."""
        return self.of_columns or SinkColumns.of([("value", "string"), ("partition", "int")], self.options)

    def with_columns(self, *schema: tuple[str, str]) -> Query:
        """The same query of a DataFrame with these columns."""
        self.of_columns = SinkColumns.of(schema, self.options)
        return self

    def coordinator(self) -> JobCoordinator:
        return JobCoordinator(self.options, is_stream=self.is_stream)

    def begin(self) -> JobTransaction:
        transaction = asyncio.run(self._begin())
        copied: JobTransaction = pickle.loads(pickle.dumps(transaction))
        return copied

    async def _begin(self) -> JobTransaction:
        coordinator = self.coordinator()
        await coordinator.prepare()
        return await coordinator.begin()

    def task(
        self,
        transaction: JobTransaction,
        batch: int,
        partition: int,
        rows: int = 10,
        *,
        number: int = 0,
        attempt_id: int = 0,
        values: Sequence[object] | None = None,
    ) -> TaskSummary:
        attempt = TaskAttempt(attempt_id or 100 * batch + partition, number, self.name, batch)
        if values is None:
            values = [self.values(batch, partition, row) for row in range(rows)]
        table = pa.record_batch(
            {
                "value": pa.array(map(str, values), pa.string()),
                "partition": pa.array([partition] * len(values), pa.int32()),
            }
        )
        summary = TaskRun(self.options, self.columns, transaction, attempt).report([table])
        copied: TaskSummary = pickle.loads(pickle.dumps(summary))
        return copied

    def commit(self, summaries: Sequence[TaskSummary | None], batch: int) -> None:
        asyncio.run(self.coordinator().commit(summaries, self.name, batch))

    def run(self, batch: int) -> list[TaskSummary]:
        transaction = self.begin()
        summaries = [self.task(transaction, batch, partition) for partition in range(2)]
        self.commit(summaries, batch)
        return summaries

    def abort(self, transaction: JobTransaction) -> None:
        """Abort."""
        asyncio.run(self.coordinator().abort([transaction.handle]))


def numbered(batch: int, partition: int, row: int) -> int:
    """The value of a row."""
    return batch * 10_000 + partition * 1_000 + row


def rows_of(*batches: int) -> list[int]:
    """The values of all rows of these batches, as `Query.run` writes them."""
    return [numbered(batch, partition, row) for batch in batches for partition in range(2) for row in range(10)]
