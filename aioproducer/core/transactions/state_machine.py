"""The state of a transactional producer, the call that is changing it, and the calls that it allows."""

from __future__ import annotations

from collections.abc import Mapping

from aioproducer.core.transactions.operation import Operation
from aioproducer.core.transactions.states import TRANSITIONS, State
from aioproducer.errors import KafkaError, TransactionStateError

__all__ = ["StateMachine"]

_FAILED = frozenset({State.ABORTABLE_ERROR, State.FATAL_ERROR})

#: What each state means for a call that it does not allow.
_STANDS: Mapping[State, str] = {
    State.UNINITIALIZED: "is not initialized; call init_transactions() first",
    State.INITIALIZING: "is being initialized; wait for init_transactions()",
    State.READY: "has no open transaction; begin one first",
    State.IN_TRANSACTION: "has an open transaction; commit or abort it first",
    State.PREPARED_TRANSACTION: "has prepared its transaction, which can only be committed, aborted or completed now",
    State.COMMITTING: "is committing its transaction",
    State.ABORTING: "is aborting its transaction",
    State.ABORTABLE_ERROR: "has to abort its transaction first",
    State.FATAL_ERROR: "cannot run any more transactions; close it",
}


class StateMachine:
    """The state of one producer, and the calls that it allows; a forbidden call raises and changes nothing.

    One call at a time changes the state. Until its caller has seen the outcome, the same call continues it, and every
    other one is refused.
    """

    def __init__(self, transactional_id: str, *, enable_2pc: bool) -> None:
        self.state = State.UNINITIALIZED
        self.last_error: KafkaError | None = None  # why it is in an error state
        self.may_end = True  # False if another process began the transaction
        self._transactional_id = transactional_id
        self._enable_2pc = enable_2pc
        self._operation: Operation | None = None  # the last one that changes the state
        self._has_ended = False  # the transaction has ended as requested; only the next epoch is missing

    def join(self, *, may_end: bool) -> None:
        """Begin inside a transaction that was begun elsewhere."""
        self.state = State.IN_TRANSACTION
        self.may_end = may_end

    # -- the call that changes it -------------------------------------------------------------------------------------

    @property
    def pending(self) -> Operation | None:
        """The call whose outcome no caller has seen yet, if there is one."""
        operation = self._operation
        return None if operation is None or operation.is_acknowledged else operation

    def resumed(self, name: str) -> Operation | None:
        """The pending call, if it has this name: it continues (rule 2 of `manager`)."""
        pending = self.pending
        return pending if pending is not None and pending.name == name else None

    def change(self, name: str, target: State) -> Operation:
        """Go to another state because of this call, which is pending from now on."""
        self._check_pending(name)
        if not (target is State.ABORTING and self.state is State.ABORTABLE_ERROR):
            self._check_error()
        self.enter(target, name)
        return self.start(name)

    def start(self, name: str) -> Operation:
        """Make this call the pending one."""
        operation = self._operation = Operation(name)
        return operation

    def finish(self, error: KafkaError | None = None) -> None:
        """Report the outcome of the pending call. Errors after the end of a transaction do not concern its commit."""
        operation = self._operation
        if operation is not None:
            operation.finish(None if self._has_ended else error)
        self._has_ended = False

    def ended_without_epoch(self) -> None:
        """The transaction ended as requested, but its call is pending until there is a next epoch."""
        self._has_ended = True

    # -- allowed calls -----------------------------------------------------------------------------------------------

    def check(self, name: str, needed: State | None = None) -> None:
        """Raise unless this may be called now, in the ``needed`` state if one is given."""
        self._check_pending(name)
        self._check_error()
        if needed is not None and self.state is not needed:
            raise self._not_now(name)

    def check_may_end(self, name: str) -> None:
        """Raise if another process began the transaction."""
        if not self.may_end:
            raise TransactionStateError(
                f"{name}() is not allowed: this producer only writes into the transaction of transactional_id "
                f"{self._transactional_id!r}, through its handle. The process that began it must end it."
            )

    def check_two_phase(self, call: str) -> None:
        """Raise unless the producer was set up for two-phase commits."""
        if not self._enable_2pc:
            raise TransactionStateError(
                f"{call} needs transaction_two_phase_commit_enable=True, which the producer of transactional_id "
                f"{self._transactional_id!r} does not have."
            )

    def _check_pending(self, name: str) -> None:
        pending = self.pending
        if pending is not None:
            raise TransactionStateError(
                f"{name}() is not allowed: the outcome of {pending.name}() for transactional_id "
                f"{self._transactional_id!r} has not been returned to a caller yet. Call {pending.name}() again to "
                "wait for it."
            )

    def _check_error(self) -> None:
        if self.state in _FAILED:
            assert self.last_error is not None
            error = type(self.last_error)(*self.last_error.args)  # each call raises its own
            error.__cause__ = self.last_error.__cause__
            raise error

    def _not_now(self, name: str) -> TransactionStateError:
        return TransactionStateError(
            f"{name}() is not allowed: the producer of transactional_id {self._transactional_id!r} "
            f"{_STANDS[self.state]}."
        )

    # -- transitions --------------------------------------------------------------------------------------------------------

    def enter(self, target: State, name: str) -> None:
        """A transition by a call; nothing changes if it is not allowed."""
        if target not in TRANSITIONS[self.state]:
            raise self._not_now(name)
        self._set(target)

    def move(self, target: State, error: KafkaError | None = None) -> None:
        """An internal transition, with its error if there is one. Raises `TransactionStateError` if it is not allowed."""
        if target not in TRANSITIONS[self.state]:
            raise TransactionStateError(
                f"A bug in aioproducer: transactional_id {self._transactional_id!r} cannot go from {self.state.name} to "
                f"{target.name}."
            )
        self._set(target, error)

    def take_back(self, target: State) -> None:
        """Undo the start of a call. This is not in the table of transitions by calls: no call can do it."""
        self._set(target)

    def _set(self, target: State, error: KafkaError | None = None) -> None:
        self.state, self.last_error = target, error
