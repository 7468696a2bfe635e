"""The former module of `TransactionHandle`: handles that were pickled earlier name it.

Kept for one release.
"""

from __future__ import annotations

from aioproducer.core.transactions.handle import TransactionHandle

__all__ = ["TransactionHandle"]
