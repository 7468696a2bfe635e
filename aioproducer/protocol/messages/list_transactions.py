"""ListTransactions (api key 66): the transactional ids that one coordinator knows (KIP-664).

It must be sent to every broker.
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
    always,
    since,
)

__all__ = ["ListTransactionsRequest", "ListTransactionsResponse", "ListedTransaction"]


class ListedTransaction(Struct):
    """One transactional id (``TransactionState`` in Kafka's schema) and its state: ``Empty``, ``Ongoing``, ..."""

    transactional_id: String
    producer_id: Int64
    transaction_state: String


class ListTransactionsResponse(Response):
    """The ids that pass all filters; ``unknown_state_filters`` are names of states that the broker does not know."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    unknown_state_filters: Array[String] = always(default=[])
    transaction_states: Array[ListedTransaction]


class ListTransactionsRequest(
    Request[ListTransactionsResponse], api_key=ApiKey.LIST_TRANSACTIONS, versions=(0, 2), flexible=0
):
    """Empty filters match everything. ``duration_filter`` is milliseconds, ``transactional_id_pattern`` an RE2 regex."""

    state_filters: Array[String] = always(default=[])
    producer_id_filters: Array[Int64] = always(default=[])
    duration_filter: Int64 = since(1, default=-1)
    transactional_id_pattern: NullableString = since(2, default=None)
