"""The error codes of brokers, and how Kafka's clients interpret them.

Names and numbers are those of ``Errors`` in Java. A code is retriable if its exception there is a RetriableException, and
means outdated metadata if it is an InvalidMetadataException. The meaning for a *particular* request is in the tables of
`core.produce_error_codes` and `core.transactions.error_codes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType

from aioproducer.errors import BrokerError

__all__ = ["ErrorCode", "broker_error"]


class ErrorCode(IntEnum):
    """Kafka's error codes. ``text`` describes the error."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed later without a change by the user."""
        return self in _RETRIABLE or self in _INVALID_METADATA

    @property
    def invalid_metadata(self) -> bool:
        """Whether the metadata are out of date and must be refreshed; such a code is retriable."""
        return self in _INVALID_METADATA

    @property
    def text(self) -> str:
        """A description of the error, as a sentence."""
        return _TEXTS[self]


def broker_error(code: int, message: str | None = None) -> BrokerError:
    """The exception for an error code, with the broker's own message if it sent one.

    An unknown number comes from a newer broker; it is named UNKNOWN_<number> and not retriable.
    """
    try:
        known = ErrorCode(code)
    except ValueError:
        unknown = "The broker returned an error that this version of aioproducer does not know."
        return BrokerError(code, f"UNKNOWN_{code}", message or unknown)
    return BrokerError(known.value, known.name, message or known.text, retriable=known.retriable)


_INVALID_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)

#: Retriable codes that are not in _INVALID_METADATA.
_RETRIABLE = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)

