"""All supported messages: one file per API.

The names are imported on first use: declaring a message takes half a millisecond, and importing a producer needs a third of
them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioproducer.protocol.messages.add_offsets_to_txn import (
        AddOffsetsToTxnRequest,
        AddOffsetsToTxnResponse,
    )
    from aioproducer.protocol.messages.add_partitions_to_txn import (
        AddPartitionsToTxnPartitionResult,
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnResponse,
        AddPartitionsToTxnResult,
        AddPartitionsToTxnTopic,
        AddPartitionsToTxnTopicResult,
        AddPartitionsToTxnTransaction,
    )
    from aioproducer.protocol.messages.api_versions import (
        ApiVersion,
        ApiVersionsRequest,
        ApiVersionsResponse,
        FinalizedFeatureKey,
        SupportedFeatureKey,
    )
    from aioproducer.protocol.messages.create_topics import (
        CreatableReplicaAssignment,
        CreatableTopic,
        CreatableTopicConfig,
        CreatableTopicConfigs,
        CreatableTopicResult,
        CreateTopicsRequest,
        CreateTopicsResponse,
    )
    from aioproducer.protocol.messages.delete_topics import (
        DeletableTopicResult,
        DeleteTopicsRequest,
        DeleteTopicsResponse,
        DeleteTopicState,
    )
    from aioproducer.protocol.messages.describe_configs import (
        DescribeConfigsRequest,
        DescribeConfigsResource,
        DescribeConfigsResourceResult,
        DescribeConfigsResponse,
        DescribeConfigsResult,
        DescribeConfigsSynonym,
    )
    from aioproducer.protocol.messages.describe_producers import (
        DescribedProducer,
        DescribedProducersTopic,
        DescribeProducersPartition,
        DescribeProducersRequest,
        DescribeProducersResponse,
        DescribeProducersTopic,
    )
    from aioproducer.protocol.messages.describe_transactions import (
        DescribedTransaction,
        DescribedTransactionTopic,
        DescribeTransactionsRequest,
        DescribeTransactionsResponse,
    )
    from aioproducer.protocol.messages.end_txn import (
        EndTxnRequest,
        EndTxnResponse,
    )
    from aioproducer.protocol.messages.fetch import (
        AbortedTransaction,
        EpochEndOffset,
        FetchableTopicResponse,
        FetchPartition,
        FetchRequest,
        FetchResponse,
        FetchTopic,
        ForgottenTopic,
        PartitionData,
        ReplicaState,
        SnapshotId,
    )
    from aioproducer.protocol.messages.find_coordinator import (
        Coordinator,
        FindCoordinatorRequest,
        FindCoordinatorResponse,
    )
    from aioproducer.protocol.messages.get_telemetry_subscriptions import (
        GetTelemetrySubscriptionsRequest,
        GetTelemetrySubscriptionsResponse,
    )
    from aioproducer.protocol.messages.heartbeat import (
        HeartbeatRequest,
        HeartbeatResponse,
    )
    from aioproducer.protocol.messages.init_producer_id import (
        InitProducerIdRequest,
        InitProducerIdResponse,
    )
    from aioproducer.protocol.messages.join_group import (
        JoinGroupRequest,
        JoinGroupRequestProtocol,
        JoinGroupResponse,
        JoinGroupResponseMember,
    )
    from aioproducer.protocol.messages.leadership import (
        LeaderIdAndEpoch,
        NodeEndpoint,
    )
    from aioproducer.protocol.messages.leave_group import (
        LeaveGroupRequest,
        LeaveGroupResponse,
        MemberIdentity,
        MemberResponse,
    )
    from aioproducer.protocol.messages.list_offsets import (
        ListOffsetsPartition,
        ListOffsetsPartitionResponse,
        ListOffsetsRequest,
        ListOffsetsResponse,
        ListOffsetsTopic,
        ListOffsetsTopicResponse,
    )
    from aioproducer.protocol.messages.list_transactions import (
        ListedTransaction,
        ListTransactionsRequest,
        ListTransactionsResponse,
    )
    from aioproducer.protocol.messages.metadata import (
        NO_AUTHORIZED_OPERATIONS,
        MetadataRequest,
        MetadataRequestTopic,
        MetadataResponse,
        MetadataResponseBroker,
        MetadataResponsePartition,
        MetadataResponseTopic,
    )
    from aioproducer.protocol.messages.offset_commit import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
        OffsetCommitResponse,
        OffsetCommitResponsePartition,
        OffsetCommitResponseTopic,
    )
    from aioproducer.protocol.messages.offset_fetch import (
        OffsetFetchRequest,
        OffsetFetchRequestGroup,
        OffsetFetchRequestTopic,
        OffsetFetchResponse,
        OffsetFetchResponseGroup,
        OffsetFetchResponsePartition,
        OffsetFetchResponseTopic,
    )
    from aioproducer.protocol.messages.produce import (
        BatchIndexAndErrorMessage,
        PartitionProduceData,
        PartitionProduceResponse,
        ProduceRequest,
        ProduceResponse,
        TopicProduceData,
        TopicProduceResponse,
    )
    from aioproducer.protocol.messages.push_telemetry import (
        PushTelemetryRequest,
        PushTelemetryResponse,
    )
    from aioproducer.protocol.messages.requests import REQUESTS
    from aioproducer.protocol.messages.sasl_authenticate import (
        SaslAuthenticateRequest,
        SaslAuthenticateResponse,
    )
    from aioproducer.protocol.messages.sasl_handshake import (
        SaslHandshakeRequest,
        SaslHandshakeResponse,
    )
    from aioproducer.protocol.messages.sync_group import (
        SyncGroupRequest,
        SyncGroupRequestAssignment,
        SyncGroupResponse,
    )
    from aioproducer.protocol.messages.txn_offset_commit import (
        TxnOffsetCommitRequest,
        TxnOffsetCommitRequestPartition,
        TxnOffsetCommitRequestTopic,
        TxnOffsetCommitResponse,
        TxnOffsetCommitResponsePartition,
        TxnOffsetCommitResponseTopic,
    )
    from aioproducer.protocol.messages.write_txn_markers import (
        WritableTxnMarker,
        WritableTxnMarkerPartitionResult,
        WritableTxnMarkerResult,
        WritableTxnMarkerTopic,
        WritableTxnMarkerTopicResult,
        WriteTxnMarkersRequest,
        WriteTxnMarkersResponse,
    )

__all__ = [
    "NO_AUTHORIZED_OPERATIONS",
    "REQUESTS",
    "AbortedTransaction",
    "AddOffsetsToTxnRequest",
    "AddOffsetsToTxnResponse",
    "AddPartitionsToTxnPartitionResult",
    "AddPartitionsToTxnRequest",
    "AddPartitionsToTxnResponse",
    "AddPartitionsToTxnResult",
    "AddPartitionsToTxnTopic",
    "AddPartitionsToTxnTopicResult",
    "AddPartitionsToTxnTransaction",
    "ApiVersion",
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "BatchIndexAndErrorMessage",
    "Coordinator",
    "CreatableReplicaAssignment",
    "CreatableTopic",
    "CreatableTopicConfig",
    "CreatableTopicConfigs",
    "CreatableTopicResult",
    "CreateTopicsRequest",
    "CreateTopicsResponse",
    "DeletableTopicResult",
    "DeleteTopicState",
    "DeleteTopicsRequest",
    "DeleteTopicsResponse",
    "DescribeConfigsRequest",
    "DescribeConfigsResource",
    "DescribeConfigsResourceResult",
    "DescribeConfigsResponse",
    "DescribeConfigsResult",
    "DescribeConfigsSynonym",
    "DescribeProducersPartition",
    "DescribeProducersRequest",
    "DescribeProducersResponse",
    "DescribeProducersTopic",
    "DescribeTransactionsRequest",
    "DescribeTransactionsResponse",
    "DescribedProducer",
    "DescribedProducersTopic",
    "DescribedTransaction",
    "DescribedTransactionTopic",
    "EndTxnRequest",
    "EndTxnResponse",
    "EpochEndOffset",
    "FetchPartition",
    "FetchRequest",
    "FetchResponse",
    "FetchTopic",
    "FetchableTopicResponse",
    "FinalizedFeatureKey",
    "FindCoordinatorRequest",
    "FindCoordinatorResponse",
    "ForgottenTopic",
    "GetTelemetrySubscriptionsRequest",
    "GetTelemetrySubscriptionsResponse",
    "HeartbeatRequest",
    "HeartbeatResponse",
    "InitProducerIdRequest",
    "InitProducerIdResponse",
    "JoinGroupRequest",
    "JoinGroupRequestProtocol",
    "JoinGroupResponse",
    "JoinGroupResponseMember",
    "LeaderIdAndEpoch",
    "LeaveGroupRequest",
    "LeaveGroupResponse",
    "ListOffsetsPartition",
    "ListOffsetsPartitionResponse",
    "ListOffsetsRequest",
    "ListOffsetsResponse",
    "ListOffsetsTopic",
    "ListOffsetsTopicResponse",
    "ListTransactionsRequest",
    "ListTransactionsResponse",
    "ListedTransaction",
    "MemberIdentity",
    "MemberResponse",
    "MetadataRequest",
    "MetadataRequestTopic",
    "MetadataResponse",
    "MetadataResponseBroker",
    "MetadataResponsePartition",
    "MetadataResponseTopic",
    "NodeEndpoint",
    "OffsetCommitRequest",
    "OffsetCommitRequestPartition",
    "OffsetCommitRequestTopic",
    "OffsetCommitResponse",
    "OffsetCommitResponsePartition",
    "OffsetCommitResponseTopic",
    "OffsetFetchRequest",
    "OffsetFetchRequestGroup",
    "OffsetFetchRequestTopic",
    "OffsetFetchResponse",
    "OffsetFetchResponseGroup",
    "OffsetFetchResponsePartition",
    "OffsetFetchResponseTopic",
    "PartitionData",
    "PartitionProduceData",
    "PartitionProduceResponse",
    "ProduceRequest",
    "ProduceResponse",
    "PushTelemetryRequest",
    "PushTelemetryResponse",
    "ReplicaState",
    "SaslAuthenticateRequest",
    "SaslAuthenticateResponse",
    "SaslHandshakeRequest",
    "SaslHandshakeResponse",
    "SnapshotId",
    "SupportedFeatureKey",
    "SyncGroupRequest",
    "SyncGroupRequestAssignment",
    "SyncGroupResponse",
    "TopicProduceData",
    "TopicProduceResponse",
    "TxnOffsetCommitRequest",
    "TxnOffsetCommitRequestPartition",
    "TxnOffsetCommitRequestTopic",
    "TxnOffsetCommitResponse",
    "TxnOffsetCommitResponsePartition",
    "TxnOffsetCommitResponseTopic",
    "WritableTxnMarker",
    "WritableTxnMarkerPartitionResult",
    "WritableTxnMarkerResult",
    "WritableTxnMarkerTopic",
    "WritableTxnMarkerTopicResult",
    "WriteTxnMarkersRequest",
    "WriteTxnMarkersResponse",
]

_HOMES = {
    "add_offsets_to_txn": (
        "AddOffsetsToTxnRequest",
        "AddOffsetsToTxnResponse",
    ),
    "add_partitions_to_txn": (
        "AddPartitionsToTxnPartitionResult",
        "AddPartitionsToTxnRequest",
        "AddPartitionsToTxnResponse",
        "AddPartitionsToTxnResult",
        "AddPartitionsToTxnTopic",
        "AddPartitionsToTxnTopicResult",
        "AddPartitionsToTxnTransaction",
    ),
    "api_versions": (
        "ApiVersion",
        "ApiVersionsRequest",
        "ApiVersionsResponse",
        "FinalizedFeatureKey",
        "SupportedFeatureKey",
    ),
    "create_topics": (
        "CreatableReplicaAssignment",
        "CreatableTopic",
        "CreatableTopicConfig",
        "CreatableTopicConfigs",
        "CreatableTopicResult",
        "CreateTopicsRequest",
        "CreateTopicsResponse",
    ),
    "delete_topics": (
        "DeletableTopicResult",
        "DeleteTopicState",
        "DeleteTopicsRequest",
        "DeleteTopicsResponse",
    ),
    "describe_configs": (
        "DescribeConfigsRequest",
        "DescribeConfigsResource",
        "DescribeConfigsResourceResult",
        "DescribeConfigsResponse",
        "DescribeConfigsResult",
        "DescribeConfigsSynonym",
    ),
    "describe_producers": (
        "DescribeProducersPartition",
        "DescribeProducersRequest",
        "DescribeProducersResponse",
        "DescribeProducersTopic",
        "DescribedProducer",
        "DescribedProducersTopic",
    ),
    "describe_transactions": (
        "DescribeTransactionsRequest",
        "DescribeTransactionsResponse",
        "DescribedTransaction",
        "DescribedTransactionTopic",
    ),
    "end_txn": (
        "EndTxnRequest",
        "EndTxnResponse",
    ),
    "fetch": (
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
    ),
    "find_coordinator": (
        "Coordinator",
        "FindCoordinatorRequest",
        "FindCoordinatorResponse",
    ),
    "get_telemetry_subscriptions": (
        "GetTelemetrySubscriptionsRequest",
        "GetTelemetrySubscriptionsResponse",
    ),
    "heartbeat": (
        "HeartbeatRequest",
        "HeartbeatResponse",
    ),
    "init_producer_id": (
        "InitProducerIdRequest",
        "InitProducerIdResponse",
    ),
    "join_group": (
        "JoinGroupRequest",
        "JoinGroupRequestProtocol",
        "JoinGroupResponse",
        "JoinGroupResponseMember",
    ),
    "leadership": (
        "LeaderIdAndEpoch",
        "NodeEndpoint",
    ),
    "leave_group": (
        "LeaveGroupRequest",
        "LeaveGroupResponse",
        "MemberIdentity",
        "MemberResponse",
    ),
    "list_offsets": (
        "ListOffsetsPartition",
        "ListOffsetsPartitionResponse",
        "ListOffsetsRequest",
        "ListOffsetsResponse",
        "ListOffsetsTopic",
        "ListOffsetsTopicResponse",
    ),
    "list_transactions": (
        "ListTransactionsRequest",
        "ListTransactionsResponse",
        "ListedTransaction",
    ),
    "metadata": (
        "MetadataRequest",
        "MetadataRequestTopic",
        "MetadataResponse",
        "MetadataResponseBroker",
        "MetadataResponsePartition",
        "MetadataResponseTopic",
        "NO_AUTHORIZED_OPERATIONS",
    ),
    "offset_commit": (
        "OffsetCommitRequest",
        "OffsetCommitRequestPartition",
        "OffsetCommitRequestTopic",
        "OffsetCommitResponse",
        "OffsetCommitResponsePartition",
        "OffsetCommitResponseTopic",
    ),
    "offset_fetch": (
        "OffsetFetchRequest",
        "OffsetFetchRequestGroup",
        "OffsetFetchRequestTopic",
        "OffsetFetchResponse",
        "OffsetFetchResponseGroup",
        "OffsetFetchResponsePartition",
        "OffsetFetchResponseTopic",
    ),
    "produce": (
        "BatchIndexAndErrorMessage",
        "PartitionProduceData",
        "PartitionProduceResponse",
        "ProduceRequest",
        "ProduceResponse",
        "TopicProduceData",
        "TopicProduceResponse",
    ),
    "push_telemetry": (
        "PushTelemetryRequest",
        "PushTelemetryResponse",
    ),
    "sasl_authenticate": (
        "SaslAuthenticateRequest",
        "SaslAuthenticateResponse",
    ),
    "sasl_handshake": (
        "SaslHandshakeRequest",
        "SaslHandshakeResponse",
    ),
    "sync_group": (
        "SyncGroupRequest",
        "SyncGroupRequestAssignment",
        "SyncGroupResponse",
    ),
    "txn_offset_commit": (
        "TxnOffsetCommitRequest",
        "TxnOffsetCommitRequestPartition",
        "TxnOffsetCommitRequestTopic",
        "TxnOffsetCommitResponse",
        "TxnOffsetCommitResponsePartition",
        "TxnOffsetCommitResponseTopic",
    ),
    "requests": ("REQUESTS",),
    "write_txn_markers": (
        "WritableTxnMarker",
        "WritableTxnMarkerPartitionResult",
        "WritableTxnMarkerResult",
        "WritableTxnMarkerTopic",
        "WritableTxnMarkerTopicResult",
        "WriteTxnMarkersRequest",
        "WriteTxnMarkersResponse",
    ),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
