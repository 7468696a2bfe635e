"""Asks what became of the transaction of a handle (DescribeTransactions, KIP-664) where the end of it was refused.

INVALID_TXN_STATE says that there is nothing to end in that way. That alone does not tell a transaction that nobody wrote
into from one that is over, nor in which way it is over.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from functools import partial

from aioproducer.core.coordinator_query import CoordinatorQuery, query_error
from aioproducer.core.transaction_handle import TransactionHandle
from aioproducer.core.transaction_requests import CoordinatorKey, CoordinatorType
from aioproducer.errors import ProtocolError
from aioproducer.protocol.error_codes import ErrorCode
from aioproducer.protocol.messages import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)

__all__ = ["Fate", "transaction_fate"]


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
    """What became of the transaction; ``bumps_epoch``: its end gives the next epoch (transaction version 2)."""
    about = CoordinatorKey(CoordinatorType.TRANSACTION, handle.transactional_id)
    message = DescribeTransactionsRequest(transactional_ids=[handle.transactional_id])
    return CoordinatorQuery(
        about, message, 0, 0, partial(_check, handle), partial(_read, handle, bumps_epoch=bumps_epoch)
    )


def _check(handle: TransactionHandle, response: DescribeTransactionsResponse) -> None:
    told = [each.transactional_id for each in response.transaction_states]
    if told != [handle.transactional_id]:
        raise ProtocolError(f"DescribeTransactions for {handle.transactional_id!r} was answered for {told}.")


def _read(handle: TransactionHandle, response: DescribeTransactionsResponse, *, bumps_epoch: bool) -> Fate:
    (found,) = response.transaction_states
    if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return Fate.FORGOTTEN
    if found.error_code != ErrorCode.NONE:
        raise query_error(found.error_code, handle.transactional_id)
    return _fate(handle, found, bumps_epoch=bumps_epoch)


def _fate(handle: TransactionHandle, found: DescribedTransaction, *, bumps_epoch: bool) -> Fate:
    fate = _FATES.get(found.transaction_state, Fate.FORGOTTEN)
    if found.producer_id != handle.producer_id:
        return Fate.FORGOTTEN
    if found.producer_epoch == handle.producer_epoch:
        # Where the end gives the next epoch, what is over under this one was the transaction before.
        return Fate.EMPTY if bumps_epoch and fate in _OVER else fate
    is_next = bumps_epoch and found.producer_epoch == handle.producer_epoch + 1
    return fate if is_next and fate in _OVER else Fate.FORGOTTEN
