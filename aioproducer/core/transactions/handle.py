"""What another process needs in order to write into an open transaction."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TransactionHandle"]


@dataclass(frozen=True, slots=True)
class TransactionHandle:
    """Names one open transaction; can be pickled and sent to wherever records for it are made.

    Each partition must be written by one holder only: brokers take equal sequences of two of them for repeats. It is worth
    nothing once the transaction has ended.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
