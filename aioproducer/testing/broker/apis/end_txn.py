"""EndTxn (api key 26): commits or aborts a transaction.

Version 5 is that of transaction.version 2: it moves the producer to the next epoch and returns it. PRODUCER_FENCED exists
from version 2 on.
"""

from __future__ import annotations

from aioproducer.protocol import ErrorCode
from aioproducer.protocol.messages import EndTxnRequest, EndTxnResponse
from aioproducer.testing.broker.apis.coordination import check_transaction_coordinator, fencing_code
from aioproducer.testing.broker.request import ApiHandler, RequestContext
from aioproducer.testing.broker.transaction_state import ProducerIdAndEpoch

__all__ = ["HANDLER"]

_BUMPS_EPOCH_SINCE = 5
_PRODUCER_FENCED_SINCE = 2


def handle(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    """Decide the transaction's outcome, and write its markers."""
    code = check_transaction_coordinator(context, request.transactional_id)
    if code is not ErrorCode.NONE:
        return refuse(context, request, code)
    answer = context.cluster.transactions.end(
        request.transactional_id,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        committed=request.committed,
        bumps_epoch=context.version >= _BUMPS_EPOCH_SINCE,
        now_ms=context.now_ms,
    )
    return EndTxnResponse(
        error_code=fencing_code(context, answer.code, _PRODUCER_FENCED_SINCE),
        producer_id=answer.producer.producer_id,
        producer_epoch=answer.producer.producer_epoch,
    )


def refuse(context: RequestContext, request: EndTxnRequest, code: ErrorCode) -> EndTxnResponse:
    """An error response."""
    return EndTxnResponse(error_code=code, producer_id=-1, producer_epoch=-1)


HANDLER = ApiHandler.of(EndTxnRequest, handle, refuse)
