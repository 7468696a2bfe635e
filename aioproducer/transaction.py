"""The transaction of an ``async with``: committed at its end, aborted on any exception."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING

import anyio

from aioproducer.core.transaction_handle import TransactionHandle
from aioproducer.errors import KafkaError, TransactionAbortable, TransactionStateError
from aioproducer.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from typing import Self

    from aioproducer.producer import Producer

__all__ = ["Transaction"]

logger = logging.getLogger("aioproducer")


class Transaction:
    """One transaction of a producer, to be entered once.

    ::

        async with producer.transaction() as txn:
            await txn.enqueue("orders", b"value")
            await txn.send_offsets({TopicPartition("in", 0): 42}, consumer_group)

    Leaving it normally commits: when that has returned, everything in it is visible to readers with
    ``isolation_level=read_committed``. Where it raises `TransactionAbortable`, the transaction was aborted, and nothing is
    visible; `CommitUnknown` says that nobody can tell. Leaving it by an exception aborts, and the exception goes on its way.

    ``send``, ``enqueue``, ``enqueue_nowait``, ``send_many``, ``send_table`` and ``flush`` are those of the producer.

    Cancellation: within the block it aborts, like any exception, and that is waited for. While it commits, the commit
    goes on in the background, and the next transaction waits for it; where it fails, entering that one raises its error.
    """

    def __init__(self, producer: Producer, begin: Callable[[], Awaitable[None]]) -> None:
        self._producer = producer
        self._begin = begin
        self._entered = False
        self.send = producer.send
        self.enqueue = producer.enqueue
        self.enqueue_nowait = producer.enqueue_nowait
        self.send_many = producer.send_many
        self.send_table = producer.send_table
        self.flush = producer.flush

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: ConsumerGroupMetadata | str,
        timeout: float | None = None,
    ) -> None:
        """Commit a consumer's positions with the transaction; see `Producer.send_offsets_to_transaction`."""
        await self._producer.send_offsets_to_transaction(offsets, group, timeout)

    def handle(self) -> TransactionHandle:
        """What another process needs to write into this transaction; see `Producer.transaction_handle`."""
        return self._producer.transaction_handle()

    async def __aenter__(self) -> Self:
        if self._entered:
            raise TransactionStateError("This transaction was entered before; producer.transaction() makes a new one.")
        self._entered = True
        await self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            try:
                await self._producer.commit_transaction()
            except TransactionAbortable:
                await self._abort()
                raise
        else:
            await self._abort()

    async def _abort(self) -> None:
        """Abort, without hiding why."""
        with anyio.CancelScope(shield=True):  # an anyio scope that was cancelled would interrupt every await in here
            try:
                await self._producer.abort_transaction()
            except KafkaError as error:
                logger.warning("The transaction could not be aborted: %s", error)
