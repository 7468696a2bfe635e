"""Queries to the coordinator of a group or a transactional id, which change nothing and may be sent at any time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Any, Generic, TypeVar

from aioproducer.core.transactions.handle import TransactionHandle
from aioproducer.core.transactions.identities import CoordinatorKey, CoordinatorType
from aioproducer.errors import BrokerError, ProtocolError
from aioproducer.protocol.error_codes import ErrorCode, broker_error
from aioproducer.protocol.message import Request
from aioproducer.protocol.messages import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)

__all__ = [
    "CoordinatorQuery",
    "TransactionFate",
    "described_transaction",
    "is_of_another_broker",
    "markers_written",
    "open_transaction",
    "query_error",
    "transaction_fate",
]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True, eq=False)
class CoordinatorQuery(Generic[T_co]):
    """One query, ready to be sent to the coordinator in the versions ``lowest`` to ``highest``.

    ``read`` returns the result in the response, or its `BrokerError`: if that is retriable, repeat the query. It raises
    `ProtocolError` for an impossible response.
    """

    about: CoordinatorKey
    message: Request[Any]
    lowest: int
    highest: int
    read: Callable[[Any], T_co | BrokerError]


#: The right that is missing if a query is not allowed; the resource is inserted.
_RIGHTS: Mapping[int, str] = {
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "It needs DESCRIBE, which READ implies, on group {!r}.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "It needs DESCRIBE, which WRITE implies, on transactional id {!r}.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "It needs DESCRIBE, which READ and WRITE imply, on topic {!r}.",
}

_ELSEWHERE = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


def query_error(code: int, about: str, message: str | None = None) -> BrokerError:
    """The error for a code, with the missing right if there is one; ``about`` is the resource."""
    error = broker_error(code, message)
    right = _RIGHTS.get(code)
    return error if right is None else broker_error(code, f"{error.message} {right.format(about)}")


def is_of_another_broker(error: BrokerError) -> bool:
    """Whether the coordinator must be looked up again."""
    return error.code in _ELSEWHERE


# -- the state of a transaction ----------------------------------------------------------------------------------------


def described_transaction(
    transactional_id: str, read: Callable[[DescribedTransaction | None], T]
) -> CoordinatorQuery[T]:
    """The result of ``read(description)`` (KIP-664); it gets None if the coordinator does not know the id."""
    about = CoordinatorKey(CoordinatorType.TRANSACTION, transactional_id)
    message = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    return CoordinatorQuery(
        about,
        message,
        0,
        0,
        partial(_read_described, transactional_id, read),
    )


def _read_described(
    transactional_id: str, read: Callable[[DescribedTransaction | None], T], response: DescribeTransactionsResponse
) -> T | BrokerError:
    ids = [each.transactional_id for each in response.transaction_states]
    if ids != [transactional_id]:
        raise ProtocolError(f"DescribeTransactions for {transactional_id!r} was answered for {ids}.")
    (found,) = response.transaction_states
    if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return read(None)
    if found.error_code != ErrorCode.NONE:
        return query_error(found.error_code, transactional_id)
    return read(found)


#: States in which nothing is open: nothing was written, or the transaction has ended.
_NOT_OPEN = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})


def open_transaction(transactional_id: str) -> CoordinatorQuery[bool]:
    """Whether a transaction of this id is open or being ended; False if the id is unknown."""
    return described_transaction(transactional_id, _is_open)


def _is_open(found: DescribedTransaction | None) -> bool:
    return found is not None and found.transaction_state not in _NOT_OPEN


_BEING_WRITTEN = frozenset({"PrepareCommit", "PrepareAbort"})


def markers_written(transactional_id: str) -> CoordinatorQuery[bool]:
    """Whether the coordinator has written the markers of the last transaction.

    It answers EndTxn as soon as its decision is in its own log. Requests before the markers are in the partitions' logs get
    CONCURRENT_TRANSACTIONS. An answer without this information, such as a refusal, counts as yes.
    """
    return CoordinatorQuery(
        CoordinatorKey(CoordinatorType.TRANSACTION, transactional_id),
        DescribeTransactionsRequest(transactional_ids=[transactional_id]),
        0,
        0,
        _read_markers,
    )


def _read_markers(response: DescribeTransactionsResponse) -> bool:
    return all(each.transaction_state not in _BEING_WRITTEN for each in response.transaction_states)


class TransactionFate(Enum):
    """The coordinator's knowledge of a handle's transaction."""

    EMPTY = auto()  # nothing was ever written into it
    OPEN = auto()
    COMMITTED = auto()
    ABORTED = auto()
    FORGOTTEN = auto()  # newer transactions followed


#: By Kafka's name of the state, for the epoch of the handle.
_FATES: Mapping[str, TransactionFate] = {
    "Empty": TransactionFate.EMPTY,
    "Ongoing": TransactionFate.OPEN,
    "PrepareCommit": TransactionFate.COMMITTED,
    "CompleteCommit": TransactionFate.COMMITTED,
    "PrepareAbort": TransactionFate.ABORTED,
    "PrepareEpochFence": TransactionFate.ABORTED,
    "CompleteAbort": TransactionFate.ABORTED,
}
_OVER = frozenset({TransactionFate.COMMITTED, TransactionFate.ABORTED})


def transaction_fate(handle: TransactionHandle, *, bumps_epoch: bool) -> CoordinatorQuery[TransactionFate]:
    """The outcome of a handle's transaction; ``bumps_epoch``: its end starts the next epoch (transaction version 2).

    Query it after the end was refused: INVALID_TXN_STATE does not distinguish an empty transaction from one that has ended,
    nor how it ended.
    """
    return described_transaction(handle.transactional_id, partial(_fate, handle, bumps_epoch=bumps_epoch))


def _fate(handle: TransactionHandle, found: DescribedTransaction | None, *, bumps_epoch: bool) -> TransactionFate:
    if found is None or found.producer_id != handle.producer_id:
        return TransactionFate.FORGOTTEN
    fate = _FATES.get(found.transaction_state, TransactionFate.FORGOTTEN)
    if found.producer_epoch == handle.producer_epoch:
        # If the end starts the next epoch, an ended transaction under this epoch was the previous one.
        return TransactionFate.EMPTY if bumps_epoch and fate in _OVER else fate
    is_next = bumps_epoch and found.producer_epoch == handle.producer_epoch + 1
    return fate if is_next and fate in _OVER else TransactionFate.FORGOTTEN
