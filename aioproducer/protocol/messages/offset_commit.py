"""OffsetCommit (api key 8): commits the offsets of a consumer; goes to the coordinator of its group.

Only the fake broker reads it: a producer commits offsets inside transactions (TxnOffsetCommit).
"""

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
    "OffsetCommitRequest",
    "OffsetCommitRequestPartition",
    "OffsetCommitRequestTopic",
    "OffsetCommitResponse",
    "OffsetCommitResponsePartition",
    "OffsetCommitResponseTopic",
]


class OffsetCommitRequestPartition(Struct):
    """The offset of the next record to be read of one partition."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = since(6, default=-1)
    committed_metadata: NullableString


class OffsetCommitRequestTopic(Struct):
    """The partitions of one topic; from version 10 on it goes by its id."""

    name: String = until(9, default="")
    topic_id: Uuid = since(10, default=ZERO_UUID)
    partitions: Array[OffsetCommitRequestPartition]


class OffsetCommitResponsePartition(Struct):
    """Whether the offset of one partition was taken."""

    partition_index: Int32
    error_code: Int16


class OffsetCommitResponseTopic(Struct):
    """The partitions of one topic; from version 10 on it goes by its id."""

    name: String = until(9, default="")
    topic_id: Uuid = since(10, default=ZERO_UUID)
    partitions: Array[OffsetCommitResponsePartition]


class OffsetCommitResponse(Response):
    """One answer for each partition of the request."""

    throttle_time_ms: Int32 = since(3, default=0)
    topics: Array[OffsetCommitResponseTopic]


class OffsetCommitRequest(Request[OffsetCommitResponse], api_key=ApiKey.OFFSET_COMMIT, versions=(2, 10), flexible=8):
    """A generation below 0 and no member is what a consumer without a group, or an administrator, sends."""

    group_id: String
    generation_id_or_member_epoch: Int32 = -1
    member_id: String = ""
    group_instance_id: NullableString = since(7, default=None)
    retention_time_ms: Int64 = since(2, until=4, default=-1)
    topics: Array[OffsetCommitRequestTopic]
