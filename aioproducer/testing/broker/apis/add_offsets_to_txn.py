"""AddOffsetsToTxn (api key 25): lets a transaction commit offsets of a group; not needed with transaction.version 2.

PRODUCER_FENCED exists from version 2 on.
"""

from __future__ import annotations

from aioproducer.protocol import ErrorCode
from aioproducer.protocol.messages import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from aioproducer.testing.broker.apis.coordination import check_transaction_coordinator, fencing_code
from aioproducer.testing.broker.group_offsets import OFFSETS_TOPIC, offsets_partition
from aioproducer.testing.broker.request import ApiHandler, RequestContext
from aioproducer.testing.broker.transaction_state import ProducerIdAndEpoch

__all__ = ["HANDLER"]

_PRODUCER_FENCED_SINCE = 2


def handle(context: RequestContext, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    """Add the partition with the group's offsets to the transaction."""
    code = check_transaction_coordinator(context, request.transactional_id)
    if code is ErrorCode.NONE:
        code = context.cluster.transactions.add_partitions(
            request.transactional_id,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            [(OFFSETS_TOPIC, offsets_partition(request.group_id))],
            context.now_ms,
        )
    return AddOffsetsToTxnResponse(error_code=fencing_code(context, code, _PRODUCER_FENCED_SINCE))


def refuse(context: RequestContext, request: AddOffsetsToTxnRequest, code: ErrorCode) -> AddOffsetsToTxnResponse:
    """An error response."""
    return AddOffsetsToTxnResponse(error_code=code)


HANDLER = ApiHandler.of(AddOffsetsToTxnRequest, handle, refuse)
