"""What the parts of a producer see of its transactions: which records may go in, and what the decisions mean for them.

The `TransactionManager` decides. This carries its decisions to the accumulator, the sequences and the Sender, and tells it
what became of the batches.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from math import inf
from typing import NamedTuple, TypeAlias

from aioproducer.accumulator.accumulator import RecordAccumulator
from aioproducer.core.sequences import Sequences
from aioproducer.core.transactions.manager import INITIALIZE, PREPARE, TransactionManager
from aioproducer.core.transactions.operation import Operation
from aioproducer.core.transactions.states import State
from aioproducer.errors import (
    AuthenticationError,
    CommitUnknown,
    KafkaError,
    KafkaTimeoutError,
    TransactionAbortable,
    TransactionStateError,
)
from aioproducer.types import TopicPartition

__all__ = ["TransactionLink"]

logger = logging.getLogger("aioproducer")

#: Why nothing gets through to those who began to wait at a time, by the cluster or by one broker; None where it does.
Refusal: TypeAlias = Callable[[float, int | None], AuthenticationError | None]

_FAILED = frozenset({State.ABORTABLE_ERROR, State.ABORTING, State.FATAL_ERROR})


class _Call(NamedTuple):
    """Somebody who waits for an operation."""

    operation: Operation
    since: float  # the event loop's time
    fail: Callable[[KafkaError], None]


class TransactionLink:
    """The transactions of one running producer.

    ``wake_sender`` has it look again, ``on_open`` is called where records may be put in from now on without asking for
    each, ``on_shut`` where that ends.
    """

    # from `bind` on
    manager: TransactionManager
    _wake_carrier: Callable[[], object]
    _refusal: Refusal
    _accumulator: RecordAccumulator
    _sequences: Sequences

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        wake_sender: Callable[[], object],
        on_open: Callable[[], object],
        on_shut: Callable[[], object],
    ) -> None:
        self._loop = loop
        self._wake_sender = wake_sender
        self._on_open = on_open
        self._on_shut = on_shut
        self._number = 0  # of the transaction that was begun last
        self._calls: dict[_Call, None] = {}  # that end when credentials are refused
        self._held: asyncio.TimerHandle | None = None  # as long as the markers of the last one are being written

    def bind(
        self,
        manager: TransactionManager,
        accumulator: RecordAccumulator,
        sequences: Sequences,
        *,
        wake_carrier: Callable[[], object],
        refusal: Refusal,
    ) -> None:
        """Work for these from now on; ``wake_carrier`` is called whenever there may be something to ask."""
        self._refusal = refusal
        self.manager, self._accumulator, self._sequences = manager, accumulator, sequences
        self._wake_carrier = wake_carrier

    # -- for the producer ---------------------------------------------------------------------------------------------

    def check_may_send(self) -> None:
        """Raise unless a record may be put into the open transaction now."""
        self.manager.check_may_send()

    def still_open(self) -> Callable[[], None]:
        """A check for what has to wait: it raises unless a record may be put into the transaction that is open *now*."""
        return partial(self._check_still_open, self._number)

    def _check_still_open(self, number: int) -> None:
        self.manager.check_may_send()
        if number != self._number:
            raise TransactionStateError(
                "The transaction that this was meant for ended before it was put in. Wait for everything that sends before "
                "you commit or abort."
            )

    def begin(self) -> None:
        """Open a transaction. Raises where the state does not allow it."""
        self.manager.begin()
        self._number += 1
        self._on_open()

    def commit(self) -> Operation:
        """Commit when everything has arrived; nothing lingers until then. Raises where the state does not allow it."""
        operation = self.manager.commit()
        self._on_shut()
        self._flush_while(operation)
        return operation

    def prepare(self) -> Operation:
        """Take no more, and be prepared when everything has arrived (KIP-939). Raises where the state does not allow it."""
        operation = self.manager.prepare()
        self._on_shut()
        self._flush_while(operation)
        return operation

    def abort(self) -> Operation:
        """Abort; what has not left never will. Raises where the state does not allow it."""
        return self.manager.abort()  # which drops what has not left

    @property
    def takes_records(self) -> bool:
        """Whether records may be put into a transaction now."""
        return self.manager.state is State.IN_TRANSACTION

    @property
    def is_open(self) -> bool:
        """Whether there is a transaction that is to be ended here, and that nobody has ended, or has begun to end."""
        return self.manager.may_end and self.manager.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR)

    @property
    def fatal_error(self) -> KafkaError | None:
        """What ended the transactions of this producer for good; None where nothing has."""
        return self.manager.last_error if self.manager.state is State.FATAL_ERROR else None

    async def end(self) -> None:
        """Abort what is open, or wait for what ends it already, and abort what that leaves. Cancellation: that goes on.

        What nobody else would be told of is logged: a failure that no caller has seen, and an abort that nobody asked for.
        """
        while (offsets := self.manager.offsets_under_way) is not None and not self.manager.may_end:
            await self._wait(offsets, inf)  # whoever ends the transaction would commit it without them
        if self.manager.state is State.INITIALIZING:
            return  # there is nothing that could be lost
        pending, is_told = self.manager.pending, True
        if pending is not None:  # its caller is gone; while nobody has seen its outcome nothing else may be done
            await self._wait(pending, inf)
            is_told = pending.is_acknowledged
            if pending.error is not None and not is_told:
                logger.warning("Nobody has waited to the end for %s(), which failed: %s", pending.name, pending.error)
            pending.acknowledge()
        if pending is not None and not is_told and pending.name == PREPARE and self.manager.prepared is not None:
            # Nobody can decide about what they were never told of, and its coordinator waits for that without end.
            logger.warning(
                "The transaction of transactional_id %r was prepared when nobody waited for that any more: it is aborted.",
                self.manager.transactional_id,
            )
        elif not self.is_open:
            return
        elif pending is None:
            logger.warning(
                "The producer of transactional_id %r is closed while its transaction is open: nothing of it will count. It "
                "is aborted now or, where that takes too long, by the coordinator after transaction_timeout_ms (of "
                "two-phase commits: when a successor is initialized).",
                self.manager.transactional_id,
            )
        with suppress(KafkaError):
            await self.outcome(self.abort(), inf)

    @property
    def objection(self) -> KafkaError | None:
        """Why the transaction must not be committed; None where nothing that was done here is against it."""
        if self.manager.last_error is None and self.manager.offsets_under_way is not None:
            return TransactionAbortable(
                f"It is not known whether the offsets that were sent last are part of the transaction of transactional_id "
                f"{self.manager.transactional_id!r}. Abort it; the same work may succeed in a new one."
            )
        return self.manager.last_error

    def close(self, error: KafkaError) -> None:
        """End everything now; every waiter fails with this error. A commit whose outcome is unknown is logged."""
        self._let_go()
        was_over = self.fatal_error is not None
        self.manager.close(error)
        if not was_over and isinstance(self.manager.last_error, CommitUnknown):
            logger.warning("%s", self.manager.last_error)

    async def outcome(self, operation: Operation, deadline: float) -> None:
        """Wait until an operation is over, and raise its error, which counts as seen then.

        Raises `KafkaTimeoutError` at the deadline (the event loop's time), and where brokers refuse the credentials
        `AuthenticationError`, or `CommitUnknown` if a commit may have been sent. Cancellation, running out of time and
        refused credentials: it goes on, and the same call later waits for the same outcome. But a commit that was not sent
        is taken back where credentials are refused.
        """
        await self._wait(operation, deadline, heeds_refusals=True)
        operation.acknowledge()
        if operation.error is not None:
            error = type(operation.error)(*operation.error.args)  # each call raises its own
            raise error from operation.error.__cause__

    async def _wait(self, operation: Operation, deadline: float, *, heeds_refusals: bool = False) -> None:
        done: asyncio.Future[KafkaError | None] = self._loop.create_future()

        def settle(error: KafkaError | None) -> None:
            if not done.done():
                done.set_result(error)

        operation.when_done(lambda: settle(None))
        timer = None if deadline == inf else self._loop.call_at(deadline, lambda: settle(_late(operation)))
        call = _Call(operation, self._loop.time(), settle)
        if heeds_refusals:
            self._calls[call] = None
        try:
            error = await done
            if error is not None:
                raise error
        finally:
            self._calls.pop(call, None)
            if timer is not None:
                timer.cancel()

    def heed_refusals(self, node_id: int | None = None) -> None:
        """Fail the calls that wait while all brokers, or this one, refuse the credentials.

        While a request is under way nobody knows yet whether it leaves: who carries it calls this after its failure.
        """
        for call in list(self._calls):
            cause = None if self.manager.is_asking else self._refusal(call.since, node_id)
            if cause is not None:
                self._refuse(call, cause)

    def _refuse(self, call: _Call, cause: AuthenticationError) -> None:
        manager, operation = self.manager, call.operation
        if operation is manager.pending:
            manager.retract(_not_sent(operation, cause))
            if self.takes_records:
                self._on_open()
        if not operation.is_done:
            is_commit = operation is manager.pending and manager.state is State.COMMITTING
            call.fail(_goes_on(operation, cause, is_commit=is_commit))

    def _flush_while(self, operation: Operation) -> None:
        accumulator = self._accumulator
        waiter = accumulator.begin_flush(lambda: None, self._loop.time())
        operation.when_done(lambda: accumulator.end_flush(waiter))

    # -- for the accumulator, the sequences and the Sender --------------------------------------------------------------

    def claim(self, partition: TopicPartition) -> None:
        """Take the partition of a record into the transaction. Raises where there is none that could take it."""
        self.manager.add_partition(partition)
        if self._held is not None:
            self._wake_carrier()

    def batch_failed(self, cause: KafkaError) -> None:
        """A batch was given up: what it was part of cannot be committed."""
        self.manager.batch_failed(cause)

    def batch_settled(self) -> None:
        """A batch is no longer in flight; the end of the transaction may wait for that."""
        if self.manager.awaits_batches:
            self.wake()

    def may_drain(self, partition: TopicPartition) -> bool:
        """Whether new batches for this partition may leave."""
        return self._held is None and self.manager.may_drain(partition)

    def hold(self, seconds: float) -> None:
        """Let no new batch leave, for so long at most."""
        self._let_go()
        self._held = self._loop.call_later(seconds, self.release)

    def release(self) -> None:
        """Let them leave again."""
        self._let_go()
        self._accumulator.queues.unblock(self._loop.time())
        self._wake_sender()

    def _let_go(self) -> None:
        if self._held is not None:
            self._held.cancel()
        self._held = None

    def drained(self, partition: TopicPartition) -> None:
        """A new batch for this partition leaves."""
        self.manager.drained()

    def sequences_lost(self, partition: TopicPartition) -> None:
        """What was numbered after a batch that was given up cannot follow."""
        self.manager.sequences_lost(KafkaError(f"A batch of {partition} was given up, and others come after it."))

    @property
    def is_shared(self) -> bool:
        """Whether others may write into the open transaction, too."""
        return self.manager.is_shared

    @property
    def is_failing(self) -> bool:
        """Whether nothing of the open transaction will count."""
        return self.manager.state in _FAILED

    @property
    def highest_produce_version(self) -> int:
        """The highest version of Produce that the transaction may use."""
        return self.manager.highest_produce_version

    # -- what the manager tells -----------------------------------------------------------------------------------------

    def wake(self) -> None:
        """There may be something to ask the coordinator."""
        self._wake_carrier()

    def partitions_added(self, partitions: Collection[TopicPartition]) -> None:
        """Batches for these may be drained now."""
        now = self._loop.time()
        for partition in partitions:
            self._accumulator.queues.place_again(partition, now)
        self._wake_sender()

    def producer_id_changed(self, producer_id: int, epoch: int) -> None:
        """All sequences begin at 0, under this id and epoch."""
        self._sequences.set_producer_id(producer_id, epoch)
        self._accumulator.queues.unblock(self._loop.time())
        self._wake_sender()

    def drop_undrained(self, error: KafkaError) -> None:
        """Batches that never left fail; those that did go on until their fate is known."""
        self._on_shut()
        self._accumulator.outcomes.fail_undrained(error, self._loop.time())

    def fail_all(self, error: KafkaError) -> None:
        """Nothing will be sent any more."""
        self._on_shut()
        self._accumulator.outcomes.fail_all(error, self._loop.time())


def _late(operation: Operation) -> KafkaTimeoutError:
    return KafkaTimeoutError(
        f"{operation.name}() was not over in time, and goes on. Call it again to wait for its outcome."
    )


def _not_sent(operation: Operation, cause: AuthenticationError) -> AuthenticationError:
    what = "" if operation.name == INITIALIZE else " The transaction is not committed, and still open."
    error = AuthenticationError(f"{operation.name}() failed, and may be called again.{what} {cause}")
    error.__cause__ = cause
    return error


def _goes_on(operation: Operation, cause: AuthenticationError, *, is_commit: bool) -> KafkaError:
    kind = CommitUnknown if is_commit else AuthenticationError
    what = "The transaction may be committed or not. " if is_commit else ""
    error = kind(f"{what}{operation.name}() goes on; call it again to wait for its outcome. {cause}")
    error.__cause__ = cause
    return error
