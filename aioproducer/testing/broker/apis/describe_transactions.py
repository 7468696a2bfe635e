"""DescribeTransactions (api key 65): the producer, the state and the partitions of transactional ids (KIP-664)."""

from __future__ import annotations

from itertools import groupby

from aioproducer.protocol import ErrorCode
from aioproducer.protocol.messages import (
    DescribedTransaction,
    DescribedTransactionTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from aioproducer.testing.broker.apis.coordination import check_transaction_coordinator
from aioproducer.testing.broker.request import ApiHandler, RequestContext
from aioproducer.testing.broker.transaction_state import Transaction

__all__ = ["HANDLER"]


def handle(context: RequestContext, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
    """One result for each transactional id."""
    return DescribeTransactionsResponse(
        transaction_states=[_describe(context, transactional_id) for transactional_id in request.transactional_ids]
    )


def refuse(
    context: RequestContext, request: DescribeTransactionsRequest, code: ErrorCode
) -> DescribeTransactionsResponse:
    """An error for each transactional id."""
    return DescribeTransactionsResponse(transaction_states=[_error(each, code) for each in request.transactional_ids])


def _describe(context: RequestContext, transactional_id: str) -> DescribedTransaction:
    if not transactional_id:
        return _error(transactional_id, ErrorCode.INVALID_REQUEST)
    code = check_transaction_coordinator(context, transactional_id)
    if code is not ErrorCode.NONE:
        return _error(transactional_id, code)
    transaction = context.cluster.transactions.transactions.get(transactional_id)
    if transaction is None:
        return _error(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    return DescribedTransaction(
        error_code=ErrorCode.NONE,
        transactional_id=transactional_id,
        transaction_state=transaction.state.value,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.started_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=_topics(transaction),
    )


def _topics(transaction: Transaction) -> list[DescribedTransactionTopic]:
    return [
        DescribedTransactionTopic(topic=name, partitions=[index for _, index in partitions])
        for name, partitions in groupby(sorted(transaction.partitions), key=lambda where: where[0])
    ]


def _error(transactional_id: str, code: ErrorCode) -> DescribedTransaction:
    return DescribedTransaction(
        error_code=code,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )


HANDLER = ApiHandler.of(DescribeTransactionsRequest, handle, refuse)
