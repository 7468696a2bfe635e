"""EndTxn (api key 26): commits or aborts a transaction."""

from __future__ import annotations

from aioproducer.protocol.api_key import ApiKey
from aioproducer.protocol.message import Bool, Int16, Int32, Int64, Request, Response, String, since

__all__ = ["EndTxnRequest", "EndTxnResponse"]


class EndTxnResponse(Response):
    """From version 5 on with the producer id and epoch of the next transaction (KIP-890), -1 if they do not change."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    producer_id: Int64 = since(5, default=-1)
    producer_epoch: Int16 = since(5, default=-1)


class EndTxnRequest(Request[EndTxnResponse], api_key=ApiKey.END_TXN, versions=(0, 5), flexible=3):
    """Version 5 only if the cluster has transaction.version 2."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    committed: Bool
