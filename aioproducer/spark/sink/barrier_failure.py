"""Finds the transaction of a barrier stage that failed for good: Spark gives the driver only the error of one task.

So a task names its transaction, by producer id and epoch, in its error. With these two exactly that transaction can be
aborted, and never one that a newer driver has begun with the same transactional id.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from aioproducer.core.transactions.handle import TransactionHandle

__all__ = ["name_transaction", "named_transactions"]

_NAMED: Final = re.compile(r"^\(Written in the transaction of producer id (\d+), epoch (\d+)\.\)$", re.MULTILINE)


def name_transaction(error: BaseException, handle: TransactionHandle) -> None:
    """Add the task's transaction to the error as a note, so that Python and Spark print it."""
    error.add_note(f"(Written in the transaction of producer id {handle.producer_id}, epoch {handle.producer_epoch}.)")


def named_transactions(error: BaseException, transactional_id: str) -> Sequence[TransactionHandle]:
    """The transactions of that id that the text of Spark's error names; may be empty."""
    found = sorted({(int(producer_id), int(epoch)) for producer_id, epoch in _NAMED.findall(str(error))})
    return [TransactionHandle(transactional_id, producer_id, epoch) for producer_id, epoch in found]
