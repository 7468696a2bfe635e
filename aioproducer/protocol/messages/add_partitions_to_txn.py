"""AddPartitionsToTxn (api key 24): registers the partitions that a transaction writes to with the transaction coordinator.

Clients use versions up to 3; from version 4 on brokers use it among themselves, for several transactions at once.
"""

from __future__ import annotations

from aioproducer.protocol.api_key import ApiKey
from aioproducer.protocol.message import (
    Array,
    Bool,
    Int16,
    Int32,
    Int64,
    Request,
    Response,
    String,
    Struct,
    since,
    until,
)

__all__ = [
    "AddPartitionsToTxnPartitionResult",
    "AddPartitionsToTxnRequest",
    "AddPartitionsToTxnResponse",
    "AddPartitionsToTxnResult",
    "AddPartitionsToTxnTopic",
    "AddPartitionsToTxnTopicResult",
    "AddPartitionsToTxnTransaction",
]


class AddPartitionsToTxnTopic(Struct):
    """The partitions of one topic."""

    name: String
    partitions: Array[Int32]


class AddPartitionsToTxnTransaction(Struct):
    """One transaction of several."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    verify_only: Bool = False
    topics: Array[AddPartitionsToTxnTopic]


class AddPartitionsToTxnPartitionResult(Struct):
    """Whether one partition was added."""

    partition_index: Int32
    partition_error_code: Int16


class AddPartitionsToTxnTopicResult(Struct):
    """The partitions of one topic."""

    name: String
    results_by_partition: Array[AddPartitionsToTxnPartitionResult]


class AddPartitionsToTxnResult(Struct):
    """The result for one transaction of several."""

    transactional_id: String
    topic_results: Array[AddPartitionsToTxnTopicResult]


class AddPartitionsToTxnResponse(Response):
    """All partitions are added, or none: the others have OPERATION_NOT_ATTEMPTED."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = since(4, default=0)
    results_by_transaction: Array[AddPartitionsToTxnResult] = since(4, default=[])
    results_by_topic_v3_and_below: Array[AddPartitionsToTxnTopicResult] = until(3, default=[])


class AddPartitionsToTxnRequest(
    Request[AddPartitionsToTxnResponse],
    api_key=ApiKey.ADD_PARTITIONS_TO_TXN,
    versions=(0, 5),
    flexible=3,
    highest_spoken=3,
):
    """One transaction up to version 3, several from version 4 on."""

    transactions: Array[AddPartitionsToTxnTransaction] = since(4, default=[])
    v3_and_below_transactional_id: String = until(3, default="")
    v3_and_below_producer_id: Int64 = until(3, default=-1)
    v3_and_below_producer_epoch: Int16 = until(3, default=-1)
    v3_and_below_topics: Array[AddPartitionsToTxnTopic] = until(3, default=[])
