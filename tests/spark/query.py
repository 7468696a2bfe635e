"""A query as Spark would run it, without Spark: for tests of what decides, which knows nothing of Spark."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Sequence

import pyarrow as pa  # type: ignore[import-untyped]

from aioproducer.spark.job_coordinator import JobCoordinator
from aioproducer.spark.job_transaction import JobTransaction
from aioproducer.spark.sink_columns import SinkColumns
from aioproducer.spark.sink_options import SinkOptions
from aioproducer.spark.task_attempt import TaskAttempt
from aioproducer.spark.task_run import TaskRun
from aioproducer.spark.task_summary import TaskSummary


class Query:
    """Every call has an event loop of its own, and everything is pickled on the way, as it is between Spark's processes."""

    def __init__(self, bootstrap_servers: str, topic: str, name: str = "q1", **options: str) -> None:
        given = {
            "kafka.bootstrap.servers": bootstrap_servers,
            "topic": topic,
            "delivery.guarantee": "exactly-once",
            "transactional.id": "t",
            **options,
        }
        self.name = name
        self.options = SinkOptions.from_spark(given)
        self.columns = SinkColumns.of([("value", "string"), ("partition", "int")], self.options)

    def begin(self) -> JobTransaction:
        transaction = asyncio.run(JobCoordinator(self.options).begin())
        copied: JobTransaction = pickle.loads(pickle.dumps(transaction))
        return copied

    def task(
        self,
        transaction: JobTransaction,
        batch: int,
        partition: int,
        rows: int = 10,
        *,
        number: int = 0,
        attempt_id: int = 0,
    ) -> TaskSummary:
        attempt = TaskAttempt(attempt_id or 100 * batch + partition, number, self.name, batch)
        table = pa.record_batch(
            {
                "value": [f"{numbered(batch, partition, row)}" for row in range(rows)],
                "partition": pa.array([partition] * rows, pa.int32()),
            }
        )
        summary = TaskRun(self.options, self.columns, transaction, attempt).run([table])
        copied: TaskSummary = pickle.loads(pickle.dumps(summary))
        return copied

    def commit(self, summaries: Sequence[TaskSummary | None], batch: int) -> None:
        asyncio.run(JobCoordinator(self.options).commit(summaries, self.name, batch))

    def run(self, batch: int) -> list[TaskSummary]:
        transaction = self.begin()
        summaries = [self.task(transaction, batch, partition) for partition in range(2)]
        self.commit(summaries, batch)
        return summaries

    def abort(self, transaction: JobTransaction) -> None:
        """Abort."""
        asyncio.run(JobCoordinator(self.options).abort([transaction.handle]))


def numbered(batch: int, partition: int, row: int) -> int:
    """The value of a row."""
    return batch * 10_000 + partition * 1_000 + row


def rows_of(*batches: int) -> list[int]:
    """The values of all rows of these batches, as `Query.run` writes them."""
    return [numbered(batch, partition, row) for batch in batches for partition in range(2) for row in range(10)]
