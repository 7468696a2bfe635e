"""The outcome of a transaction: prepared, ended, to be aborted, or fatal (rules 2, 3 and 6 of `manager`)."""

from __future__ import annotations

from aioproducer.core.transactions.contents import TransactionContents
from aioproducer.core.transactions.epochs import Epochs
from aioproducer.core.transactions.error_codes import Action
from aioproducer.core.transactions.failures import commit_unknown, transaction_error
from aioproducer.core.transactions.identities import ProducerIdAndEpoch
from aioproducer.core.transactions.in_flight import RequestInFlight
from aioproducer.core.transactions.listener import TransactionListener
from aioproducer.core.transactions.prepared_transaction import PreparedTransactionState
from aioproducer.core.transactions.state_machine import StateMachine
from aioproducer.core.transactions.states import State
from aioproducer.errors import KafkaError, TransactionAborted, TransactionFatal, TransactionStateError

__all__ = ["CommitAndAbort"]

_GIVEN_UP = frozenset({State.ABORTABLE_ERROR, State.ABORTING})
_OPEN = _GIVEN_UP | {State.IN_TRANSACTION, State.COMMITTING, State.PREPARED_TRANSACTION}
_ABORTABLE = frozenset({Action.ABORTABLE, Action.COMMIT_FAILED, Action.BUMP_EPOCH})


class CommitAndAbort:
    """Decides how an end or an error changes the state, the contents of the transaction, and the next epoch."""

    def __init__(
        self,
        transactional_id: str,
        machine: StateMachine,
        contents: TransactionContents,
        epochs: Epochs,
        in_flight: RequestInFlight,
        listener: TransactionListener,
    ) -> None:
        self.prepared: PreparedTransactionState | None = None  # its identity for the outer coordinator
        self.abort_refused: KafkaError | None = None  # why there was nothing to abort
        self._transactional_id = transactional_id
        self._machine = machine
        self._contents = contents
        self._epochs = epochs
        self._in_flight = in_flight
        self._listener = listener

    # -- as requested ---------------------------------------------------------------------------------------------------

    def initialized(self) -> None:
        """There is a producer id, and no transaction."""
        self._move(State.READY)
        self._machine.finish()

    def is_prepared(self, producer: ProducerIdAndEpoch) -> None:
        """Everything is acknowledged, and an outer coordinator decides the outcome."""
        self._contents.is_preparing = False
        self.prepared = PreparedTransactionState(*producer)
        self._move(State.PREPARED_TRANSACTION)
        self._machine.finish()

    def ended(self) -> None:
        """The transaction has ended as requested."""
        self._contents.reset()
        self.prepared = None
        self._in_flight.succeeded()
        if self._epochs.is_of_handle:
            self._move(State.READY)
            self._forget_producer()
            self._machine.finish()
        elif self._epochs.next_needs_bump():
            self._machine.ended_without_epoch()
            self._move(State.INITIALIZING)
        else:
            self._move(State.READY)
            self._machine.finish()

    def ended_before(self, error: KafkaError) -> None:
        """An abort was refused with this, because there is nothing left to abort; the next epoch makes sure of it."""
        self.abort_refused = error
        self._epochs.require_bump()
        self.ended()

    def give_up(self) -> None:
        """The user aborts the transaction."""
        error = TransactionAborted(f"The transaction of transactional_id {self._transactional_id!r} was aborted.")
        self._contents.give_up(error)
        self._listener.drop_undrained(error)

    def retract(self, error: KafkaError) -> None:
        """Fail the pending call with this error if nothing of it can have been done."""
        if self._machine.state is State.INITIALIZING:
            self._uninitialize(error)
        elif self._machine.state is State.COMMITTING and not self._commit_may_succeed:
            self._machine.take_back(State.IN_TRANSACTION if self.prepared is None else State.PREPARED_TRANSACTION)
            self._in_flight.succeeded()
            self._machine.finish(error)

    # -- by an error ----------------------------------------------------------------------------------------------------

    def do(self, action: Action, what: str, cause: KafkaError) -> None:
        """Go into the state that follows from an error; ``what`` says what happened."""
        if action is Action.BUMP_EPOCH and not (self._epochs.is_bump_possible or self._epochs.is_v2):
            action = Action.FATAL
        if action is Action.UNINITIALIZED and self._machine.state is not State.INITIALIZING:
            action = Action.FATAL
        error = transaction_error(action, what, cause)
        if action in _ABORTABLE:
            self.abortable(error)
        elif action is Action.UNINITIALIZED:
            self._uninitialize(error)
        else:
            self.fatal(error)

    def abortable(self, error: KafkaError) -> None:
        """The transaction can no longer be committed; the user has to abort it."""
        state = self._machine.state
        if state is State.INITIALIZING:
            return self._uninitialize(error)
        if state not in _OPEN:
            return None  # it is not about this transaction
        if state is State.PREPARED_TRANSACTION or self._commit_may_succeed:
            return self.fatal(error)
        self._epochs.prepare_for_abort()
        if state in _GIVEN_UP:
            return None  # the first error is the reason
        self._move(State.ABORTABLE_ERROR, error)
        self._machine.finish(error)
        self._contents.give_up(error)
        return self._listener.drop_undrained(error)

    def fatal(self, error: KafkaError) -> None:
        """End all transactions. If the outcome of a commit is not known, that is the error (rule 2)."""
        if self._machine.state is State.FATAL_ERROR:
            return
        if self._commit_may_succeed:
            error = commit_unknown(self._transactional_id, error)
        self._machine.move(State.FATAL_ERROR, error)
        self._in_flight.give_up()
        self._machine.finish(error)
        self._contents.fail_offsets(error)
        self._listener.fail_all(error)

    def _uninitialize(self, error: KafkaError) -> None:
        """There is no producer id, and it may be requested again."""
        if self._machine.state is not State.INITIALIZING:
            return self.fatal(error)
        self._move(State.ABORTABLE_ERROR)
        self._forget_producer()
        return self._machine.finish(error)

    def _forget_producer(self) -> None:
        self._move(State.UNINITIALIZED)
        self._epochs.forget()

    @property
    def _commit_may_succeed(self) -> bool:
        """Whether a commit was sent, and not refused for certain."""
        is_sent = self._in_flight.is_commit
        return self._machine.state is State.COMMITTING and (is_sent or self._contents.is_commit_in_doubt)

    def _move(self, target: State, error: KafkaError | None = None) -> None:
        """After a transition that is not allowed nothing can be relied on (KAFKA-14831)."""
        try:
            self._machine.move(target, error)
        except TransactionStateError as bug:
            self.fatal(TransactionFatal(str(bug)))
            raise
