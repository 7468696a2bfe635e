"""Fetch (api key 1): reads record batches; a producer does not need it, its tests do."""

from __future__ import annotations

from aioproducer.protocol.api_key import ApiKey
from aioproducer.protocol.message import (
    Array,
    Int8,
    Int16,
    Int32,
    Int64,
    NullableArray,
    NullableString,
    Records,
    Request,
    Response,
    String,
    Struct,
    Uuid,
    since,
    tagged,
    until,
)
from aioproducer.protocol.messages.leadership import LeaderIdAndEpoch, NodeEndpoint
from aioproducer.protocol.wire import ZERO_UUID

__all__ = [
    "AbortedTransaction",
    "EpochEndOffset",
    "FetchPartition",
    "FetchRequest",
    "FetchResponse",
    "FetchTopic",
    "FetchableTopicResponse",
    "ForgottenTopic",
    "PartitionData",
    "ReplicaState",
    "SnapshotId",
]


class ReplicaState(Struct):
    """The replica that fetches; -1 is a consumer."""

    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


class FetchPartition(Struct):
    """The offset from which to read one partition, and how many bytes."""

    partition: Int32
    current_leader_epoch: Int32 = since(9, default=-1)
    fetch_offset: Int64
    last_fetched_epoch: Int32 = since(12, default=-1)
    log_start_offset: Int64 = since(5, default=-1)
    partition_max_bytes: Int32


class FetchTopic(Struct):
    """The partitions of one topic; from version 13 on it goes by its id."""

    topic: String = until(12, default="")
    topic_id: Uuid = since(13, default=ZERO_UUID)
    partitions: Array[FetchPartition]


class ForgottenTopic(Struct):
    """Partitions to be left out of a fetch session from now on (KIP-227)."""

    topic: String = until(12, default="")
    topic_id: Uuid = since(13, default=ZERO_UUID)
    partitions: Array[Int32]


class EpochEndOffset(Struct):
    """The position from which the leader's log differs from the fetcher's."""

    epoch: Int32 = -1
    end_offset: Int64 = -1


class SnapshotId(Struct):
    """The snapshot to be fetched instead, in the metadata log."""

    end_offset: Int64 = -1
    epoch: Int32 = -1


class AbortedTransaction(Struct):
    """From this offset on, up to its next control batch, this producer's records must be dropped."""

    producer_id: Int64
    first_offset: Int64


class PartitionData(Struct):
    """The batches of one partition: the last one may be truncated."""

    partition_index: Int32
    error_code: Int16
    high_watermark: Int64
    last_stable_offset: Int64 = -1
    log_start_offset: Int64 = since(5, default=-1)
    diverging_epoch: EpochEndOffset = tagged(0, since=12, factory=EpochEndOffset)
    current_leader: LeaderIdAndEpoch = tagged(1, since=12, factory=LeaderIdAndEpoch)
    snapshot_id: SnapshotId = tagged(2, since=12, factory=SnapshotId)
    aborted_transactions: NullableArray[AbortedTransaction] = None
    preferred_read_replica: Int32 = since(11, default=-1)
    records: Records


class FetchableTopicResponse(Struct):
    """The partitions of one topic; from version 13 on it goes by its id."""

    topic: String = until(12, default="")
    topic_id: Uuid = since(13, default=ZERO_UUID)
    partitions: Array[PartitionData]


class FetchResponse(Response):
    """One result for each partition of the request, or of the fetch session."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = since(7, default=0)
    session_id: Int32 = since(7, default=0)
    responses: Array[FetchableTopicResponse]
    node_endpoints: Array[NodeEndpoint] = tagged(0, since=16, default=[])


class FetchRequest(Request[FetchResponse], api_key=ApiKey.FETCH, versions=(4, 16), flexible=12):
    """Version 4 is the first to return record batch v2. ``isolation_level`` 0 reads everything, 1 only committed records."""

    cluster_id: NullableString = tagged(0, since=12, default=None)
    replica_id: Int32 = until(14, default=-1)
    replica_state: ReplicaState = tagged(1, since=15, factory=ReplicaState)
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = 0x7FFFFFFF
    isolation_level: Int8 = 0
    session_id: Int32 = since(7, default=0)
    session_epoch: Int32 = since(7, default=-1)
    topics: Array[FetchTopic]
    forgotten_topics_data: Array[ForgottenTopic] = since(7, default=[])
    rack_id: String = since(11, default="")
