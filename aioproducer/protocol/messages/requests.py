"""All requests by their api keys, for test brokers, which must decode any request."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from aioproducer.protocol.message import Request
from aioproducer.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from aioproducer.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from aioproducer.protocol.messages.api_versions import ApiVersionsRequest
from aioproducer.protocol.messages.create_topics import CreateTopicsRequest
from aioproducer.protocol.messages.delete_topics import DeleteTopicsRequest
from aioproducer.protocol.messages.describe_configs import DescribeConfigsRequest
from aioproducer.protocol.messages.describe_producers import DescribeProducersRequest
from aioproducer.protocol.messages.describe_transactions import DescribeTransactionsRequest
from aioproducer.protocol.messages.end_txn import EndTxnRequest
from aioproducer.protocol.messages.fetch import FetchRequest
from aioproducer.protocol.messages.find_coordinator import FindCoordinatorRequest
from aioproducer.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from aioproducer.protocol.messages.heartbeat import HeartbeatRequest
from aioproducer.protocol.messages.init_producer_id import InitProducerIdRequest
from aioproducer.protocol.messages.join_group import JoinGroupRequest
from aioproducer.protocol.messages.leave_group import LeaveGroupRequest
from aioproducer.protocol.messages.list_offsets import ListOffsetsRequest
from aioproducer.protocol.messages.list_transactions import ListTransactionsRequest
from aioproducer.protocol.messages.metadata import MetadataRequest
from aioproducer.protocol.messages.offset_commit import OffsetCommitRequest
from aioproducer.protocol.messages.offset_fetch import OffsetFetchRequest
from aioproducer.protocol.messages.produce import ProduceRequest
from aioproducer.protocol.messages.push_telemetry import PushTelemetryRequest
from aioproducer.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from aioproducer.protocol.messages.sasl_handshake import SaslHandshakeRequest
from aioproducer.protocol.messages.sync_group import SyncGroupRequest
from aioproducer.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from aioproducer.protocol.messages.write_txn_markers import WriteTxnMarkersRequest

__all__ = ["REQUESTS"]

#: The class of each request by its api key.
REQUESTS: Mapping[int, type[Request[Any]]] = MappingProxyType(
    {
        request.api_key: request
        for request in (
            ProduceRequest,
            FetchRequest,
            ListOffsetsRequest,
            MetadataRequest,
            OffsetCommitRequest,
            OffsetFetchRequest,
            FindCoordinatorRequest,
            JoinGroupRequest,
            HeartbeatRequest,
            LeaveGroupRequest,
            SyncGroupRequest,
            SaslHandshakeRequest,
            ApiVersionsRequest,
            CreateTopicsRequest,
            DeleteTopicsRequest,
            InitProducerIdRequest,
            AddPartitionsToTxnRequest,
            AddOffsetsToTxnRequest,
            EndTxnRequest,
            WriteTxnMarkersRequest,
            TxnOffsetCommitRequest,
            DescribeConfigsRequest,
            SaslAuthenticateRequest,
            DescribeProducersRequest,
            DescribeTransactionsRequest,
            ListTransactionsRequest,
            GetTelemetrySubscriptionsRequest,
            PushTelemetryRequest,
        )
    }
)
