"""librdkafka's error codes and their texts, as confluent-kafka 2.16 has them."""

# ruff: noqa: E501 - the texts are librdkafka's

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["TEXTS", "Codes"]


class Codes:
    """The codes as constants: negative ones are of the client, the others are of brokers."""

    _BAD_MSG = -199
    _BAD_COMPRESSION = -198
    _DESTROY = -197
    _FAIL = -196
    _TRANSPORT = -195
    _CRIT_SYS_RESOURCE = -194
    _RESOLVE = -193
    _MSG_TIMED_OUT = -192
    _PARTITION_EOF = -191
    _UNKNOWN_PARTITION = -190
    _FS = -189
    _UNKNOWN_TOPIC = -188
    _ALL_BROKERS_DOWN = -187
    _INVALID_ARG = -186
    _TIMED_OUT = -185
    _QUEUE_FULL = -184
    _ISR_INSUFF = -183
    _NODE_UPDATE = -182
    _SSL = -181
    _WAIT_COORD = -180
    _UNKNOWN_GROUP = -179
    _IN_PROGRESS = -178
    _PREV_IN_PROGRESS = -177
    _EXISTING_SUBSCRIPTION = -176
    _ASSIGN_PARTITIONS = -175
    _REVOKE_PARTITIONS = -174
    _CONFLICT = -173
    _STATE = -172
    _UNKNOWN_PROTOCOL = -171
    _NOT_IMPLEMENTED = -170
    _AUTHENTICATION = -169
    _NO_OFFSET = -168
    _OUTDATED = -167
    _TIMED_OUT_QUEUE = -166
    _UNSUPPORTED_FEATURE = -165
    _WAIT_CACHE = -164
    _INTR = -163
    _KEY_SERIALIZATION = -162
    _VALUE_SERIALIZATION = -161
    _KEY_DESERIALIZATION = -160
    _VALUE_DESERIALIZATION = -159
    _PARTIAL = -158
    _READ_ONLY = -157
    _NOENT = -156
    _UNDERFLOW = -155
    _INVALID_TYPE = -154
    _RETRY = -153
    _PURGE_QUEUE = -152
    _PURGE_INFLIGHT = -151
    _FATAL = -150
    _INCONSISTENT = -149
    _GAPLESS_GUARANTEE = -148
    _MAX_POLL_EXCEEDED = -147
    _UNKNOWN_BROKER = -146
    _NOT_CONFIGURED = -145
    _FENCED = -144
    _APPLICATION = -143
    _ASSIGNMENT_LOST = -142
    _NOOP = -141
    _AUTO_OFFSET_RESET = -140
    _LOG_TRUNCATION = -139
    _INVALID_DIFFERENT_RECORD = -138
    _DESTROY_BROKER = -137
    UNKNOWN = -1
    NO_ERROR = 0
    OFFSET_OUT_OF_RANGE = 1
    INVALID_MSG = 2
    UNKNOWN_TOPIC_OR_PART = 3
    INVALID_MSG_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_FOR_PARTITION = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MSG_SIZE_TOO_LARGE = 10
    STALE_CTRL_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    TOPIC_EXCEPTION = 17
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
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
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


