"""The transaction of an ``async with``: committed at its end, aborted on any exception."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, Protocol

import anyio

from aioproducer.errors import AuthenticationError, KafkaError, TransactionAbortable, TransactionStateError
from aioproducer.types import ConsumerGroupMetadata, K, OffsetAndMetadata, TopicPartition, V

if TYPE_CHECKING:
    from typing import Self

    from aioproducer.core.transactions.handle import TransactionHandle
    from aioproducer.delivery import Delivery
    from aioproducer.record.columns import HeaderColumns
    from aioproducer.runtime.log import ClientLog
    from aioproducer.types import HeadersInput, ProducerRecord, RecordMetadata, SendManyResult

__all__ = ["NOT_BEGUN", "OVER", "SENDING", "Transaction", "TransactionalProducer", "refuse"]

#: The calls that are the producer's while the transaction is open; coroutines, except ``enqueue_nowait``.
SENDING = ("send", "enqueue", "enqueue_nowait", "send_many", "send_table")

NOT_BEGUN = "This transaction has not begun: enter it first, with `async with` (SyncProducer: `with`)."
OVER = "This transaction has ended and accepts no more records. Send through the methods of the next transaction."


def refuse(why: str, *_: object, **__: object) -> NoReturn:
    """Raise `TransactionStateError` with the message ``why``; all other arguments are ignored."""
    raise TransactionStateError(why)


async def _refuse(why: str, *_: object, **__: object) -> NoReturn:
    refuse(why)


class TransactionalProducer(Protocol[K, V]):
    """The part of its producer that a transaction uses: `Producer` is above this module, and has the docstrings."""

    log: ClientLog

    async def send(
        self,
        topic: str | ProducerRecord,
        value: V | None = None,
        *,
        key: K | None = None,
        headers: HeadersInput | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: Callable[[Delivery], object] | None = None,
        timeout: float | None = None,
    ) -> RecordMetadata: ...

    async def enqueue(
        self,
        topic: str | ProducerRecord,
        value: V | None = None,
        *,
        key: K | None = None,
        headers: HeadersInput | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: Callable[[Delivery], object] | None = None,
        timeout: float | None = None,
    ) -> Delivery: ...

    def enqueue_nowait(
        self,
        topic: str | ProducerRecord,
        value: V | None = None,
        *,
        key: K | None = None,
        headers: HeadersInput | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: Callable[[Delivery], object] | None = None,
    ) -> Delivery: ...

    async def send_many(
        self,
        topic: str,
        values: Iterable[V | ProducerRecord | None] | AsyncIterable[V | ProducerRecord | None],
        *,
        key: Callable[[Any], K | None] | None = None,
        headers: HeadersInput | None = None,
        partition: int | None = None,
        on_progress: Callable[[SendManyResult], object] | None = None,
        timeout: float | None = None,
    ) -> SendManyResult: ...

    async def send_table(
        self,
        topic: str,
        table: object,
        *,
        key: str | None = None,
        value: str | Sequence[str] | None = None,
        headers: HeaderColumns | None = None,
        timestamp: str | None = None,
        partition: str | int | None = None,
        value_format: Literal["json"] | None = None,
        on_progress: Callable[[SendManyResult], object] | None = None,
        timeout: float | None = None,
    ) -> SendManyResult: ...

    async def flush(self, timeout: float | None = None) -> None: ...

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: ConsumerGroupMetadata | str,
        timeout: float | None = None,
    ) -> None: ...

    def transaction_handle(self) -> TransactionHandle: ...

    async def commit_transaction(self, timeout: float | None = None) -> None: ...

    async def abort_transaction(self, timeout: float | None = None) -> None: ...


class Transaction(Generic[K, V]):
    """One transaction of a producer, to be entered once.

    ::

        async with producer.transaction() as txn:
            await txn.enqueue("orders", b"value")
            await txn.send_offsets({TopicPartition("in", 0): 42}, consumer_group)

    Leaving it normally commits: afterwards everything in it is visible to readers with ``isolation_level=read_committed``.
    If that raises `TransactionAbortable`, the transaction was aborted, and nothing is visible; `CommitUnknown` says that the
    outcome is not known. Leaving it by an exception aborts and re-raises.

    ``send``, ``enqueue``, ``enqueue_nowait``, ``send_many``, ``send_table`` and ``flush`` are those of the producer. Before
    it is entered and after it has ended they raise `TransactionStateError`, except ``flush``: a late record does not end up
    in the producer's next transaction.

    Cancellation: within the block it aborts, like any exception, and waits for that. During the commit, the commit continues
    in the background, and the next transaction waits for it; if it fails, entering that one raises its error.
    """

    def __init__(self, producer: TransactionalProducer[K, V], begin: Callable[[], Awaitable[None]]) -> None:
        self._producer = producer
        self._begin = begin
        self._entered = False
        self._refusal: str | None = None  # why nothing may be added now
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
        """A handle with which another process can write into this transaction; see `Producer.transaction_handle`."""
        self._check_open()
        return self._producer.transaction_handle()

    async def __aenter__(self) -> Self:
        if self._entered:
            raise TransactionStateError(
                "This transaction was entered before; producer.transaction() returns a new one."
            )
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
        """Abort, without hiding the reason."""
        with anyio.CancelScope(shield=True):  # an anyio scope that was cancelled would interrupt every await in here
            try:
                await self._producer.abort_transaction()
            except KafkaError as error:
                self._producer.log.warning("The transaction could not be aborted: %s", error)

    def _open(self) -> None:
        """Copied rather than looked up by each call: an open transaction costs nothing."""
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
