"""Produce (api key 0): sends record batches to the leaders of their partitions."""

from __future__ import annotations

from aioproducer.protocol.api_key import ApiKey
from aioproducer.protocol.message import (
    Array,
    Int16,
    Int32,
    Int64,
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
    "BatchIndexAndErrorMessage",
    "PartitionProduceData",
    "PartitionProduceResponse",
    "ProduceRequest",
    "ProduceResponse",
    "TopicProduceData",
    "TopicProduceResponse",
]


class PartitionProduceData(Struct):
    """The batches for one partition."""

    index: Int32
    records: Records


class TopicProduceData(Struct):
    """The partitions of one topic; from version 13 on it goes by its id."""

    name: String = until(12, default="")
    topic_id: Uuid = since(13, default=ZERO_UUID)
    partition_data: Array[PartitionProduceData]


class BatchIndexAndErrorMessage(Struct):
    """A record that made the broker refuse its batch (KIP-467)."""

    batch_index: Int32
    batch_index_error_message: NullableString = None


class PartitionProduceResponse(Struct):
    """The result for the batches of one partition.

    ``log_append_time_ms`` is -1 unless the topic has LogAppendTime. ``current_leader`` is filled in with
    NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH.
    """

    index: Int32
    error_code: Int16
    base_offset: Int64
    log_append_time_ms: Int64 = -1
    log_start_offset: Int64 = since(5, default=-1)
    record_errors: Array[BatchIndexAndErrorMessage] = since(8, default=[])
    error_message: NullableString = since(8, default=None)
    current_leader: LeaderIdAndEpoch = tagged(0, since=10, factory=LeaderIdAndEpoch)


class TopicProduceResponse(Struct):
    """The partitions of one topic; from version 13 on it goes by its id."""

    name: String = until(12, default="")
    topic_id: Uuid = since(13, default=ZERO_UUID)
    partition_responses: Array[PartitionProduceResponse]


class ProduceResponse(Response):
    """One result for each partition of the request. With acks=0 there is no response."""

    responses: Array[TopicProduceResponse]
    throttle_time_ms: Int32 = 0
    node_endpoints: Array[NodeEndpoint] = tagged(0, since=10, default=[])


class ProduceRequest(Request[ProduceResponse], api_key=ApiKey.PRODUCE, versions=(3, 13), flexible=9):
    """Version 3 is the first to carry record batch v2.

    Inside a transaction version 12 and later also add the partition to it (KIP-890): must not be used if the cluster does
    not have transaction.version 2. Version 13 needs the ids of all topics.
    """

    transactional_id: NullableString
    acks: Int16
    timeout_ms: Int32
    topic_data: Array[TopicProduceData]
