"""Asks whether a transaction of a transactional id is still going on (DescribeTransactions, KIP-664)."""

from __future__ import annotations

from functools import partial

from aioproducer.core.coordinator_query import CoordinatorQuery, query_error
from aioproducer.core.transaction_requests import CoordinatorKey, CoordinatorType
from aioproducer.errors import ProtocolError
from aioproducer.protocol.error_codes import ErrorCode
from aioproducer.protocol.messages import DescribeTransactionsRequest, DescribeTransactionsResponse

__all__ = ["open_transaction"]

#: States in which nothing is open: nobody has written, or it is decided and done.
_OVER = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})


def open_transaction(transactional_id: str) -> CoordinatorQuery[bool]:
    """Whether somebody writes in a transaction of this id, or it is being ended; False where the id is unknown."""
    about = CoordinatorKey(CoordinatorType.TRANSACTION, transactional_id)
    message = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    return CoordinatorQuery(about, message, 0, 0, partial(_check, transactional_id), partial(_read, transactional_id))


def _check(transactional_id: str, response: DescribeTransactionsResponse) -> None:
    told = [each.transactional_id for each in response.transaction_states]
    if told != [transactional_id]:
        raise ProtocolError(f"DescribeTransactions for {transactional_id!r} was answered for {told}.")


def _read(transactional_id: str, response: DescribeTransactionsResponse) -> bool:
    (found,) = response.transaction_states
    if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return False
    if found.error_code != ErrorCode.NONE:
        raise query_error(found.error_code, transactional_id)
    return found.transaction_state not in _OVER
