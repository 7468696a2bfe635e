"""Asks what the coordinator knows of the transaction of a transactional id (DescribeTransactions, KIP-664)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from aioproducer.core.transactions.queries import CoordinatorQuery, query_error
from aioproducer.core.transactions.requests import CoordinatorKey, CoordinatorType
from aioproducer.errors import ProtocolError
from aioproducer.protocol.error_codes import ErrorCode
from aioproducer.protocol.messages import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)

__all__ = ["described_transaction"]

T = TypeVar("T")


def described_transaction(
    transactional_id: str, tell: Callable[[DescribedTransaction | None], T]
) -> CoordinatorQuery[T]:
    """What ``tell`` makes of the description; it is given None where the coordinator does not know the id."""
    about = CoordinatorKey(CoordinatorType.TRANSACTION, transactional_id)
    message = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    return CoordinatorQuery(
        about, message, 0, 0, partial(_check, transactional_id), partial(_read, transactional_id, tell)
    )


def _check(transactional_id: str, response: DescribeTransactionsResponse) -> None:
    told = [each.transactional_id for each in response.transaction_states]
    if told != [transactional_id]:
        raise ProtocolError(f"DescribeTransactions for {transactional_id!r} was answered for {told}.")


def _read(
    transactional_id: str, tell: Callable[[DescribedTransaction | None], T], response: DescribeTransactionsResponse
) -> T:
    (found,) = response.transaction_states
    if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return tell(None)
    if found.error_code != ErrorCode.NONE:
        raise query_error(found.error_code, transactional_id)
    return tell(found)
