"""The handle with which another process can write into an open transaction."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TransactionHandle"]


@dataclass(frozen=True, slots=True)
class TransactionHandle:
    """Identifies one open transaction; can be pickled and sent to the processes that write into it.

    Only one holder may write to each partition: brokers take equal sequences of two holders for duplicates. The handle
    is worthless once the transaction has ended.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
