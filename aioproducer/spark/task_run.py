"""Sends the rows of one task, on an event loop of its own, and tells what became of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

from aioproducer.producer import Producer
from aioproducer.record.columns import HeaderColumns
from aioproducer.spark.handover import Channel, Handover
from aioproducer.spark.job_transaction import JobTransaction
from aioproducer.spark.rate_limit import paced
from aioproducer.spark.sink_columns import SinkColumns
from aioproducer.spark.sink_options import SinkOptions
from aioproducer.spark.task_attempt import TaskAttempt
from aioproducer.spark.task_summary import TaskSummary
from aioproducer.spark.topic_split import load_pyarrow, split_by_topic
from aioproducer.types import SendManyResult

__all__ = ["TaskRun"]

#: A thread for every topic may wait for rows; fewer could wait for each other. They are made as they are needed.
_THREADS: Final = 10_000


class TaskRun:
    """One task: takes what Spark hands it, as Arrow batches, and sends it.

    Without a ``transaction`` each row is written at least once. With one it is written into that, by an ``attempt``
    that says what it is; and not at all where the marker tells that this batch was committed before.
    """

    def __init__(
        self,
        options: SinkOptions,
        columns: SinkColumns,
        transaction: JobTransaction | None = None,
        attempt: TaskAttempt = TaskAttempt(),  # noqa: B008 - frozen
    ) -> None:
        self._options = options
        self._columns = columns
        self._transaction = transaction
        self._attempt = attempt
        self._pyarrow = load_pyarrow()

    def run(self, batches: Iterable[Any]) -> TaskSummary:
        """Send all rows and wait for their acknowledgements; blocks. Raises what kept a row from being written."""
        return asyncio.run(self.send(batches))

    async def send(self, batches: Iterable[Any]) -> TaskSummary:
        """As `run`, inside an event loop whose default executor it replaces.

        Raises `CommitMarkerMissing` and `TransactionAbortable` where it must not write. Cancellation: no further batch is
        sent; what was handed over is delivered all the same.
        """
        transaction, attempt = self._transaction, self._attempt
        if transaction is not None:
            if transaction.is_done(attempt):
                return TaskSummary(handle=transaction.handle, query=attempt.query, batch=attempt.batch, skipped=True)
            transaction.check_attempt(attempt)
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS, "aioproducer spark"))
        began = time.monotonic()
        async with self._producer() as producer:
            results = await self._send_topics(producer, batches)
        return TaskSummary(
            sum(each.count for each in results),
            sum(each.serialized_bytes for each in results),
            None if transaction is None else transaction.handle,
            producer.written,
            attempt.query,
            attempt.batch,
            offsets={partition: ends for each in results for partition, ends in each.offsets.items()},
            retries=int(producer.metrics()["record-retry-total"]),
            seconds=time.monotonic() - began,
        )

    def _producer(self) -> Producer:
        config = self._options.config
        if self._transaction is None:
            return Producer(config)
        return Producer.attach(self._transaction.handle, config, writer=self._attempt.id)

    async def _send_topics(self, producer: Producer, batches: Iterable[Any]) -> list[SendManyResult]:
        split = partial(split_by_topic, columns=self._columns, topic=self._options.topic)
        if (rate := self._options.rows_per_second) is not None:
            batches = paced(batches, rate)
        with Handover(batches, split, self._options.max_in_flight_batches) as handover:
            try:
                async with asyncio.TaskGroup() as sending:
                    tasks = [
                        sending.create_task(self._send_topic(producer, channel))
                        async for channel in handover.channels()
                    ]
            except ExceptionGroup as group:
                # What upstream raised comes back through Arrow as text; the error itself says more.
                raise handover.error or group.exceptions[0] from group
            if handover.error is not None:
                raise handover.error
        return [task.result() for task in tasks]

    async def _send_topic(self, producer: Producer, channel: Channel) -> SendManyResult:
        tables = iter(channel)
        first = await asyncio.to_thread(next, tables, None)
        if first is None:
            return SendManyResult()
        columns = self._columns
        return await producer.send_table(
            channel.topic,
            self._pyarrow.RecordBatchReader.from_batches(first.schema, _again(first, tables)),
            key="key" if columns.has("key") else None,
            value=columns.payload if columns.is_json else "value",
            headers=self._headers(),
            timestamp="timestamp" if columns.has("timestamp") else None,
            partition="partition" if columns.has("partition") else None,
            value_format="json" if columns.is_json else None,
        )

    def _headers(self) -> HeaderColumns | None:
        constant = dict(self._options.headers)
        return [*(["headers"] if self._columns.has("headers") else []), *([constant] if constant else [])] or None


def _again(first: Any, rest: Iterable[Any]) -> Iterable[Any]:
    yield first
    yield from rest
