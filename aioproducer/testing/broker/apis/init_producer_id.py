"""InitProducerId (api key 22): assigns producer ids and epochs.

Without a transactional id every request gets a new id with epoch 0, even one with its current id and epoch (version 3):
only the client bumps the epoch of an idempotent producer. With one, the coordinator returns the next epoch, which fences
all earlier producers. PRODUCER_FENCED exists from version 4 on.
"""

from __future__ import annotations

from aioproducer.protocol import ErrorCode
from aioproducer.protocol.messages import InitProducerIdRequest, InitProducerIdResponse
from aioproducer.testing.broker.apis.coordination import check_transaction_coordinator, fencing_code
from aioproducer.testing.broker.request import ApiHandler, RequestContext
from aioproducer.testing.broker.transaction_coordinator import Answer
from aioproducer.testing.broker.transaction_state import NO_PRODUCER, ProducerIdAndEpoch

__all__ = ["HANDLER"]

_PRODUCER_FENCED_SINCE = 4


def handle(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """The next producer id, or the next epoch."""
    present = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    if (present.producer_id == -1) != (present.producer_epoch == -1):
        return refuse(context, request, ErrorCode.INVALID_REQUEST)
    code, producer, ongoing = _init(context, request, None if present == NO_PRODUCER else present)
    return InitProducerIdResponse(
        error_code=fencing_code(context, code, _PRODUCER_FENCED_SINCE),
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        ongoing_txn_producer_id=ongoing.producer_id,
        ongoing_txn_producer_epoch=ongoing.producer_epoch,
    )


def refuse(context: RequestContext, request: InitProducerIdRequest, code: ErrorCode) -> InitProducerIdResponse:
    """An error instead of an id."""
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


def _init(context: RequestContext, request: InitProducerIdRequest, expected: ProducerIdAndEpoch | None) -> Answer:
    if request.transactional_id is None:
        return Answer(ErrorCode.NONE, context.cluster.allocate_producer_id())
    code = check_transaction_coordinator(context, request.transactional_id)
    if code is not ErrorCode.NONE:
        return Answer(code)
    return context.cluster.transactions.init_producer_id(
        request.transactional_id,
        request.transaction_timeout_ms,
        expected,
        context.now_ms,
        enable_2pc=request.enable_2pc,
        keep_prepared=request.keep_prepared_txn,
    )


HANDLER = ApiHandler.of(InitProducerIdRequest, handle, refuse)
