"""Asks whether a transaction of a transactional id is still going on."""

from __future__ import annotations

from aioproducer.core.transactions.described_transaction import described_transaction
from aioproducer.core.transactions.queries import CoordinatorQuery
from aioproducer.protocol.messages import DescribedTransaction

__all__ = ["open_transaction"]

#: States in which nothing is open: nobody has written, or it is decided and done.
_OVER = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})


def open_transaction(transactional_id: str) -> CoordinatorQuery[bool]:
    """Whether somebody writes in a transaction of this id, or it is being ended; False where the id is unknown."""
    return described_transaction(transactional_id, _is_open)


def _is_open(found: DescribedTransaction | None) -> bool:
    return found is not None and found.transaction_state not in _OVER
