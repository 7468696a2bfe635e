"""Asks whether the markers of the last transaction are written (DescribeTransactions, KIP-664).

EndTxn is answered as soon as the decision is in the coordinator's log. What comes before the markers are in the partitions'
logs, too, meets CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

from aioproducer.core.transactions.queries import CoordinatorQuery
from aioproducer.core.transactions.requests import CoordinatorKey, CoordinatorType
from aioproducer.protocol.messages import DescribeTransactionsRequest, DescribeTransactionsResponse

__all__ = ["markers_written"]

_BEING_WRITTEN = frozenset({"PrepareCommit", "PrepareAbort"})


def markers_written(transactional_id: str) -> CoordinatorQuery[bool]:
    """Whether the coordinator has nothing left to write. An answer that does not say so, as of a refusal, counts as yes."""
    return CoordinatorQuery(
        CoordinatorKey(CoordinatorType.TRANSACTION, transactional_id),
        DescribeTransactionsRequest(transactional_ids=[transactional_id]),
        0,
        0,
        lambda response: None,
        _read,
    )


def _read(response: DescribeTransactionsResponse) -> bool:
    return all(each.transaction_state not in _BEING_WRITTEN for each in response.transaction_states)
