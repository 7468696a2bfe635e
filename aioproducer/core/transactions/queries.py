"""Questions to the coordinator of a group or a transactional id that change nothing, and so may be asked at any time."""

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
    "Fate",
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
    """One question, ready to be sent to the coordinator in the versions ``lowest`` to ``highest``.

    ``read`` returns what the response says, or the `BrokerError` that is in it: if that is retriable, the same is to be
    asked again. It raises `ProtocolError` for what no broker could mean.
    """

    about: CoordinatorKey
    message: Request[Any]
    lowest: int
    highest: int
    read: Callable[[Any], T_co | BrokerError]


#: Who may not ask needs one of these rights; what they are about is put in.
_RIGHTS: Mapping[int, str] = {
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "It needs DESCRIBE, which READ implies, on group {!r}.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "It needs DESCRIBE, which WRITE implies, on transactional id {!r}.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "It needs DESCRIBE, which READ and WRITE imply, on topic {!r}.",
}

_ELSEWHERE = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


def query_error(code: int, about: str, message: str | None = None) -> BrokerError:
    """The error for a code, with the right that is missing where it is one; ``about`` is what it is refused for."""
    error = broker_error(code, message)
    right = _RIGHTS.get(code)
    return error if right is None else broker_error(code, f"{error.message} {right.format(about)}")


def is_of_another_broker(error: BrokerError) -> bool:
    """Whether the coordinator has to be looked for again."""
    return error.code in _ELSEWHERE


# -- what is known of a transaction ------------------------------------------------------------------------------------


def described_transaction(
    transactional_id: str, tell: Callable[[DescribedTransaction | None], T]
) -> CoordinatorQuery[T]:
    """What ``tell`` makes of the description (KIP-664); it is given None if the coordinator does not know the id."""
    about = CoordinatorKey(CoordinatorType.TRANSACTION, transactional_id)
    message = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    return CoordinatorQuery(
        about,
        message,
        0,
        0,
        partial(_read_described, transactional_id, tell),
    )


def _read_described(
    transactional_id: str, tell: Callable[[DescribedTransaction | None], T], response: DescribeTransactionsResponse
) -> T | BrokerError:
    told = [each.transactional_id for each in response.transaction_states]
    if told != [transactional_id]:
        raise ProtocolError(f"DescribeTransactions for {transactional_id!r} was answered for {told}.")
    (found,) = response.transaction_states
    if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return tell(None)
    if found.error_code != ErrorCode.NONE:
        return query_error(found.error_code, transactional_id)
    return tell(found)


#: States in which nothing is open: nothing was written, or the transaction has ended.
_NOT_OPEN = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})


def open_transaction(transactional_id: str) -> CoordinatorQuery[bool]:
    """Whether somebody writes in a transaction of this id, or it is being ended; False where the id is unknown."""
    return described_transaction(transactional_id, _is_open)


def _is_open(found: DescribedTransaction | None) -> bool:
    return found is not None and found.transaction_state not in _NOT_OPEN


_BEING_WRITTEN = frozenset({"PrepareCommit", "PrepareAbort"})


def markers_written(transactional_id: str) -> CoordinatorQuery[bool]:
    """Whether the coordinator has written the markers of the last transaction.

    It answers EndTxn as soon as its decision is in its own log. Requests that come before the markers are in the logs of the
    partitions get CONCURRENT_TRANSACTIONS. An answer that does not say so, as of a refusal, counts as yes.
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


class Fate(Enum):
    """What the coordinator knows of the transaction of a handle."""

    EMPTY = auto()  # nothing was ever written into it
    OPEN = auto()
    COMMITTED = auto()
    ABORTED = auto()
    FORGOTTEN = auto()  # others came after it


#: By Kafka's name of the state, for the epoch of the handle.
_FATES: Mapping[str, Fate] = {
    "Empty": Fate.EMPTY,
    "Ongoing": Fate.OPEN,
    "PrepareCommit": Fate.COMMITTED,
    "CompleteCommit": Fate.COMMITTED,
    "PrepareAbort": Fate.ABORTED,
    "PrepareEpochFence": Fate.ABORTED,
    "CompleteAbort": Fate.ABORTED,
}
_OVER = frozenset({Fate.COMMITTED, Fate.ABORTED})


def transaction_fate(handle: TransactionHandle, *, bumps_epoch: bool) -> CoordinatorQuery[Fate]:
    """What became of the transaction of a handle; ``bumps_epoch``: its end gives the next epoch (transaction version 2).

    To be asked where the end was refused: INVALID_TXN_STATE does not tell a transaction that nobody wrote into from one that
    is over, nor in which way it is over.
    """
    return described_transaction(handle.transactional_id, partial(_fate, handle, bumps_epoch=bumps_epoch))


def _fate(handle: TransactionHandle, found: DescribedTransaction | None, *, bumps_epoch: bool) -> Fate:
    if found is None or found.producer_id != handle.producer_id:
        return Fate.FORGOTTEN
    fate = _FATES.get(found.transaction_state, Fate.FORGOTTEN)
    if found.producer_epoch == handle.producer_epoch:
        # Where the end gives the next epoch, what is over under this one was the transaction before.
        return Fate.EMPTY if bumps_epoch and fate in _OVER else fate
    is_next = bumps_epoch and found.producer_epoch == handle.producer_epoch + 1
    return fate if is_next and fate in _OVER else Fate.FORGOTTEN
