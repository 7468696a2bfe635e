"""Asks what became of the transaction of a handle where the end of it was refused.

INVALID_TXN_STATE says that there is nothing to end in that way. That alone does not tell a transaction that nobody wrote
into from one that is over, nor in which way it is over.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from functools import partial

from aioproducer.core.transactions.described_transaction import described_transaction
from aioproducer.core.transactions.handle import TransactionHandle
from aioproducer.core.transactions.queries import CoordinatorQuery
from aioproducer.protocol.messages import DescribedTransaction

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
