"""Creates the errors of a transaction: their class and their message both say what to do next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aioproducer.core.transactions.error_codes import Action
from aioproducer.errors import (
    CommitFailed,
    CommitUnknown,
    KafkaError,
    ProducerFenced,
    ProducerIdExpired,
    TransactionAbortable,
    TransactionError,
    TransactionFatal,
)

__all__ = ["commit_unknown", "transaction_error", "two_phase_needs"]

#: What is raised after each action.
_ERRORS: Mapping[Action, type[TransactionError]] = {
    Action.ABORTABLE: TransactionAbortable,
    Action.COMMIT_FAILED: CommitFailed,
    Action.BUMP_EPOCH: TransactionAbortable,
    Action.UNINITIALIZED: TransactionFatal,
    Action.INVALID_STATE: TransactionFatal,
    Action.EXPIRED: ProducerIdExpired,
    Action.FATAL: TransactionFatal,
    Action.FENCED: ProducerFenced,
}

#: What the user can do next.
_WAYS_OUT: Mapping[type[TransactionError], str] = {
    TransactionAbortable: "Abort the transaction; the same work may succeed in a new one.",
    CommitFailed: "Abort the transaction, let the consumer rejoin its group, and begin from its committed offsets.",
    ProducerFenced: (
        "This producer id cannot be used again: create a new producer (or initialize a TransactionCoordinatorClient "
        "again), if no other process is meant to use this transactional_id."
    ),
    ProducerIdExpired: (
        "This producer id cannot be used again: create a new producer (or initialize a TransactionCoordinatorClient again)."
    ),
    TransactionFatal: "A retry cannot succeed.",
    CommitUnknown: (
        "Before you repeat the work, check with a consumer that has isolation_level=read_committed whether it was written."
    ),
}

#: For requests before which nothing has begun, so nothing is lost.
_ASK_AGAIN: Final = "Nothing was started: fix the cause, then repeat the call."


def transaction_error(action: Action, what: str, cause: KafkaError) -> TransactionError:
    """Return the error to raise after an action; ``what`` is a sentence about what happened."""
    class_ = _ERRORS[action]
    return _with_cause(class_, what, cause, _ASK_AGAIN if action is Action.UNINITIALIZED else _WAYS_OUT[class_])


def commit_unknown(transactional_id: str, cause: KafkaError) -> TransactionError:
    """Return the error for a commit whose outcome is unknown."""
    what = f"The transaction of transactional_id {transactional_id!r} may or may not be committed: {cause}"
    return _with_cause(CommitUnknown, what, cause, _WAYS_OUT[CommitUnknown])


def two_phase_needs(*, keep_prepared: bool) -> str:
    """Return the advice if a cluster refuses two-phase commits: what it needs for them."""
    needs = (
        "Two-phase commits (KIP-939) need brokers with InitProducerId 6 (Kafka 4.1 and later, with "
        "unstable.api.versions.enable=true) and transaction.two.phase.commit.enable=true"
    )
    if not keep_prepared:
        return needs
    return (
        f"{needs}; no Kafka version up to 4.4 keeps a prepared transaction (KAFKA-20739): without keep_prepared_txn=True, "
        "init_transactions() aborts it"
    )


def _with_cause(class_: type[TransactionError], what: str, cause: KafkaError, way_out: str) -> TransactionError:
    error = class_(f"{what.rstrip('.')}. {way_out}")
    error.__cause__ = cause
    return error
