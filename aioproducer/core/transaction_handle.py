"""Where `TransactionHandle` was before it had a folder: handles that were pickled then name this module.

For one release; then it goes.
"""

from __future__ import annotations

from aioproducer.core.transactions.handle import TransactionHandle

__all__ = ["TransactionHandle"]
