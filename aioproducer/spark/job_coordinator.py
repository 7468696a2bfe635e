"""Begins and ends the transaction that all tasks of a micro-batch, or of a batch job, share; runs on Spark's driver.

1. Before the tasks start: a new epoch, which aborts what an earlier run has left open and fences who still writes into it;
   then - in this order, as no transaction of this id is pending any more - the marker of the last commit is read.
2. When all tasks have succeeded: the marker of this batch joins the transaction, and one EndTxn makes it visible. That is
   the one moment of commit; what dies before it leaves nothing, what dies after it is found by the marker.
3. When one has failed: the transaction is aborted. It can never hold what was committed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from aioproducer.coordinator_client import TransactionCoordinatorClient
from aioproducer.core.transaction_handle import TransactionHandle
from aioproducer.errors import KafkaError, ProducerFenced, SharedPartition, TransactionAbortable
from aioproducer.spark.commit_marker import CommitMarker, marker_group
from aioproducer.spark.job_transaction import JobTransaction, shared_by_tasks
from aioproducer.spark.sink_options import SinkOptions
from aioproducer.spark.task_summary import TaskSummary
from aioproducer.types import TopicPartition

__all__ = ["JobCoordinator"]

logger = logging.getLogger("aioproducer.spark")


class JobCoordinator:
    """What the driver does for a job that is written exactly once; every call opens connections of its own.

    So the call that ends a transaction may be made by another process than the one that began it, as Spark does.
    ``is_marked``: whether what was committed must be recognised when it is run again.
    """

    def __init__(self, options: SinkOptions, *, is_marked: bool = True) -> None:
        """Raises `ConfigError` where no topic for the marker is named."""
        self._options = options
        self._group = marker_group(options.transactional_id)
        self._marker_partition = TopicPartition(options.marker_partition_topic(), 0) if is_marked else None

    async def begin(self) -> JobTransaction:
        """Begin the transaction, and abort what an earlier run has left. Raises what `TransactionCoordinatorClient` does.

        Cancellation: earlier transactions may be fenced or not.
        """
        options = self._options
        async with self._client() as client:
            handle = await client.init(options.transactional_id, transaction_timeout_ms=options.transaction_timeout_ms)
            position = None
            if self._marker_partition is not None:
                found = await client.committed(self._group, [self._marker_partition])
                position = found[self._marker_partition]
        return JobTransaction(handle, CommitMarker.read(position), options.missing_marker)

    async def commit(self, summaries: Sequence[TaskSummary | None], query: str, batch: int) -> None:
        """Commit what all tasks have written, and the marker with it; does nothing where it was committed before.

        Raises `TransactionAbortable` where the tasks do not fit together, `SharedPartition` where two wrote into the same
        partition; the transaction is aborted then. Raises `ProducerFenced` where it took longer than
        ``transaction.timeout.ms``, and what else `TransactionCoordinatorClient.commit` does; whoever calls aborts then.
        Cancellation: it may be committed or not; the marker tells.
        """
        try:
            done = _checked(summaries, query, batch)
        except TransactionAbortable:
            await self.abort(_handles(summaries))
            raise
        handle = done[0].handle
        if handle is None or done[0].skipped:
            logger.info("Batch %d of query %s was committed before; nothing is written.", batch, query)
            return
        rows = sum(each.rows for each in done)
        now = time.time_ns() // 1_000_000
        marker = CommitMarker(query, batch, rows, at_ms=now, set_back_from=done[0].set_back_from)
        async with self._client() as client:
            try:
                await self._mark(client, handle, marker)
                await self._end(client, handle, done)
            except SharedPartition as error:
                await client.abort(handle)
                raise shared_by_tasks(error) from error
            except (ProducerFenced, TransactionAbortable) as error:
                raise type(error)(
                    f"{error} (If the batch took longer than transaction.timeout.ms={self._options.transaction_timeout_ms}: "
                    "raise that option, up to the brokers' transaction.max.timeout.ms, or make batches smaller.)"
                ) from error

    async def abort(self, handles: Sequence[TransactionHandle]) -> None:
        """Abort the transactions, as far as they are open; what cannot be aborted now is by the next `begin`.

        Cancellation: they may be aborted or not.
        """
        if not handles:
            return
        async with self._client() as client:
            for handle in handles:
                try:
                    await client.abort(handle)
                except KafkaError as error:
                    logger.warning("The transaction was not aborted by this call: %s", error)

    async def _mark(
        self, client: TransactionCoordinatorClient, handle: TransactionHandle, marker: CommitMarker
    ) -> None:
        if self._marker_partition is not None:
            await client.send_offsets(handle, {self._marker_partition: marker.position()}, self._group, self._seconds)

    async def _end(
        self, client: TransactionCoordinatorClient, handle: TransactionHandle, done: Sequence[TaskSummary]
    ) -> None:
        await client.commit(handle, written=[each.written for each in done], timeout=self._seconds)

    def _client(self) -> TransactionCoordinatorClient:
        return TransactionCoordinatorClient(self._options.config)

    @property
    def _seconds(self) -> float:
        """How long it makes sense to go on asking: the coordinator gives up after this time as well."""
        return self._options.transaction_timeout_ms / 1000


def _handles(summaries: Sequence[TaskSummary | None]) -> Sequence[TransactionHandle]:
    found = {each.handle for each in summaries if each is not None and each.handle is not None}
    return sorted(found, key=lambda each: (each.producer_id, each.producer_epoch))


def _checked(summaries: Sequence[TaskSummary | None], query: str, batch: int) -> Sequence[TaskSummary]:
    """The reports of all tasks, where they are about one batch in one transaction."""
    done = [each for each in summaries if each is not None]
    told = {(each.handle, each.query, each.batch, each.skipped) for each in done}
    if len(done) < len(summaries) or not done:
        raise TransactionAbortable(
            f"Batch {batch} of query {query} cannot be committed: {len(summaries) - len(done)} of {len(summaries)} tasks "
            "have not reported what they wrote."
        )
    if len(told) > 1 or (done[0].query, done[0].batch) != (query, batch):
        raise TransactionAbortable(
            f"Batch {batch} of query {query} cannot be committed: its tasks report different transactions or batches, "
            f"{sorted(map(str, told))}."
        )
    return done
