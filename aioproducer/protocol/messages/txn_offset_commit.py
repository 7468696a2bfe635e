"""TxnOffsetCommit (api key 28): commits a consumer's offsets inside a transaction; goes to the coordinator of the group."""

from __future__ import annotations

from aioproducer.protocol.api_key import ApiKey
from aioproducer.protocol.message import (
    Array,
    Int16,
    Int32,
    Int64,
    NullableString,
    Request,
    Response,
    String,
    Struct,
    Uuid,
    since,
    until,
)
from aioproducer.protocol.wire import ZERO_UUID

__all__ = [
    "TxnOffsetCommitRequest",
    "TxnOffsetCommitRequestPartition",
    "TxnOffsetCommitRequestTopic",
    "TxnOffsetCommitResponse",
    "TxnOffsetCommitResponsePartition",
    "TxnOffsetCommitResponseTopic",
]


class TxnOffsetCommitRequestPartition(Struct):
    """The offset of the next record to be read of one partition."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = since(2, default=-1)
    committed_metadata: NullableString


class TxnOffsetCommitRequestTopic(Struct):
    """The partitions of one topic; from version 6 on it goes by its id."""

    name: String = until(5, default="")
    topic_id: Uuid = since(6, default=ZERO_UUID)
    partitions: Array[TxnOffsetCommitRequestPartition]


class TxnOffsetCommitResponsePartition(Struct):
    """Whether the offset of one partition was accepted."""

    partition_index: Int32
    error_code: Int16


class TxnOffsetCommitResponseTopic(Struct):
    """The partitions of one topic; from version 6 on it goes by its id."""

    name: String = until(5, default="")
    topic_id: Uuid = since(6, default=ZERO_UUID)
    partitions: Array[TxnOffsetCommitResponsePartition]


class TxnOffsetCommitResponse(Response):
    """One result for each partition of the request."""

    throttle_time_ms: Int32 = 0
    topics: Array[TxnOffsetCommitResponseTopic]


class TxnOffsetCommitRequest(
    Request[TxnOffsetCommitResponse], api_key=ApiKey.TXN_OFFSET_COMMIT, versions=(0, 6), flexible=3
):
    """From version 3 on the coordinator fences members of an older generation (KIP-447).

    Version 5 and later add the group to the transaction too (KIP-890): must not be used if the cluster does not have
    transaction.version 2. Version 6 needs the ids of all topics.
    """

    transactional_id: String
    group_id: String
    producer_id: Int64
    producer_epoch: Int16
    generation_id_or_member_epoch: Int32 = since(3, default=-1)
    member_id: String = since(3, default="")
    group_instance_id: NullableString = since(3, default=None)
    topics: Array[TxnOffsetCommitRequestTopic]
