"""WriteTxnMarkers (api key 27): ends transactions in single partitions.

Coordinators send it to leaders; an administrator sends it to end a transaction that no coordinator will end (KIP-664).
"""

from __future__ import annotations

from aioproducer.protocol.api_key import ApiKey
from aioproducer.protocol.message import (
    Array,
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Request,
    Response,
    String,
    Struct,
    always,
    since,
)

__all__ = [
    "WritableTxnMarker",
    "WritableTxnMarkerPartitionResult",
    "WritableTxnMarkerResult",
    "WritableTxnMarkerTopic",
    "WritableTxnMarkerTopicResult",
    "WriteTxnMarkersRequest",
    "WriteTxnMarkersResponse",
]


class WritableTxnMarkerPartitionResult(Struct):
    """The result for one partition."""

    partition_index: Int32
    error_code: Int16


class WritableTxnMarkerTopicResult(Struct):
    """The results for the partitions of one topic."""

    name: String
    partitions: Array[WritableTxnMarkerPartitionResult]


class WritableTxnMarkerResult(Struct):
    """The results for one producer."""

    producer_id: Int64
    topics: Array[WritableTxnMarkerTopicResult]


class WriteTxnMarkersResponse(Response):
    """The results for each marker of the request. This response has no throttle time."""

    markers: Array[WritableTxnMarkerResult]


class WritableTxnMarkerTopic(Struct):
    """The partitions of one topic that get the marker."""

    name: String
    partition_indexes: Array[Int32] = always(default=[])


class WritableTxnMarker(Struct):
    """One marker; ``transaction_result`` True commits.

    With a ``transaction_version`` of 2 the leader accepts only an epoch newer than that of the transaction.
    """

    producer_id: Int64
    producer_epoch: Int16
    transaction_result: Bool
    topics: Array[WritableTxnMarkerTopic]
    coordinator_epoch: Int32
    transaction_version: Int8 = since(2, default=0)


class WriteTxnMarkersRequest(
    Request[WriteTxnMarkersResponse], api_key=ApiKey.WRITE_TXN_MARKERS, versions=(1, 2), flexible=1
):
    """Goes to the leader of each partition."""

    markers: Array[WritableTxnMarker]