_TEXTS: Mapping[int, str] = MappingProxyType(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR: ("An unexpected error occurred inside the broker; see its log."),
        ErrorCode.NONE: "No error.",
        ErrorCode.OFFSET_OUT_OF_RANGE: (
            "The partition does not have this offset: it is before the log start or after its end."
        ),
        ErrorCode.CORRUPT_MESSAGE: (
            "A record batch arrived damaged (CRC or size), or a record for a compacted topic has no key."
        ),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "The broker does not know this topic or partition.",
        ErrorCode.INVALID_FETCH_SIZE: "The requested size is not valid.",
        ErrorCode.LEADER_NOT_AVAILABLE: "The partition currently has no leader; an election is probably in progress.",
        ErrorCode.NOT_LEADER_OR_FOLLOWER: "The broker is no longer the leader of this partition, or has no replica of it.",
        ErrorCode.REQUEST_TIMED_OUT: "The broker could not complete the request within its timeout.",
        ErrorCode.BROKER_NOT_AVAILABLE: "That broker is not available.",
        ErrorCode.REPLICA_NOT_AVAILABLE: "The replica is not available here.",
        ErrorCode.MESSAGE_TOO_LARGE: "The batch is larger than the topic or the broker allows (max.message.bytes).",
        ErrorCode.STALE_CONTROLLER_EPOCH: "The controller has moved to another broker.",
        ErrorCode.OFFSET_METADATA_TOO_LARGE: "The metadata string of an offset is too long.",
        ErrorCode.NETWORK_EXCEPTION: "The connection was lost before a response arrived.",
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "The coordinator is still loading its state.",
        ErrorCode.COORDINATOR_NOT_AVAILABLE: "There is currently no coordinator, or it is not available.",
        ErrorCode.NOT_COORDINATOR: "This broker is no longer the coordinator.",
        ErrorCode.INVALID_TOPIC_EXCEPTION: "The topic name is not valid, or the topic may not be written to.",
        ErrorCode.RECORD_LIST_TOO_LARGE: "The batch is larger than a segment of the log (segment.bytes).",
        ErrorCode.NOT_ENOUGH_REPLICAS: (
            "Nothing was written: fewer replicas are in sync than min.insync.replicas requires."
        ),
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: (
            "The leader wrote the batch, and then too few replicas were in sync to confirm it."
        ),
        ErrorCode.INVALID_REQUIRED_ACKS: "acks must be 0, 1 or -1 (all).",
        ErrorCode.ILLEGAL_GENERATION: "The generation of the consumer group is outdated.",
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "The member shares no protocol with the rest of its group.",
        ErrorCode.INVALID_GROUP_ID: "The group id is not valid.",
        ErrorCode.UNKNOWN_MEMBER_ID: "The coordinator does not know this member of the group.",
        ErrorCode.INVALID_SESSION_TIMEOUT: (
            "The session timeout is outside of what the broker allows (group.min/max.session.timeout.ms)."
        ),
        ErrorCode.REBALANCE_IN_PROGRESS: "The group is rebalancing; its members have to join again.",
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE: "The committed offset data are too large to be stored.",
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: (
            "The principal has no permission for this operation on the topic; producing needs WRITE."
        ),
        ErrorCode.GROUP_AUTHORIZATION_FAILED: (
            "The principal has no permission for this operation on the group; committing offsets needs READ."
        ),
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED: (
            "The principal has no permission for this operation on the cluster; an idempotent producer needs "
            "IDEMPOTENT_WRITE on the cluster, or WRITE on any topic."
        ),
        ErrorCode.INVALID_TIMESTAMP: "The timestamp of a record is too far from the broker's time.",
        ErrorCode.UNSUPPORTED_SASL_MECHANISM: "The broker has not enabled this SASL mechanism.",
        ErrorCode.ILLEGAL_SASL_STATE: "The request is not valid in the current state of authentication.",
        ErrorCode.UNSUPPORTED_VERSION: "The broker does not support this version of the request.",
        ErrorCode.TOPIC_ALREADY_EXISTS: "A topic of this name already exists.",
        ErrorCode.INVALID_PARTITIONS: "The number of partitions is not valid.",
        ErrorCode.INVALID_REPLICATION_FACTOR: "The replication factor is below 1, or higher than the number of brokers.",
        ErrorCode.INVALID_REPLICA_ASSIGNMENT: "The replica assignment is not valid.",
        ErrorCode.INVALID_CONFIG: "A configuration is not valid.",
        ErrorCode.NOT_CONTROLLER: "This broker is not the controller.",
        ErrorCode.INVALID_REQUEST: "The broker could not interpret the request; see its log.",
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "The topic's message format is too old for this request.",
        ErrorCode.POLICY_VIOLATION: "A policy of the cluster forbids this.",
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: (
            "The broker expected another sequence number from this producer: a batch before this one is missing."
        ),
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER: "The broker has already written a batch with this sequence number.",
        ErrorCode.INVALID_PRODUCER_EPOCH: "The producer's epoch is older than the one that the broker knows.",
        ErrorCode.INVALID_TXN_STATE: "The operation is not valid in the transaction's current state.",
        ErrorCode.INVALID_PRODUCER_ID_MAPPING: (
            "The broker does not know the producer id, or it no longer belongs to the transactional id."
        ),
        ErrorCode.INVALID_TRANSACTION_TIMEOUT: (
            "The transaction timeout is longer than the broker allows (transaction.max.timeout.ms)."
        ),
        ErrorCode.CONCURRENT_TRANSACTIONS: (
            "The coordinator is still busy with an earlier step of the same transaction."
        ),
        ErrorCode.TRANSACTION_COORDINATOR_FENCED: ("The transaction coordinator that wrote this has been replaced."),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
            "The principal has no permission to use this transactional id; a transactional producer needs WRITE."
        ),
        ErrorCode.SECURITY_DISABLED: "The required security feature is disabled on the broker.",
        ErrorCode.OPERATION_NOT_ATTEMPTED: (
            "The broker did not try this part, because another part of the request failed."
        ),
        ErrorCode.KAFKA_STORAGE_ERROR: "The disk of the broker failed.",
        ErrorCode.LOG_DIR_NOT_FOUND: "The broker has no such log directory.",
        ErrorCode.SASL_AUTHENTICATION_FAILED: "The broker refused the credentials.",
        ErrorCode.UNKNOWN_PRODUCER_ID: (
            "The broker has no state of this producer in this partition; its records there were deleted or expired."
        ),
        ErrorCode.REASSIGNMENT_IN_PROGRESS: "The partition is being moved.",
        ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "The broker does not use delegation tokens.",
        ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "There is no such delegation token.",
        ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "The principal neither owns this delegation token nor may renew it.",
        ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: (
            "Delegation token requests are not allowed over a connection with this authentication."
        ),
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: (
            "The principal has no permission for this operation on the delegation token."
        ),
        ErrorCode.DELEGATION_TOKEN_EXPIRED: "The delegation token has expired.",
        ErrorCode.INVALID_PRINCIPAL_TYPE: "The broker does not know this type of principal.",
        ErrorCode.NON_EMPTY_GROUP: "The group still has members.",
        ErrorCode.GROUP_ID_NOT_FOUND: "There is no such group.",
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND: "The broker has forgotten this fetch session.",
        ErrorCode.INVALID_FETCH_SESSION_EPOCH: "The epoch of the fetch session is not the expected one.",
        ErrorCode.LISTENER_NOT_FOUND: "The leader has no listener that matches the one of the request.",
        ErrorCode.TOPIC_DELETION_DISABLED: "The cluster does not allow topics to be deleted (delete.topic.enable).",
        ErrorCode.FENCED_LEADER_EPOCH: "The client's leader epoch is older than the broker's.",
        ErrorCode.UNKNOWN_LEADER_EPOCH: "The client's leader epoch is newer than the broker's.",
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: (
            "This version of the request cannot carry the compression of the batch."
        ),
        ErrorCode.STALE_BROKER_EPOCH: "The epoch of the broker has changed.",
        ErrorCode.OFFSET_NOT_AVAILABLE: "The new leader does not know its high watermark yet.",
        ErrorCode.MEMBER_ID_REQUIRED: "The member has to join again with its assigned id.",
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader is not available.",
        ErrorCode.GROUP_MAX_SIZE_REACHED: "The group has reached the broker's maximum number of members.",
        ErrorCode.FENCED_INSTANCE_ID: "Another member has taken over this group.instance.id.",
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "No replica that could become the leader is available.",
        ErrorCode.ELECTION_NOT_NEEDED: "The partition already has the preferred leader.",
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "The partition is not being moved.",
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: (
            "The group is subscribed to this topic; its offsets cannot be deleted now."
        ),
        ErrorCode.INVALID_RECORD: "The broker refused a record of the batch, and so the whole batch.",
        ErrorCode.UNSTABLE_OFFSET_COMMIT: "There are unstable offsets of a transaction that has not ended.",
        ErrorCode.THROTTLING_QUOTA_EXCEEDED: "A quota is exceeded; retry later.",
        ErrorCode.PRODUCER_FENCED: "A newer producer uses the same transactional id.",
        ErrorCode.RESOURCE_NOT_FOUND: "The requested resource does not exist.",
        ErrorCode.DUPLICATE_RESOURCE: "The request contains a resource twice.",
        ErrorCode.UNACCEPTABLE_CREDENTIAL: "The credential does not meet the rules of the cluster.",
        ErrorCode.INCONSISTENT_VOTER_SET: "The sender or the receiver is not one of the expected voters.",
        ErrorCode.INVALID_UPDATE_VERSION: "The version to update to is not valid.",
        ErrorCode.FEATURE_UPDATE_FAILED: "The features could not be updated; see the controller's log.",
        ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE: (
            "The broker could not read the forwarded principal of the request: its security setup is broken."
        ),
        ErrorCode.SNAPSHOT_NOT_FOUND: "There is no such snapshot.",
        ErrorCode.POSITION_OUT_OF_RANGE: "The snapshot does not have this position.",
        ErrorCode.UNKNOWN_TOPIC_ID: (
            "The broker does not know this topic id; the topic may have been deleted and created again."
        ),
        ErrorCode.DUPLICATE_BROKER_REGISTRATION: "The broker id is in use.",
        ErrorCode.BROKER_ID_NOT_REGISTERED: "The broker id is not registered.",
        ErrorCode.INCONSISTENT_TOPIC_ID: "The log belongs to a topic with another id.",
        ErrorCode.INCONSISTENT_CLUSTER_ID: "The broker belongs to a different cluster than expected.",
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "The coordinator does not know this transactional id.",
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: "The fetch session mixes topic ids and names.",
        ErrorCode.INELIGIBLE_REPLICA: "The request names a replica as in-sync that is not eligible.",
        ErrorCode.NEW_LEADER_ELECTED: "The change was applied, and the partition has a new leader.",
        ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE: "The offset is in tiered storage now.",
        ErrorCode.FENCED_MEMBER_EPOCH: (
            "The group has fenced this epoch of the member, which has to give up its partitions and join again."
        ),
        ErrorCode.UNRELEASED_INSTANCE_ID: "Another member of the group still uses this instance id.",
        ErrorCode.UNSUPPORTED_ASSIGNOR: "The group does not support this assignor, or not this version of it.",
        ErrorCode.STALE_MEMBER_EPOCH: "The epoch of the member is out of date; the next heartbeat returns the new one.",
        ErrorCode.MISMATCHED_ENDPOINT_TYPE: "The request went to the wrong kind of endpoint: broker or controller.",
        ErrorCode.UNSUPPORTED_ENDPOINT_TYPE: "This kind of endpoint is not supported.",
        ErrorCode.UNKNOWN_CONTROLLER_ID: "There is no such controller.",
        ErrorCode.UNKNOWN_SUBSCRIPTION_ID: "The telemetry subscription is unknown or out of date.",
        ErrorCode.TELEMETRY_TOO_LARGE: "The telemetry is larger than the broker accepts.",
        ErrorCode.INVALID_REGISTRATION: "The controller refused the registration of the broker.",
        ErrorCode.TRANSACTION_ABORTABLE: (
            "The transaction cannot continue; after an abort the transactional id can be used again."
        ),
        ErrorCode.INVALID_RECORD_STATE: "The record is not in a state in which its delivery can be acknowledged.",
        ErrorCode.SHARE_SESSION_NOT_FOUND: "The broker has forgotten this share session.",
        ErrorCode.INVALID_SHARE_SESSION_EPOCH: "The epoch of the share session is not the expected one.",
        ErrorCode.FENCED_STATE_EPOCH: "The share coordinator knows another epoch of the share group's state.",
        ErrorCode.INVALID_VOTER_KEY: "The voter key does not match the replica that received the request.",
        ErrorCode.DUPLICATE_VOTER: "The voter is already in the set of voters.",
        ErrorCode.VOTER_NOT_FOUND: "The voter is not in the set of voters.",
        ErrorCode.INVALID_REGULAR_EXPRESSION: "The regular expression is not valid.",
        ErrorCode.REBOOTSTRAP_REQUIRED: (
            "The brokers that the client knows are no longer valid; it has to restart from its bootstrap servers."
        ),
        ErrorCode.STREAMS_INVALID_TOPOLOGY: "The topology of the Kafka Streams application is not valid.",
        ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH: "The epoch of the Kafka Streams topology is not valid.",
        ErrorCode.STREAMS_TOPOLOGY_FENCED: "The epoch of the Kafka Streams topology is out of date.",
        ErrorCode.SHARE_SESSION_LIMIT_REACHED: "The broker has reached its maximum number of share sessions.",
    }
)
