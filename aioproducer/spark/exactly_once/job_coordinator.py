"""Begins and ends the transaction shared by all tasks of a micro-batch or batch job; runs on Spark's driver.

1. Before the tasks start: a new epoch aborts what an earlier run left open and fences its writers. Then, with no
transaction of this id pending any more, the earlier commit is read: the marker of the last batch, or the job's record in
the commit log.
2. When all tasks have succeeded: the marker of this batch, or the job's record, joins the transaction, and one EndTxn makes
everything visible. That is the only commit point: a crash before it leaves nothing, one after it is recognised.
3. When a task has failed: the transaction is aborted. It can never contain committed data.

A batch that was committed before is skipped only if its contents are the committed ones. The tasks, which read its rows
anyway, compute them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Final

from aioproducer.core.transactions.handle import TransactionHandle
from aioproducer.errors import (
    CommitUnknown,
    KafkaError,
    ReopenRequired,
    SharedPartition,
    TransactionAbortable,
    TransactionStateError,
)
from aioproducer.spark.exactly_once.commit_log import CommitLog
from aioproducer.spark.exactly_once.commit_marker import CommitMarker, CommitMarkerMismatch, marker_group
from aioproducer.spark.exactly_once.earlier_commit import EarlierCommit
from aioproducer.spark.exactly_once.fingerprint import Fingerprint
from aioproducer.spark.exactly_once.job_transaction import JobTransaction, shared_by_tasks
from aioproducer.spark.exactly_once.marker_commit import send_marker
from aioproducer.spark.exactly_once.task_failure import TaskFailure
from aioproducer.spark.exactly_once.task_summary import TaskSummary
from aioproducer.spark.exactly_once.write_failed import WriteFailed
from aioproducer.spark.options.sink import MarkerMismatch, SinkOptions
from aioproducer.transactions.client import TransactionCoordinatorClient
from aioproducer.types import TopicPartition, Written

__all__ = ["JobCoordinator"]

logger = logging.getLogger("aioproducer.spark")

#: The transaction.version since which no writer outlives the end of its transaction.
_SHUTS_OUT: Final = 2


class JobCoordinator:
    """The driver's part of a job that is written exactly once; every call opens its own connections.

    So a process other than the one that began a transaction may end it, as happens in Spark. ``is_stream``: batches have
    numbers, and a marker records the last ones.
    """

    def __init__(self, options: SinkOptions, *, is_stream: bool) -> None:
        """Raises `ConfigError` if there is no topic for the marker."""
        self._options = options
        self._group = marker_group(options.transactional_id)
        is_numbered = is_stream or options.is_load_slice
        self._marker_partition = TopicPartition(options.marker_partition_topic(), 0) if is_numbered else None
        is_in_log = options.is_in_log and not is_stream
        self._log = CommitLog(options.config, options.commit_log_topic) if is_in_log else None

    async def prepare(self) -> None:
        """Make sure that commits can be recorded; called on the driver, before the first `begin` of a job.

        Raises `ConfigError` if the commit log's topic is missing or unfit, and connection errors.
        """
        if self._log is not None:
            await self._log.prepare()

    async def begin(self) -> JobTransaction:
        """Begin the transaction, and abort what an earlier run left open. Raises what `TransactionCoordinatorClient` does.

        Cancellation: earlier transactions may or may not be fenced.
        """
        options = self._options
        marker = job = None
        async with self._client() as client:
            handle = await client.init(options.transactional_id, transaction_timeout_ms=options.transaction_timeout_ms)
            began_at = time.time()
            if self._marker_partition is not None:
                found = await client.committed(self._group, [self._marker_partition])
                marker = CommitMarker.read(found[self._marker_partition])
        if self._log is not None:
            job = await self._log.find(options.transactional_id, options.job_id or "")
        return JobTransaction(handle, marker, options.missing_marker, options.mismatch, job, began_at)

    async def commit(self, summaries: Sequence[TaskSummary | None], query: str, batch: int) -> None:
        """Commit what all tasks have written, together with the marker; does nothing if the batch was committed before.

        Raises `WriteFailed` if a task failed or the transaction took longer than ``transaction.timeout.ms``,
        `CommitMarkerError` if the marker allows neither writing nor skipping the batch, `TransactionAbortable` if the
        tasks' reports do not match, and `SharedPartition` if two tasks wrote the same partition. Nothing becomes visible
        then. Raises what `TransactionCoordinatorClient.commit` raises otherwise; the caller then aborts. Cancellation: it
        may or may not be committed; the marker shows which.
        """
        done = await self._checked(summaries, query, batch)
        transaction, contents = done[0].transaction, Fingerprint.together(each.contents for each in done)
        if transaction is None:
            return
        if done[0].earlier is not None:
            self._leave_out(done[0].earlier, query, contents)
            return
        try:
            await self._commit(transaction, done, query, batch, contents)
        except SharedPartition as error:
            await self.abort([transaction.handle])
            raise shared_by_tasks(error) from error
        except CommitUnknown:
            raise
        except KafkaError as error:
            if TaskFailure.of(error).is_of_end:
                raise self._ended(transaction) from error
            raise

    async def abort(self, handles: Sequence[TransactionHandle]) -> None:
        """Abort those transactions that are open; the next `begin` aborts what cannot be aborted now.

        Cancellation: they may or may not be aborted.
        """
        if not handles:
            return
        async with self._client() as client:
            for handle in handles:
                try:
                    await client.abort(handle)
                except (ReopenRequired, TransactionStateError) as error:  # it has ended, or nothing was written into it
                    logger.debug("There was no transaction to abort: %s", error)
                except KafkaError as error:
                    logger.warning("The transaction was not aborted by this call: %s", error)

    async def stop_others(self, handle: TransactionHandle) -> None:
        """After a task failed: make the others fail as well, because what they write is discarded. Called in that task.

        Only if the abort fences tasks that still write with this handle (transaction.version 2). Otherwise a task that
        continued would open a transaction with the same epoch: a later abort might miss it, and a driver that knew nothing
        of this could commit what came after. The driver then aborts, after all tasks have ended. Cancellation: as in
        `abort`.
        """
        async with self._client() as client:
            try:
                if await client.transaction_version() < _SHUTS_OUT:
                    return
            except KafkaError as error:
                logger.debug("Unknown whether an abort fences the other tasks: %s", error)
                return
        await self.abort([handle])

    async def _commit(
        self,
        transaction: JobTransaction,
        done: Sequence[TaskSummary],
        query: str,
        batch: int,
        contents: Fingerprint,
    ) -> None:
        handle, now = transaction.handle, time.time_ns() // 1_000_000
        written = [each.written for each in done]
        if self._log is not None:
            written.append(await self._log.add(handle, self._options.job_id or "", contents, now))
        marker = CommitMarker.after(transaction.marker, query, batch, contents, now)
        async with self._client() as client:
            await self._mark(client, handle, marker)
            await self._end(client, handle, written)

    async def _mark(
        self, client: TransactionCoordinatorClient, handle: TransactionHandle, marker: CommitMarker
    ) -> None:
        if self._marker_partition is not None:
            await send_marker(client, handle, self._group, self._marker_partition, marker, self._seconds)

    async def _end(
        self,
        client: TransactionCoordinatorClient,
        handle: TransactionHandle,
        written: Sequence[Mapping[TopicPartition, Written]],
    ) -> None:
        await client.commit(handle, written=written, timeout=self._seconds)

    def _leave_out(self, earlier: EarlierCommit, query: str, found: Fingerprint) -> None:
        is_same = earlier.is_of(found)
        if not is_same and self._options.mismatch is MarkerMismatch.FAIL:
            raise CommitMarkerMismatch(earlier.mismatch(query, found))
        logger.warning("%s", earlier.left_out(query, found, is_same=is_same))

    async def _checked(self, summaries: Sequence[TaskSummary | None], query: str, batch: int) -> Sequence[TaskSummary]:
        """The reports of all tasks, if all succeeded with the same batch and transaction; otherwise aborts."""
        done = [each for each in summaries if each is not None]
        handles = _handles(done)
        failures = [each.failure for each in done if each.failure is not None]
        if failures:
            await self.abort(handles)
            raise self._failed(done, TaskFailure.first_cause(failures))
        try:
            _check_one_batch(done, len(summaries), query, batch)
        except TransactionAbortable:
            await self.abort(handles)
            raise
        return done

    def _failed(self, done: Sequence[TaskSummary], failure: TaskFailure) -> KafkaError:
        if failure.refusal is not None:
            return failure.refusal
        transaction = next((each.transaction for each in done if each.transaction is not None), None)
        if failure.is_of_end and transaction is not None:
            return self._ended(transaction)
        return WriteFailed(f"The rows were not written: {failure.sentence} None of them become visible.")

    def _ended(self, transaction: JobTransaction) -> WriteFailed:
        why = transaction.why_it_ended(self._options.transaction_timeout_ms, time.time())
        return WriteFailed(f"The rows were not written: {why} None of them become visible.")

    def _client(self) -> TransactionCoordinatorClient:
        return TransactionCoordinatorClient(self._options.config)

    @property
    def _seconds(self) -> float:
        """The time limit for retries: the coordinator gives up after this time as well."""
        return self._options.transaction_timeout_ms / 1000


def _handles(done: Sequence[TaskSummary]) -> Sequence[TransactionHandle]:
    found = {each.handle for each in done if each.handle is not None}
    return sorted(found, key=lambda each: (each.producer_id, each.producer_epoch))


def _check_one_batch(done: Sequence[TaskSummary], tasks: int, query: str, batch: int) -> None:
    if len(done) < tasks or not done:
        raise TransactionAbortable(
            f"Batch {batch} of query {query} cannot be committed: {tasks - len(done)} of {tasks} tasks did not report "
            "what they wrote."
        )
    reports = {(each.handle, each.query, each.batch, each.earlier) for each in done}
    if len(reports) > 1 or (done[0].query, done[0].batch) != (query, batch):
        raise TransactionAbortable(
            f"Batch {batch} of query {query} cannot be committed: its tasks report different transactions or batches, "
            f"{sorted(map(str, reports))}."
        )
