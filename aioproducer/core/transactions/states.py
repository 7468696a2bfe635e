"""The states of a transactional producer, and which of them may follow which."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

__all__ = ["TRANSITIONS", "State"]


class State(Enum):
    """The state of a transactional producer (TransactionManager.State)."""

    UNINITIALIZED = auto()
    INITIALIZING = auto()  # InitProducerId is in flight, for the first time or for the next epoch
    READY = auto()
    IN_TRANSACTION = auto()
    PREPARED_TRANSACTION = (
        auto()
    )  # only committing or aborting is left, and an outer coordinator decides which (KIP-939)
    COMMITTING = auto()
    ABORTING = auto()
    ABORTABLE_ERROR = auto()
    FATAL_ERROR = auto()


def _or_fatal(*states: State) -> frozenset[State]:
    return frozenset({*states, State.FATAL_ERROR})


#: The states that may follow each state. FATAL_ERROR is final.
TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.UNINITIALIZED: _or_fatal(State.INITIALIZING),
    State.INITIALIZING: _or_fatal(State.READY, State.PREPARED_TRANSACTION, State.ABORTABLE_ERROR),
    State.READY: _or_fatal(State.IN_TRANSACTION, State.UNINITIALIZED),
    State.IN_TRANSACTION: _or_fatal(
        State.PREPARED_TRANSACTION, State.COMMITTING, State.ABORTING, State.ABORTABLE_ERROR
    ),
    State.PREPARED_TRANSACTION: _or_fatal(State.COMMITTING, State.ABORTING),
    State.COMMITTING: _or_fatal(State.READY, State.INITIALIZING, State.ABORTABLE_ERROR),
    State.ABORTING: _or_fatal(State.READY, State.INITIALIZING),
    State.ABORTABLE_ERROR: _or_fatal(State.ABORTING, State.ABORTABLE_ERROR, State.UNINITIALIZED),
    State.FATAL_ERROR: _or_fatal(),
}
