"""The transaction of an ``async with``: committed at its end, aborted on any exception."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn

import anyio

from aioproducer.errors import AuthenticationError, KafkaError, TransactionAbortable, TransactionStateError
from aioproducer.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from typing import Self

    from aioproducer.core.transactions.handle import TransactionHandle
    from aioproducer.producer import Producer

__all__ = ["NOT_BEGUN", "OVER", "SENDING", "Transaction", "refuse"]

logger = logging.getLogger("aioproducer")

#: The calls that are the producer's own as long as the transaction is open; coroutines but for ``enqueue_nowait``.
SENDING = ("send", "enqueue", "enqueue_nowait", "send_many", "send_table")

NOT_BEGUN = "This transaction has not begun: enter it first, with `async with` (SyncProducer: `with`)."
OVER = "This transaction is over, and takes nothing any more. What belongs into another one is to be sent by that one."


def refuse(why: str, *_: object, **__: object) -> NoReturn:
    """Raise `TransactionStateError`, whatever is to be sent."""
    raise TransactionStateError(why)


async def _refuse(why: str, *_: object, **__: object) -> NoReturn:
    refuse(why)


class Transaction:
    """One transaction of a producer, to be entered once.

    ::

        async with producer.transaction() as txn:
            await txn.enqueue("orders", b"value")
            await txn.send_offsets({TopicPartition("in", 0): 42}, consumer_group)

    Leaving it normally commits: when that has returned, everything in it is visible to readers with
    ``isolation_level=read_committed``. Where it raises `TransactionAbortable`, the transaction was aborted, and nothing is
    visible; `CommitUnknown` says that the outcome is not known. Leaving it by an exception aborts and re-raises.

    ``send``, ``enqueue``, ``enqueue_nowait``, ``send_many``, ``send_table`` and ``flush`` are those of the producer. Before
    it was entered and once it is over they raise `TransactionStateError`, but for ``flush``: what comes too late does not
    slip into the producer's next transaction.

    Cancellation: within the block it aborts, like any exception, and that is waited for. While it commits, the commit
    goes on in the background, and the next transaction waits for it; where it fails, entering that one raises its error.
    """

    def __init__(self, producer: Producer, begin: Callable[[], Awaitable[None]]) -> None:
        self._producer = producer
        self._begin = begin
        self._entered = False
        self._refusal: str | None = None  # why nothing may be put in now
        self.send = producer.send
        self.enqueue = producer.enqueue
        self.enqueue_nowait = producer.enqueue_nowait
        self.send_many = producer.send_many
        self.send_table = producer.send_table
        self.flush = producer.flush
        self._shut(NOT_BEGUN)

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: ConsumerGroupMetadata | str,
        timeout: float | None = None,
    ) -> None:
        """Commit a consumer's positions with the transaction; see `Producer.send_offsets_to_transaction`."""
        self._check_open()
        await self._producer.send_offsets_to_transaction(offsets, group, timeout)

    def handle(self) -> TransactionHandle:
        """What another process needs to write into this transaction; see `Producer.transaction_handle`."""
        self._check_open()
        return self._producer.transaction_handle()

    async def __aenter__(self) -> Self:
        if self._entered:
            raise TransactionStateError("This transaction was entered before; producer.transaction() makes a new one.")
        self._entered = True
        await self._begin()
        self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                await self._commit()
            else:
                await self._abort()
        finally:
            self._shut(OVER)

    async def _commit(self) -> None:
        try:
            await self._producer.commit_transaction()
        except (AuthenticationError, TransactionAbortable):
            await self._abort()
            raise

    async def _abort(self) -> None:
        """Abort, without hiding why."""
        with anyio.CancelScope(shield=True):  # an anyio scope that was cancelled would interrupt every await in here
            try:
                await self._producer.abort_transaction()
            except KafkaError as error:
                logger.warning("The transaction could not be aborted: %s", error)

    def _open(self) -> None:
        """Copied rather than asked for by each call: being open costs nothing."""
        self._refusal = None
        for name in SENDING:
            setattr(self, name, getattr(self._producer, name))

    def _shut(self, why: str) -> None:
        self._refusal = why
        for name in SENDING:
            setattr(self, name, partial(refuse if name == "enqueue_nowait" else _refuse, why))

    def _check_open(self) -> None:
        if self._refusal is not None:
            refuse(self._refusal)
