"""Where `PreparedTransactionState` was before it had a folder: states that were pickled then name this module.

For one release; then it goes.
"""

from __future__ import annotations

from aioproducer.core.transactions.prepared_transaction import PreparedTransactionState

__all__ = ["PreparedTransactionState"]