#: The text of each code.
TEXTS: Final[Mapping[int, str]] = MappingProxyType(
    {
        -199: "Local: Bad message format",
        -198: "Local: Invalid compressed data",
        -197: "Local: Broker handle destroyed for termination",
        -196: "Local: Communication failure with broker",
        -195: "Local: Broker transport failure",
        -194: "Local: Critical system resource failure",
        -193: "Local: Host resolution failure",
        -192: "Local: Message timed out",
        -191: "Broker: No more messages",
        -190: "Local: Unknown partition",
        -189: "Local: File or filesystem error",
        -188: "Local: Unknown topic",
        -187: "Local: All broker connections are down",
        -186: "Local: Invalid argument or configuration",
        -185: "Local: Timed out",
        -184: "Local: Queue full",
        -183: "Local: ISR count insufficient",
        -182: "Local: Broker node update",
        -181: "Local: SSL error",
        -180: "Local: Waiting for coordinator",
        -179: "Local: Unknown group",
        -178: "Local: Operation in progress",
        -177: "Local: Previous operation in progress",
        -176: "Local: Existing subscription",
        -175: "Local: Assign partitions",
        -174: "Local: Revoke partitions",
        -173: "Local: Conflicting use",
        -172: "Local: Erroneous state",
        -171: "Local: Unknown protocol",
        -170: "Local: Not implemented",
        -169: "Local: Authentication failure",
        -168: "Local: No offset stored",
        -167: "Local: Outdated",
        -166: "Local: Timed out in queue",
        -165: "Local: Required feature not supported by broker",
        -164: "Local: Awaiting cache update",
        -163: "Local: Operation interrupted",
        -162: "Local: Key serialization error",
        -161: "Local: Value serialization error",
        -160: "Local: Key deserialization error",
        -159: "Local: Value deserialization error",
        -158: "Local: Partial response",
        -157: "Local: Read-only object",
        -156: "Local: No such entry",
        -155: "Local: Read underflow",
        -154: "Local: Invalid type",
        -153: "Local: Retry operation",
        -152: "Local: Purged in queue",
        -151: "Local: Purged in flight",
        -150: "Local: Fatal error",
        -149: "Local: Inconsistent state",
        -148: "Local: Gap-less ordering would not be guaranteed if proceeding",
        -147: "Local: Maximum application poll interval (max.poll.interval.ms) exceeded",
        -146: "Local: Unknown broker",
        -145: "Local: Functionality not configured",
        -144: "Local: This instance has been fenced by a newer instance",
        -143: "Local: Application generated error",
        -142: "Local: Group partition assignment lost",
        -141: "Local: No operation performed",
        -140: "Local: No offset to automatically reset to",
        -139: "Local: Partition log truncation detected",
        -138: "Local: an invalid record in the same batch caused the failure of this message too",
        -137: "Local: Broker handle destroyed without termination",
        -1: "Unknown broker error",
        0: "Success",
        1: "Broker: Offset out of range",
        2: "Broker: Invalid message",
        3: "Broker: Unknown topic or partition",
        4: "Broker: Invalid message size",
        5: "Broker: Leader not available",
        6: "Broker: Not leader for partition",
        7: "Broker: Request timed out",
        8: "Broker: Broker not available",
        9: "Broker: Replica not available",
        10: "Broker: Message size too large",
        11: "Broker: StaleControllerEpochCode",
        12: "Broker: Offset metadata string too large",
        13: "Broker: Broker disconnected before response received",
        14: "Broker: Coordinator load in progress",
        15: "Broker: Coordinator not available",
        16: "Broker: Not coordinator",
        17: "Broker: Invalid topic",
        18: "Broker: Message batch larger than configured server segment size",
        19: "Broker: Not enough in-sync replicas",
        20: "Broker: Message(s) written to insufficient number of in-sync replicas",
        21: "Broker: Invalid required acks value",
        22: "Broker: Specified group generation id is not valid",
        23: "Broker: Inconsistent group protocol",
        24: "Broker: Invalid group.id",
        25: "Broker: Unknown member",
        26: "Broker: Invalid session timeout",
        27: "Broker: Group rebalance in progress",
        28: "Broker: Commit offset data size is not valid",
        29: "Broker: Topic authorization failed",
        30: "Broker: Group authorization failed",
        31: "Broker: Cluster authorization failed",
        32: "Broker: Invalid timestamp",
        33: "Broker: Unsupported SASL mechanism",
        34: "Broker: Request not valid in current SASL state",
        35: "Broker: API version not supported",
        36: "Broker: Topic already exists",
        37: "Broker: Invalid number of partitions",
        38: "Broker: Invalid replication factor",
        39: "Broker: Invalid replica assignment",
        40: "Broker: Configuration is invalid",
        41: "Broker: Not controller for cluster",
        42: "Broker: Invalid request",
        43: "Broker: Message format on broker does not support request",
        44: "Broker: Policy violation",
        45: "Broker: Broker received an out of order sequence number",
        46: "Broker: Broker received a duplicate sequence number",
        47: "Broker: Producer attempted an operation with an old epoch",
        48: "Broker: Producer attempted a transactional operation in an invalid state",
        49: "Broker: Producer attempted to use a producer id which is not currently assigned to its transactional id",
        50: "Broker: Transaction timeout is larger than the maximum value allowed by the broker's max.transaction.timeout.ms",
        51: "Broker: Producer attempted to update a transaction while another concurrent operation on the same transaction was ongoing",
        52: "Broker: Indicates that the transaction coordinator sending a WriteTxnMarker is no longer the current coordinator for a given producer",
        53: "Broker: Transactional Id authorization failed",
        54: "Broker: Security features are disabled",
        55: "Broker: Operation not attempted",
        56: "Broker: Disk error when trying to access log file on disk",
        57: "Broker: The user-specified log directory is not found in the broker config",
        58: "Broker: SASL Authentication failed",
        59: "Broker: Unknown Producer Id",
        60: "Broker: Partition reassignment is in progress",
        61: "Broker: Delegation Token feature is not enabled",
        62: "Broker: Delegation Token is not found on server",
        63: "Broker: Specified Principal is not valid Owner/Renewer",
        64: "Broker: Delegation Token requests are not allowed on this connection",
        65: "Broker: Delegation Token authorization failed",
        66: "Broker: Delegation Token is expired",
        67: "Broker: Supplied principalType is not supported",
        68: "Broker: The group is not empty",
        69: "Broker: The group id does not exist",
        70: "Broker: The fetch session ID was not found",
        71: "Broker: The fetch session epoch is invalid",
        72: "Broker: No matching listener",
        73: "Broker: Topic deletion is disabled",
        74: "Broker: Leader epoch is older than broker epoch",
        75: "Broker: Leader epoch is newer than broker epoch",
        76: "Broker: Unsupported compression type",
        77: "Broker: Broker epoch has changed",
        78: "Broker: Leader high watermark is not caught up",
        79: "Broker: Group member needs a valid member ID",
        80: "Broker: Preferred leader was not available",
        81: "Broker: Consumer group has reached maximum size",
        82: "Broker: Static consumer fenced by other consumer with same group.instance.id",
        83: "Broker: Eligible partition leaders are not available",
        84: "Broker: Leader election not needed for topic partition",
        85: "Broker: No partition reassignment is in progress",
        86: "Broker: Deleting offsets of a topic while the consumer group is subscribed to it",
        87: "Broker: Broker failed to validate record",
        88: "Broker: There are unstable offsets that need to be cleared",
        89: "Broker: Throttling quota has been exceeded",
        90: "Broker: There is a newer producer with the same transactionalId which fences the current one",
        91: "Broker: Request illegally referred to resource that does not exist",
        92: "Broker: Request illegally referred to the same resource twice",
        93: "Broker: Requested credential would not meet criteria for acceptability",
        94: "Broker: Indicates that the either the sender or recipient of a voter-only request is not one of the expected voters",
        95: "Broker: Invalid update version",
        96: "Broker: Unable to update finalized features due to server error",
        97: "Broker: Request principal deserialization failed during forwarding",
        100: "Broker: Unknown topic id",
        103: "Broker: The log's topic ID did not match the topic ID in the request",
        110: "Broker: The member epoch is fenced by the group coordinator",
        111: "Broker: The instance ID is still used by another member in the consumer group",
        112: "Broker: The assignor or its version range is not supported by the consumer group",
        113: "Broker: The member epoch is stale",
        114: "Broker: The request was sent to an endpoint of the wrong type",
        115: "Broker: This endpoint type is not supported yet",
        116: "Broker: This controller ID is not known",
        117: "Broker: Client sent a push telemetry request with an invalid or outdated subscription ID",
        118: "Broker: Client sent a push telemetry request larger than the maximum size the broker will accept",
        119: "Broker: The controller has considered the broker registration to be invalid",
        120: "Broker: The server encountered an error with the transaction",
        121: "Broker: The record state is invalid",
        122: "Broker: The share session was not found",
        123: "Broker: The share session epoch is invalid",
        124: "Broker: The share-group state epoch did not match",
        125: "Broker: The voter key doesn't match the receiving replica's key",
        126: "Broker: The voter is already part of the set of voters",
        127: "Broker: The voter is not part of the set of voters",
        128: "Broker: The regular expression is not valid",
        129: "Broker: Client metadata is stale, client should rebootstrap to obtain new metadata",
        130: "Broker: The supplied topology is invalid",
        131: "Broker: The supplied topology epoch is invalid",
        132: "Broker: The supplied topology epoch is outdated",
        133: "Broker: The limit of share sessions has been reached",
    }
)
