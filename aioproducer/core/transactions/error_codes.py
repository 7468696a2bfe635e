"""The meaning of error codes in the answers to a transaction's requests: one table per request (as in Java's handlers).

The `TransactionManager` decides what is not in the tables: whether the coordinator can bump an epoch, whether an earlier
attempt at a commit may have succeeded, and what a shared handle changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum, auto

from aioproducer.core.transactions.requests import Rpc
from aioproducer.protocol.error_codes import ErrorCode

__all__ = ["Action", "action_for", "action_for_batch", "decisive_code", "may_be_done"]


class Action(IntEnum):
    """The action after an answer. Of several codes in one answer the highest action is taken."""

    DONE = auto()
    RETRY = auto()
    RETRY_SOON = auto()  # the first partitions of a transaction, while the markers of the one before are being written
    FIND_COORDINATOR = auto()  # and then repeat the request
    ABORTABLE = auto()
    COMMIT_FAILED = auto()  # abortable; the consumer group has moved on
    BUMP_EPOCH = auto()  # abortable if the epoch can be bumped afterwards, else fatal
    UNINITIALIZED = auto()  # as if it had never been requested: it may be allowed later
    INVALID_STATE = auto()  # fatal, unless another writer can have ended the transaction
    EXPIRED = auto()
    FATAL = auto()
    FENCED = auto()


#: Codes that mean the same to every request to the transaction coordinator.
_TRANSACTION_COORDINATOR: Mapping[int, Action] = {
    ErrorCode.NONE: Action.DONE,
    ErrorCode.NOT_COORDINATOR: Action.FIND_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Action.FIND_COORDINATOR,
    ErrorCode.INVALID_PRODUCER_EPOCH: Action.FENCED,  # how coordinators before Kafka 2.7 say PRODUCER_FENCED
    ErrorCode.PRODUCER_FENCED: Action.FENCED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Action.FATAL,
    ErrorCode.TRANSACTION_ABORTABLE: Action.ABORTABLE,
}

#: The codes for an open transaction.
_OPEN_TRANSACTION: Mapping[int, Action] = {
    **_TRANSACTION_COORDINATOR,
    ErrorCode.UNKNOWN_PRODUCER_ID: Action.BUMP_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: Action.EXPIRED,
    ErrorCode.INVALID_TXN_STATE: Action.INVALID_STATE,
}

_TABLES: Mapping[Rpc, Mapping[int, Action]] = {
    Rpc.FIND_COORDINATOR: {
        ErrorCode.NONE: Action.DONE,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Action.UNINITIALIZED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: Action.ABORTABLE,
        ErrorCode.TRANSACTION_ABORTABLE: Action.ABORTABLE,
    },
    Rpc.INIT_PRODUCER_ID: {
        **_TRANSACTION_COORDINATOR,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Action.UNINITIALIZED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Action.UNINITIALIZED,
        ErrorCode.UNSUPPORTED_VERSION: Action.UNINITIALIZED,  # of keep_prepared_txn; it may be repeated without that
        ErrorCode.TRANSACTION_ABORTABLE: Action.UNINITIALIZED,  # there is no transaction yet that could be aborted
    },
    Rpc.ADD_PARTITIONS_TO_TXN: {
        **_OPEN_TRANSACTION,
        ErrorCode.CONCURRENT_TRANSACTIONS: Action.RETRY_SOON,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: Action.ABORTABLE,
        ErrorCode.OPERATION_NOT_ATTEMPTED: Action.ABORTABLE,
    },
    Rpc.ADD_OFFSETS_TO_TXN: {
        **_OPEN_TRANSACTION,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: Action.ABORTABLE,
    },
    Rpc.TXN_OFFSET_COMMIT: {
        **_TRANSACTION_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT: Action.FIND_COORDINATOR,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: Action.ABORTABLE,
        ErrorCode.FENCED_INSTANCE_ID: Action.ABORTABLE,
        ErrorCode.UNKNOWN_MEMBER_ID: Action.COMMIT_FAILED,
        ErrorCode.ILLEGAL_GENERATION: Action.COMMIT_FAILED,
        ErrorCode.STALE_MEMBER_EPOCH: Action.COMMIT_FAILED,
        ErrorCode.GROUP_ID_NOT_FOUND: Action.COMMIT_FAILED,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: Action.FATAL,
    },
    Rpc.COMMIT: _OPEN_TRANSACTION,
    Rpc.ABORT: {
        **_OPEN_TRANSACTION,
        ErrorCode.TRANSACTION_ABORTABLE: Action.FATAL,  # it is already done
    },
}

#: The action for a code that is in no table and not retriable; FATAL if the request is not named here.
_ANYTHING_ELSE: Mapping[Rpc, Action] = {Rpc.ADD_PARTITIONS_TO_TXN: Action.ABORTABLE}

#: Errors of a coordinator that could not finish what it had begun (TransactionStateManager.appendTransactionToLog).
_AMBIGUOUS = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT})
#: Errors of a coordinator that has not begun.
_NOT_TRIED = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})

#: A batch of a transaction that failed fatally (TransactionManager.maybeTransitionToErrorState): any other is abortable.
_BATCH: Mapping[int, Action] = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Action.FATAL,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Action.FATAL,
    ErrorCode.UNSUPPORTED_VERSION: Action.FATAL,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: Action.EXPIRED,
    ErrorCode.PRODUCER_FENCED: Action.FENCED,
}


def action_for(rpc: Rpc, code: int) -> Action:
    """The action after an error code in the answer to a request."""
    action = _TABLES[rpc].get(code)
    if action is not None:
        return action
    try:
        if ErrorCode(code).retriable:
            return Action.RETRY
    except ValueError:  # a newer broker's code: nothing is known about it
        pass
    return _ANYTHING_ELSE.get(rpc, Action.FATAL)


def may_be_done(rpc: Rpc, code: int) -> bool:
    """Whether the coordinator may have done what it answered with this error, or may do it yet.

    It writes into its log first, and then waits for its followers or loses its leadership: for that it uses codes that can
    also mean that nothing was written. Nothing is known about a code that is not in the table.
    """
    return code in _AMBIGUOUS or (code not in _TABLES[rpc] and code not in _NOT_TRIED)


def action_for_batch(code: int) -> Action:
    """The action after one of the transaction's batches was refused with this code, and will not be sent again."""
    return _BATCH.get(code, Action.ABORTABLE)


def decisive_code(rpc: Rpc, codes: Iterable[int]) -> int:
    """The decisive one of the codes that an answer has for its partitions.

    OPERATION_NOT_ATTEMPTED only says that another partition was the reason, so it decides only if there is no other code.
    """
    distinct = set(codes)
    reasons = distinct - {ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED}
    return max(reasons or distinct, key=lambda code: (action_for(rpc, code), code))
