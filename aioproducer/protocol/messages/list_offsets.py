"""ListOffsets (api key 2): where a partition begins and ends; a producer does not need it, its tests do."""

from __future__ import annotations

from aioproducer.protocol.api_key import ApiKey
from aioproducer.protocol.message import Array, Int8, Int16, Int32, Int64, Request, Response, String, Struct, since

__all__ = [
    "ListOffsetsPartition",
    "ListOffsetsPartitionResponse",
    "ListOffsetsRequest",
    "ListOffsetsResponse",
    "ListOffsetsTopic",
    "ListOffsetsTopicResponse",
]


class ListOffsetsPartition(Struct):
    """``timestamp`` is in ms since 1970; -1 is the end, -2 the beginning, -3 (from version 7 on) the newest timestamp."""

    partition_index: Int32
    current_leader_epoch: Int32 = since(4, default=-1)
    timestamp: Int64


class ListOffsetsTopic(Struct):
    """The partitions of one topic."""

    name: String
    partitions: Array[ListOffsetsPartition]


class ListOffsetsPartitionResponse(Struct):
    """The first record with this timestamp or a later one, -1 if there is none."""

    partition_index: Int32
    error_code: Int16
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Int32 = since(4, default=-1)


class ListOffsetsTopicResponse(Struct):
    """The partitions of one topic."""

    name: String
    partitions: Array[ListOffsetsPartitionResponse]


class ListOffsetsResponse(Response):
    """One result for each partition of the request."""

    throttle_time_ms: Int32 = since(2, default=0)
    topics: Array[ListOffsetsTopicResponse]


class ListOffsetsRequest(Request[ListOffsetsResponse], api_key=ApiKey.LIST_OFFSETS, versions=(1, 11), flexible=6):
    """``isolation_level`` 1 returns the last stable offset instead of the end of the log."""

    replica_id: Int32 = -1
    isolation_level: Int8 = since(2, default=0)
    topics: Array[ListOffsetsTopic]
    timeout_ms: Int32 = since(10, default=0)
