"""Connects a producer's transactions to its other parts: which records may be added, and what the decisions mean for them.

The `TransactionManager` decides. This carries its decisions to the accumulator, the sequences and the Sender, and reports
the outcomes of batches to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from math import inf
from typing import NamedTuple, TypeAlias

from aioproducer.accumulator.accumulator import RecordAccumulator
from aioproducer.core.failed_attempt import FailedAttempt
from aioproducer.core.sequences import Sequences
from aioproducer.core.transactions.manager import ABORT, INITIALIZE, PREPARE, TransactionManager
from aioproducer.core.transactions.operation import Operation
from aioproducer.core.transactions.prepared_transaction import PreparedTransactionState
from aioproducer.core.transactions.states import State
from aioproducer.errors import (
    AuthenticationError,
    CommitUnknown,
    KafkaError,
    KafkaTimeoutError,
    TransactionAbortable,
    TransactionStateError,
)
from aioproducer.runtime.detached import detached
from aioproducer.runtime.log import ClientLog
from aioproducer.types import TopicPartition, TransactionOutcome

__all__ = ["TransactionLink"]

#: Called once with the outcome of a transaction, and the error that it failed with or was aborted because of.
EndOfTransaction: TypeAlias = Callable[[TransactionOutcome, KafkaError | None], object]

#: Why calls that began to wait at a time cannot proceed, because of the cluster or of one broker; None if they can.
Refusal: TypeAlias = Callable[[float, int | None], AuthenticationError | None]

_FAILED = frozenset({State.ABORTABLE_ERROR, State.ABORTING, State.FATAL_ERROR})


class _Call(NamedTuple):
    """A call that waits for an operation."""

    operation: Operation
    since: float  # the event loop's time
    fail: Callable[[KafkaError], None]


class TransactionLink:
    """The transactions of one running producer.

    ``wake_sender`` wakes it, ``on_open`` is called when records may be added without a check for each one, ``on_shut`` when
    that ends.
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
        log: ClientLog,
        wake_sender: Callable[[], object],
        on_open: Callable[[], object],
        on_shut: Callable[[], object],
    ) -> None:
        self._loop = loop
        self._log = log
        self._wake_sender = wake_sender
        self._on_open = on_open
        self._on_shut = on_shut
        self._number = 0  # of the latest transaction
        self._report_end: EndOfTransaction | None = None  # until the end of the open one is reported
        self._calls: dict[_Call, None] = {}  # waiters that fail if credentials are refused
        self._held: asyncio.TimerHandle | None = None  # while the markers of the last transaction are being written

    def bind(
        self,
        manager: TransactionManager,
        accumulator: RecordAccumulator,
        sequences: Sequences,
        *,
        wake_carrier: Callable[[], object],
        refusal: Refusal,
        last_failure: Callable[[], FailedAttempt | None],
    ) -> None:
        """Connect these parts.

        ``wake_carrier`` is called whenever there may be something to request. ``last_failure`` returns the last failure of
        what the end of the transaction waits for: of a request to the coordinator, of a batch, or of a connection.
        """
        self._refusal, self._last_failure = refusal, last_failure
        self.manager, self._accumulator, self._sequences = manager, accumulator, sequences
        self._wake_carrier = wake_carrier

    # -- for the producer ---------------------------------------------------------------------------------------------

    def check_may_send(self) -> None:
        """Raise unless a record may be added to the open transaction now."""
        self.manager.check_may_send()

    def still_open(self) -> Callable[[], None]:
        """A check for a record that has to wait: it raises unless the transaction that is open *now* still accepts it."""
        return partial(self._check_still_open, self._number)

    def _check_still_open(self, number: int) -> None:
        self.manager.check_may_send()
        if number != self._number:
            raise TransactionStateError(
                "The transaction ended before this record was added to it. Wait for all sends before "
                "you commit or abort."
            )

    def begin(self) -> None:
        """Open a transaction. Raises if the state does not allow it."""
        self.manager.begin()
        self._number += 1
        self._on_open()

    def report_end_to(self, report: EndOfTransaction | None) -> None:
        """Call ``report`` with the outcome of the open transaction once it has ended."""
        self._report_end = report

    def commit(self) -> Operation:
        """Commit when everything is acknowledged; nothing lingers until then. Raises if the state does not allow it."""
        operation = self.manager.commit()
        self._on_shut()
        self._flush_while(operation)
        self._watch(operation, "committed")
        return operation

    def prepare(self) -> Operation:
        """Accept no more, and prepare when everything is acknowledged (KIP-939). Raises if the state does not allow it."""
        operation = self.manager.prepare()
        self._on_shut()
        self._flush_while(operation)
        return operation

    def abort(self) -> Operation:
        """Abort; unsent records are never sent. Raises if the state does not allow it."""
        reason = self.manager.last_error
        operation = self.manager.abort()  # this drops unsent records
        self._watch(operation, "aborted", reason)
        return operation

    def complete(self, prepared: PreparedTransactionState) -> Operation:
        """Commit the prepared transaction if it is this one, else abort it. Raises if the state does not allow it."""
        operation = self.manager.complete(prepared)
        self._watch(operation, "aborted" if operation.name == ABORT else "committed")
        return operation

    def _watch(self, operation: Operation, outcome: TransactionOutcome, reason: KafkaError | None = None) -> None:
        """Report the end of the transaction when the operation ends it; ``reason`` is why it is aborted."""
        if self._report_end is not None:
            operation.when_done(lambda: self._ended(operation, outcome, reason))

    def _ended(self, operation: Operation, outcome: TransactionOutcome, reason: KafkaError | None) -> None:
        if operation.error is None:
            self._report(outcome, reason)
        elif self.fatal_error is not None:  # otherwise the transaction is still open
            self._report_failure(operation.error)

    def _report_failure(self, error: KafkaError | None) -> None:
        self._report("unknown" if isinstance(error, CommitUnknown) else "aborted", error)

    def _report(self, outcome: TransactionOutcome, error: KafkaError | None) -> None:
        report, self._report_end = self._report_end, None
        if report is not None:
            report(outcome, error)

    @property
    def takes_records(self) -> bool:
        """Whether records may be added to a transaction now."""
        return self.manager.state is State.IN_TRANSACTION

    @property
    def is_open(self) -> bool:
        """Whether there is a transaction to end here, which is not ended or being ended yet."""
        return self.manager.may_end and self.manager.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR)

    @property
    def fatal_error(self) -> KafkaError | None:
        """The error that ended this producer's transactions for good; None if they continue."""
        return self.manager.last_error if self.manager.state is State.FATAL_ERROR else None

    async def end(self) -> None:
        """Abort the open transaction, or wait for its current end and abort what remains. Cancellation: that continues.

        Outcomes that no caller sees are logged: an unseen failure, and an abort that was not requested.
        """
        while (offsets := self.manager.pending_offsets) is not None and not self.manager.may_end:
            await self._wait(offsets, inf)  # otherwise the transaction could be committed without them
        if self.manager.state is State.INITIALIZING:
            return  # nothing could be lost
        pending, is_seen = self.manager.pending, True
        if pending is not None:  # its caller is gone; nothing else may be done before its outcome is seen
            await self._wait(pending, inf)
            is_seen = pending.is_acknowledged
            if pending.error is not None and not is_seen:
                self._log.warning("%s() failed, and its caller did not wait for it: %s", pending.name, pending.error)
            pending.acknowledge()
        if pending is not None and not is_seen and pending.name == PREPARE and self.manager.prepared is not None:
            # Its caller never got the state to decide about, and the coordinator would wait for the decision forever.
            self._log.warning(
                "The transaction of transactional_id %r was prepared after its caller stopped waiting: it is aborted.",
                self.manager.transactional_id,
            )
        elif not self.is_open:
            return
        elif pending is None:
            self._log.warning(
                "The producer of transactional_id %r is closed while its transaction is open: it will not be committed. It "
                "is aborted now or, if that takes too long, by the coordinator after transaction_timeout_ms (with "
                "two-phase commit: when another producer with this id is initialized).",
                self.manager.transactional_id,
            )
        with suppress(KafkaError):
            await self.outcome(self.abort(), inf)

    @property
    def objection(self) -> KafkaError | None:
        """Why the transaction must not be committed; None if this producer has no objection."""
        if self.manager.last_error is None and self.manager.pending_offsets is not None:
            return TransactionAbortable(
                f"It is not known whether the last offsets that were sent are part of the transaction of transactional_id "
                f"{self.manager.transactional_id!r}. Abort it; the same work may succeed in a new one."
            )
        return self.manager.last_error

    def close(self, error: KafkaError) -> None:
        """End everything now; every waiter fails with this error. A commit whose outcome is unknown is logged."""
        self._let_go()
        was_over, is_prepared = self.fatal_error is not None, self.manager.state is State.PREPARED_TRANSACTION
        self.manager.close(error)
        if is_prepared:  # it outlives this producer
            self._report("prepared", None)
        else:
            self._report_failure(self.manager.last_error)
        if not was_over and isinstance(self.manager.last_error, CommitUnknown):
            self._log.warning("%s", self.manager.last_error)

    async def outcome(self, operation: Operation, deadline: float) -> None:
        """Wait until an operation is over, and raise its error, which counts as seen then.

        Raises `KafkaTimeoutError` at the deadline (the event loop's time) and, if brokers refuse the credentials,
        `AuthenticationError`, or `CommitUnknown` if a commit may have been sent. Cancellation, timeout and refused
        credentials: it continues, and the same call later waits for the same outcome. But a commit that was not sent is
        withdrawn if credentials are refused.
        """
        await self._wait(operation, deadline, ends_if_refused=True)
        operation.acknowledge()
        if operation.error is not None:
            error = type(operation.error)(*operation.error.args)  # each call raises its own exception
            raise error from operation.error.__cause__

    async def _wait(self, operation: Operation, deadline: float, *, ends_if_refused: bool = False) -> None:
        done: asyncio.Future[KafkaError | None] = self._loop.create_future()

        def settle(error: KafkaError | None) -> None:
            if not done.done():
                done.set_result(error)

        operation.when_done(lambda: settle(None))
        timer = None if deadline == inf else self._loop.call_at(deadline, lambda: settle(self._late(operation)))
        call = _Call(operation, self._loop.time(), settle)
        if ends_if_refused:
            self._calls[call] = None
        try:
            error = await done
            if error is not None:
                raise error
        finally:
            self._calls.pop(call, None)
            if timer is not None:
                timer.cancel()

    def _late(self, operation: Operation) -> KafkaTimeoutError:
        now, last = self._loop.time(), self._last_failure()
        error = KafkaTimeoutError(
            f"{operation.name}() timed out, but continues in the background. Call it again to wait for its outcome."
            f"{'' if last is None else ' ' + last.sentence(now)}"
        )
        if last is not None:
            error.last_error, error.__cause__ = last.seen_at(now), detached(last.error)
        return error

    def fail_if_refused(self, node_id: int | None = None) -> None:
        """Fail the calls that wait while all brokers, or this one, refuse the credentials.

        While a request is pending it is unknown whether it is sent: the carrier calls this after its failure.
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
        """Add a record's partition to the transaction. Raises if no transaction can take it."""
        self.manager.add_partition(partition)
        if self._held is not None:
            self._wake_carrier()

    def batch_failed(self, cause: KafkaError) -> None:
        """A batch was given up: its transaction cannot be committed."""
        self.manager.batch_failed(cause)

    def batch_settled(self) -> None:
        """A batch is no longer in flight; the end of the transaction may wait for that."""
        if self.manager.awaits_batches:
            self.wake()

    def may_drain(self, partition: TopicPartition) -> bool:
        """Whether new batches for this partition may be sent."""
        return self._held is None and self.manager.may_drain(partition)

    def hold(self, seconds: float) -> None:
        """Send no new batch for at most this time."""
        self._let_go()
        self._held = self._loop.call_later(seconds, self.release)

    def release(self) -> None:
        """Allow new batches again."""
        self._let_go()
        self._accumulator.queues.unblock(self._loop.time())
        self._wake_sender()

    def _let_go(self) -> None:
        if self._held is not None:
            self._held.cancel()
        self._held = None

    def drained(self, partition: TopicPartition) -> None:
        """A new batch for this partition is being sent."""
        self.manager.drained()

    def sequences_lost(self, partition: TopicPartition) -> None:
        """Batches that were numbered after a failed batch cannot be sent."""
        self.manager.sequences_lost(KafkaError(f"A batch of {partition} was given up, and later ones depend on it."))

    @property
    def is_shared(self) -> bool:
        """Whether other writers may share the open transaction."""
        return self.manager.is_shared

    @property
    def is_failing(self) -> bool:
        """Whether the open transaction will not be committed."""
        return self.manager.state in _FAILED

    @property
    def highest_produce_version(self) -> int:
        """The highest version of Produce that the transaction may use."""
        return self.manager.highest_produce_version

    # -- callbacks of the manager ----------------------------------------------------------------------------------------

    def wake(self) -> None:
        """There may be something to request from the coordinator."""
        self._wake_carrier()

    def partitions_added(self, partitions: Collection[TopicPartition]) -> None:
        """Batches for these may be drained now."""
        now = self._loop.time()
        for partition in partitions:
            self._accumulator.queues.place_again(partition, now)
        self._wake_sender()

    def producer_id_changed(self, producer_id: int, epoch: int) -> None:
        """All sequences restart at 0, under this id and epoch."""
        self._sequences.set_producer_id(producer_id, epoch)
        self._accumulator.queues.unblock(self._loop.time())
        self._wake_sender()

    def drop_undrained(self, error: KafkaError) -> None:
        """Unsent batches fail; sent ones continue until their outcome is known."""
        self._on_shut()
        self._accumulator.outcomes.fail_undrained(error, self._loop.time())

    def fail_all(self, error: KafkaError) -> None:
        """Nothing will be sent any more."""
        self._on_shut()
        self._accumulator.outcomes.fail_all(error, self._loop.time())


def _not_sent(operation: Operation, cause: AuthenticationError) -> AuthenticationError:
    what = "" if operation.name == INITIALIZE else " The transaction is not committed and is still open."
    error = AuthenticationError(f"{operation.name}() failed and may be called again.{what} {cause}")
    error.__cause__ = cause
    return error


def _goes_on(operation: Operation, cause: AuthenticationError, *, is_commit: bool) -> KafkaError:
    kind = CommitUnknown if is_commit else AuthenticationError
    what = "The transaction may or may not be committed. " if is_commit else ""
    error = kind(
        f"{what}{operation.name}() continues in the background; call it again to wait for its outcome. {cause}"
    )
    error.__cause__ = cause
    return error
