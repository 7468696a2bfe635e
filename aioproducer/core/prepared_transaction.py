"""The former module of `PreparedTransactionState`: states that were pickled earlier name it.

Kept for one release.
"""

from __future__ import annotations

from aioproducer.core.transactions.prepared_transaction import PreparedTransactionState

__all__ = ["PreparedTransactionState"]
