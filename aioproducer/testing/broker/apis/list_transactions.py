"""ListTransactions (api key 66): the transactional ids that this node coordinates (KIP-664)."""

from __future__ import annotations

import re

from aioproducer.protocol import ErrorCode
from aioproducer.protocol.messages import ListedTransaction, ListTransactionsRequest, ListTransactionsResponse
from aioproducer.testing.broker.apis.coordination import check_transaction_coordinator
from aioproducer.testing.broker.request import ApiHandler, RequestContext
from aioproducer.testing.broker.transaction_state import Transaction, TransactionState

__all__ = ["HANDLER"]


def handle(context: RequestContext, request: ListTransactionsRequest) -> ListTransactionsResponse:
    """The ids that pass all filters."""
    known = {state.value for state in TransactionState}
    pattern = _compile(request.transactional_id_pattern)
    if pattern is None:
        return refuse(context, request, ErrorCode.INVALID_REGULAR_EXPRESSION)
    return ListTransactionsResponse(
        error_code=ErrorCode.NONE,
        unknown_state_filters=[name for name in request.state_filters if name not in known],
        transaction_states=[
            ListedTransaction(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                transaction_state=each.state.value,
            )
            for each in context.cluster.transactions.transactions.values()
            if check_transaction_coordinator(context, each.transactional_id) is ErrorCode.NONE
            and pattern.fullmatch(each.transactional_id)
            and _passes(each, request, context.now_ms)
        ],
    )


def refuse(context: RequestContext, request: ListTransactionsRequest, code: ErrorCode) -> ListTransactionsResponse:
    """An error and nothing else."""
    return ListTransactionsResponse(error_code=code, transaction_states=[])


def _compile(pattern: str | None) -> re.Pattern[str] | None:
    try:
        return re.compile(pattern or ".*")
    except re.error:
        return None


def _passes(transaction: Transaction, request: ListTransactionsRequest, now_ms: int) -> bool:
    return (
        (not request.state_filters or transaction.state.value in request.state_filters)
        and (not request.producer_id_filters or transaction.producer_id in request.producer_id_filters)
        and (request.duration_filter < 0 or now_ms - transaction.started_ms > request.duration_filter)
    )


HANDLER = ApiHandler.of(ListTransactionsRequest, handle, refuse)
