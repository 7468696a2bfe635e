"""InitProducerId (api key 22): hands out producer ids.

Without a transactional id every request gets a new id with epoch 0, also one that names its present id and epoch (version
3): only the client bumps the epoch of an idempotent producer. Transactions are refused for now.
"""

from __future__ import annotations

from aioproducer.protocol import ErrorCode
from aioproducer.protocol.messages import InitProducerIdRequest, InitProducerIdResponse
from aioproducer.testing.broker_request import ApiHandler, RequestContext

__all__ = ["HANDLER"]


def handle(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """The next producer id."""
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return refuse(context, request, ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return refuse(context, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    producer_id, epoch = context.cluster.allocate_producer_id()
    return InitProducerIdResponse(error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=epoch)


def refuse(context: RequestContext, request: InitProducerIdRequest, code: ErrorCode) -> InitProducerIdResponse:
    """An error in the place of an id."""
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


HANDLER = ApiHandler.of(InitProducerIdRequest, handle, refuse)
