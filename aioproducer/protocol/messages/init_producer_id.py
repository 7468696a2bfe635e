"""InitProducerId (api key 22): a producer id and epoch, for idempotence and for transactions."""

from __future__ import annotations

from aioproducer.protocol.api_key import ApiKey
from aioproducer.protocol.message import Bool, Int16, Int32, Int64, NullableString, Request, Response, since

__all__ = ["InitProducerIdRequest", "InitProducerIdResponse"]


class InitProducerIdResponse(Response):
    """The producer id and epoch; both are -1 with an error."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    producer_id: Int64 = -1
    producer_epoch: Int16 = -1
    ongoing_txn_producer_id: Int64 = since(6, default=-1)
    ongoing_txn_producer_epoch: Int16 = since(6, default=-1)


class InitProducerIdRequest(
    Request[InitProducerIdResponse], api_key=ApiKey.INIT_PRODUCER_ID, versions=(0, 6), flexible=2, highest_spoken=5
):
    """From version 3 on with a producer id: asks for the next epoch of that id (KIP-360).

    Version 6 is for two-phase commit (KIP-939); brokers up to 4.4 mark it unstable, but some offer it anyway.
    """

    transactional_id: NullableString
    transaction_timeout_ms: Int32
    producer_id: Int64 = since(3, default=-1)
    producer_epoch: Int16 = since(3, default=-1)
    enable_2pc: Bool = since(6, default=False)
    keep_prepared_txn: Bool = since(6, default=False)
