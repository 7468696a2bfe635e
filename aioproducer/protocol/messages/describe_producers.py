"""DescribeProducers (api key 61): the producers that a replica of a partition knows, and their transactions (KIP-664)."""

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
    always,
)

__all__ = [
    "DescribeProducersPartition",
    "DescribeProducersRequest",
    "DescribeProducersResponse",
    "DescribeProducersTopic",
    "DescribedProducer",
    "DescribedProducersTopic",
]


class DescribedProducer(Struct):
    """One producer (``ProducerState`` in Kafka's schema).

    ``last_timestamp`` is that of its last batch or marker, in milliseconds. ``coordinator_epoch`` -1: none of its
    transactions has ended here; ``current_txn_start_offset`` -1: none is open here.
    """

    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32
    current_txn_start_offset: Int64 = -1


class DescribeProducersPartition(Struct):
    """One partition (``PartitionResponse`` in Kafka's schema)."""

    partition_index: Int32
    error_code: Int16
    error_message: NullableString = None
    active_producers: Array[DescribedProducer]


class DescribedProducersTopic(Struct):
    """One topic of the response (``TopicResponse`` in Kafka's schema)."""

    name: String
    partitions: Array[DescribeProducersPartition]


class DescribeProducersResponse(Response):
    """The topics and partitions of the request."""

    throttle_time_ms: Int32 = 0
    topics: Array[DescribedProducersTopic]


class DescribeProducersTopic(Struct):
    """One topic of the request (``TopicRequest`` in Kafka's schema)."""

    name: String
    partition_indexes: Array[Int32] = always(default=[])


class DescribeProducersRequest(
    Request[DescribeProducersResponse], api_key=ApiKey.DESCRIBE_PRODUCERS, versions=(0, 0), flexible=0
):
    """Goes to a broker with a replica of each partition; the leader decides."""

    topics: Array[DescribeProducersTopic]
