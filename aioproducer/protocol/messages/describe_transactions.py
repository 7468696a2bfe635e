"""DescribeTransactions (api key 65): the state of the given transactional ids at their coordinator (KIP-664)."""

from __future__ import annotations

from aioproducer.protocol.api_key import ApiKey
from aioproducer.protocol.message import Array, Int16, Int32, Int64, Request, Response, String, Struct

__all__ = [
    "DescribeTransactionsRequest",
    "DescribeTransactionsResponse",
    "DescribedTransaction",
    "DescribedTransactionTopic",
]


class DescribedTransactionTopic(Struct):
    """The partitions of one topic (``TopicData`` in Kafka's schema) that the transaction has not ended on yet."""

    topic: String
    partitions: Array[Int32]


class DescribedTransaction(Struct):
    """One transactional id (``TransactionState`` in Kafka's schema). ``transaction_start_time_ms`` -1: none is open."""

    error_code: Int16
    transactional_id: String
    transaction_state: String
    transaction_timeout_ms: Int32
    transaction_start_time_ms: Int64
    producer_id: Int64
    producer_epoch: Int16
    topics: Array[DescribedTransactionTopic]


class DescribeTransactionsResponse(Response):
    """One result for each transactional id of the request."""

    throttle_time_ms: Int32 = 0
    transaction_states: Array[DescribedTransaction]


class DescribeTransactionsRequest(
    Request[DescribeTransactionsResponse], api_key=ApiKey.DESCRIBE_TRANSACTIONS, versions=(0, 0), flexible=0
):
    """Goes to the coordinator of the transactional ids."""

    transactional_ids: Array[String]
