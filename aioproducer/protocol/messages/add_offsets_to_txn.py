"""AddOffsetsToTxn (api key 25): registers a group, whose offsets a transaction commits, with the transaction coordinator."""

from __future__ import annotations

from aioproducer.protocol.api_key import ApiKey
from aioproducer.protocol.message import Int16, Int32, Int64, Request, Response, String

__all__ = ["AddOffsetsToTxnRequest", "AddOffsetsToTxnResponse"]


class AddOffsetsToTxnResponse(Response):
    """Whether the group was added."""

    throttle_time_ms: Int32 = 0
    error_code: Int16


class AddOffsetsToTxnRequest(
    Request[AddOffsetsToTxnResponse], api_key=ApiKey.ADD_OFFSETS_TO_TXN, versions=(0, 4), flexible=3
):
    """Not used if the cluster has transaction.version 2: TxnOffsetCommit does it."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    group_id: String
