"""aiokafka's exceptions by their names, for programs that catch them.

A class here has the name, base classes, ``errno``, ``message`` and ``retriable`` of aiokafka's. If the program has imported
``aiokafka.errors`` when an exception is raised, the exception is an instance of aiokafka's class of that name as well: an
``except aiokafka.errors.KafkaError`` catches it. aiokafka itself is never imported here, and need not be installed.

``__cause__`` is aioproducer's own error, which says more: `NotWritten` or `Unknown`, and why.
"""

from __future__ import annotations

import sys
from typing import Any, Final, TypeVar, cast

__all__ = [
    "AuthenticationFailedError",
    "AuthenticationMethodNotSupported",
    "BrokerNotAvailableError",
    "BrokerResponseError",
    "Cancelled",
    "ClusterAuthorizationFailedError",
    "CommitFailedError",
    "ConcurrentTransactions",
    "ConsumerStoppedError",
    "CoordinatorLoadInProgressError",
    "CoordinatorNotAvailableError",
    "CorrelationIdError",
    "CorruptRecordException",
    "DelegationTokenAuthDisabled",
    "DelegationTokenAuthorizationFailed",
    "DelegationTokenExpired",
    "DelegationTokenNotFound",
    "DelegationTokenOwnerMismatch",
    "DelegationTokenRequestNotAllowed",
    "DuplicateSequenceNumber",
    "FetchSessionIdNotFound",
    "GroupAuthorizationFailedError",
    "GroupCoordinatorNotAvailableError",
    "GroupIdNotFound",
    "GroupLoadInProgressError",
    "IllegalArgumentError",
    "IllegalGenerationError",
    "IllegalOperation",
    "IllegalSaslStateError",
    "IllegalStateError",
    "IncompatibleBrokerVersion",
    "InconsistentGroupProtocolError",
    "InvalidCommitOffsetSizeError",
    "InvalidConfigurationError",
    "InvalidFetchRequestError",
    "InvalidFetchSessionEpoch",
    "InvalidGroupIdError",
    "InvalidMessageError",
    "InvalidPartitionsError",
    "InvalidPrincipalType",
    "InvalidProducerEpoch",
    "InvalidProducerIdMapping",
    "InvalidReplicationAssignmentError",
    "InvalidReplicationFactorError",
    "InvalidRequestError",
    "InvalidRequiredAcksError",
    "InvalidSessionTimeoutError",
    "InvalidTimestampError",
    "InvalidTopicError",
    "InvalidTransactionTimeout",
    "InvalidTxnState",
    "KafkaConfigurationError",
    "KafkaConnectionError",
    "KafkaError",
    "KafkaProtocolError",
    "KafkaStorageError",
    "KafkaTimeoutError",
    "KafkaUnavailableError",
    "LeaderNotAvailableError",
    "ListenerNotFound",
    "LogDirNotFound",
    "MemberIdRequired",
    "MessageSizeTooLargeError",
    "MetadataEmptyBrokerList",
    "NoBrokersAvailable",
    "NoError",
    "NoOffsetForPartitionError",
    "NodeNotReadyError",
    "NonEmptyGroup",
    "NotControllerError",
    "NotCoordinatorError",
    "NotCoordinatorForGroupError",
    "NotEnoughReplicasAfterAppendError",
    "NotEnoughReplicasError",
    "NotLeaderForPartitionError",
    "OffsetMetadataTooLargeError",
    "OffsetOutOfRangeError",
    "OperationNotAttempted",
    "OutOfOrderSequenceNumber",
    "PolicyViolationError",
    "ProducerClosed",
    "ProducerFenced",
    "QuotaViolationError",
    "ReassignmentInProgress",
    "RebalanceInProgressError",
    "RecordListTooLargeError",
    "RecordTooLargeError",
    "ReplicaNotAvailableError",
    "RequestTimedOutError",
    "SaslAuthenticationFailed",
    "SecurityDisabled",
    "StaleControllerEpochError",
    "StaleLeaderEpochCodeError",
    "StaleMetadata",
    "TooManyInFlightRequests",
    "TopicAlreadyExistsError",
    "TopicAuthorizationFailedError",
    "TransactionCoordinatorFenced",
    "TransactionalIdAuthorizationFailed",
    "UnknownError",
    "UnknownMemberIdError",
    "UnknownProducerId",
    "UnknownTopicOrPartitionError",
    "UnrecognizedBrokerVersion",
    "UnsupportedCodecError",
    "UnsupportedForMessageFormatError",
    "UnsupportedSaslMechanismError",
    "UnsupportedVersionError",
    "for_code",
    "in_both_hierarchies",
]

_E = TypeVar("_E", bound=Exception)


class KafkaError(RuntimeError):
    """The base class of aiokafka's exceptions, except `IllegalOperation`."""

    #: Whether the same call may succeed later.
    retriable = False
    #: Whether the metadata of the cluster are out of date.
    invalid_metadata = False


class IllegalStateError(KafkaError):
    """The producer's state does not allow this call."""


class IllegalArgumentError(KafkaError):
    """An argument is invalid."""


class NoBrokersAvailable(KafkaError):
    """No broker can be reached."""

    retriable = True
    invalid_metadata = True


class NodeNotReadyError(KafkaError):
    """A broker is not connected."""

    retriable = True


class KafkaProtocolError(KafkaError):
    """A peer sent bytes that are not valid in Kafka's protocol."""

    retriable = True


class CorrelationIdError(KafkaProtocolError):
    """A response does not belong to the request."""


class Cancelled(KafkaError):
    """A request was abandoned."""

    retriable = True


class TooManyInFlightRequests(KafkaError):
    """A connection has too many requests in flight."""

    retriable = True


class StaleMetadata(KafkaError):
    """The metadata are too old to be used."""

    retriable = True
    invalid_metadata = True


class MetadataEmptyBrokerList(KafkaError):
    """The metadata have no broker."""

    retriable = True


class UnrecognizedBrokerVersion(KafkaError):
    """The version of a broker is unknown."""


class IncompatibleBrokerVersion(KafkaError):
    """A broker does not support a request version that is needed."""


class CommitFailedError(KafkaError):
    """The consumer group refused the offsets, because it has a new generation."""


class AuthenticationMethodNotSupported(KafkaError):
    """The broker does not support this SASL mechanism."""


class AuthenticationFailedError(KafkaError):
    """The broker refused the credentials."""


class KafkaUnavailableError(KafkaError):
    """The cluster is unavailable."""


class KafkaTimeoutError(KafkaError):
    """A call or a record ran out of time."""


class KafkaConnectionError(KafkaError):
    """A connection to a broker failed or could not be opened."""

    retriable = True
    invalid_metadata = True


class UnsupportedCodecError(KafkaError):
    """The library for a compression is missing."""


class KafkaConfigurationError(KafkaError):
    """An option is invalid."""


class QuotaViolationError(KafkaError):
    """The client exceeded a quota."""


class ConsumerStoppedError(Exception):
    """A consumer was stopped; a producer never raises this."""


class IllegalOperation(Exception):
    """The transaction's state does not allow this call; not a `KafkaError`, as in aiokafka."""


class NoOffsetForPartitionError(KafkaError):
    """A consumer has no position; a producer never raises this."""


class RecordTooLargeError(KafkaError):
    """A consumer cannot read a record that large; a producer never raises this."""


class ProducerClosed(KafkaError):
    """The producer is stopped, or ended before the record was sent."""


class ProducerFenced(KafkaError):
    """Another producer with the same transactional_id took over, or the transaction took too long."""


class BrokerResponseError(KafkaError):
    """The broker answered with an error; ``errno`` is its code."""

    errno: int
    message: str


class UnknownError(BrokerResponseError):
    """An error of a broker that has no other class here."""

    errno = -1
    message = "UNKNOWN"


class NoError(BrokerResponseError):
    """No error; never raised."""

    errno = 0
    message = "NO_ERROR"


class OffsetOutOfRangeError(BrokerResponseError):
    """A broker's error 1."""

    errno = 1
    message = "OFFSET_OUT_OF_RANGE"


class CorruptRecordException(BrokerResponseError):
    """A broker's error 2."""

    errno = 2
    message = "CORRUPT_MESSAGE"


class UnknownTopicOrPartitionError(BrokerResponseError):
    """A broker's error 3."""

    errno = 3
    message = "UNKNOWN_TOPIC_OR_PARTITION"
    retriable = True
    invalid_metadata = True


class InvalidFetchRequestError(BrokerResponseError):
    """A broker's error 4."""

    errno = 4
    message = "INVALID_FETCH_SIZE"


class LeaderNotAvailableError(BrokerResponseError):
    """A broker's error 5."""

    errno = 5
    message = "LEADER_NOT_AVAILABLE"
    retriable = True
    invalid_metadata = True


class NotLeaderForPartitionError(BrokerResponseError):
    """A broker's error 6."""

    errno = 6
    message = "NOT_LEADER_FOR_PARTITION"
    retriable = True
    invalid_metadata = True


class RequestTimedOutError(BrokerResponseError):
    """A broker's error 7."""

    errno = 7
    message = "REQUEST_TIMED_OUT"
    retriable = True


class BrokerNotAvailableError(BrokerResponseError):
    """A broker's error 8."""

    errno = 8
    message = "BROKER_NOT_AVAILABLE"


class ReplicaNotAvailableError(BrokerResponseError):
    """A broker's error 9."""

    errno = 9
    message = "REPLICA_NOT_AVAILABLE"


class MessageSizeTooLargeError(BrokerResponseError):
    """A broker's error 10."""

    errno = 10
    message = "MESSAGE_SIZE_TOO_LARGE"


class StaleControllerEpochError(BrokerResponseError):
    """A broker's error 11."""

    errno = 11
    message = "STALE_CONTROLLER_EPOCH"


class OffsetMetadataTooLargeError(BrokerResponseError):
    """A broker's error 12."""

    errno = 12
    message = "OFFSET_METADATA_TOO_LARGE"


class StaleLeaderEpochCodeError(BrokerResponseError):
    """A broker's error 13."""

    errno = 13
    message = "STALE_LEADER_EPOCH_CODE"


class GroupLoadInProgressError(BrokerResponseError):
    """A broker's error 14."""

    errno = 14
    message = "COORDINATOR_LOAD_IN_PROGRESS"
    retriable = True


class GroupCoordinatorNotAvailableError(BrokerResponseError):
    """A broker's error 15."""

    errno = 15
    message = "COORDINATOR_NOT_AVAILABLE"
    retriable = True


class NotCoordinatorForGroupError(BrokerResponseError):
    """A broker's error 16."""

    errno = 16
    message = "NOT_COORDINATOR"
    retriable = True


class InvalidTopicError(BrokerResponseError):
    """A broker's error 17."""

    errno = 17
    message = "INVALID_TOPIC"


class RecordListTooLargeError(BrokerResponseError):
    """A broker's error 18."""

    errno = 18
    message = "RECORD_LIST_TOO_LARGE"


class NotEnoughReplicasError(BrokerResponseError):
    """A broker's error 19."""

    errno = 19
    message = "NOT_ENOUGH_REPLICAS"
    retriable = True


class NotEnoughReplicasAfterAppendError(BrokerResponseError):
    """A broker's error 20."""

    errno = 20
    message = "NOT_ENOUGH_REPLICAS_AFTER_APPEND"
    retriable = True


class InvalidRequiredAcksError(BrokerResponseError):
    """A broker's error 21."""

    errno = 21
    message = "INVALID_REQUIRED_ACKS"


class IllegalGenerationError(BrokerResponseError):
    """A broker's error 22."""

    errno = 22
    message = "ILLEGAL_GENERATION"


class InconsistentGroupProtocolError(BrokerResponseError):
    """A broker's error 23."""

    errno = 23
    message = "INCONSISTENT_GROUP_PROTOCOL"


class InvalidGroupIdError(BrokerResponseError):
    """A broker's error 24."""

    errno = 24
    message = "INVALID_GROUP_ID"


class UnknownMemberIdError(BrokerResponseError):
    """A broker's error 25."""

    errno = 25
    message = "UNKNOWN_MEMBER_ID"


class InvalidSessionTimeoutError(BrokerResponseError):
    """A broker's error 26."""

    errno = 26
    message = "INVALID_SESSION_TIMEOUT"


class RebalanceInProgressError(BrokerResponseError):
    """A broker's error 27."""

    errno = 27
    message = "REBALANCE_IN_PROGRESS"


class InvalidCommitOffsetSizeError(BrokerResponseError):
    """A broker's error 28."""

    errno = 28
    message = "INVALID_COMMIT_OFFSET_SIZE"


class TopicAuthorizationFailedError(BrokerResponseError):
    """A broker's error 29."""

    errno = 29
    message = "TOPIC_AUTHORIZATION_FAILED"


class GroupAuthorizationFailedError(BrokerResponseError):
    """A broker's error 30."""

    errno = 30
    message = "GROUP_AUTHORIZATION_FAILED"


class ClusterAuthorizationFailedError(BrokerResponseError):
    """A broker's error 31."""

    errno = 31
    message = "CLUSTER_AUTHORIZATION_FAILED"


class InvalidTimestampError(BrokerResponseError):
    """A broker's error 32."""

    errno = 32
    message = "INVALID_TIMESTAMP"


class UnsupportedSaslMechanismError(BrokerResponseError):
    """A broker's error 33."""

    errno = 33
    message = "UNSUPPORTED_SASL_MECHANISM"


class IllegalSaslStateError(BrokerResponseError):
    """A broker's error 34."""

    errno = 34
    message = "ILLEGAL_SASL_STATE"


class UnsupportedVersionError(BrokerResponseError):
    """A broker's error 35."""

    errno = 35
    message = "UNSUPPORTED_VERSION"


class TopicAlreadyExistsError(BrokerResponseError):
    """A broker's error 36."""

    errno = 36
    message = "TOPIC_ALREADY_EXISTS"


class InvalidPartitionsError(BrokerResponseError):
    """A broker's error 37."""

    errno = 37
    message = "INVALID_PARTITIONS"


class InvalidReplicationFactorError(BrokerResponseError):
    """A broker's error 38."""

    errno = 38
    message = "INVALID_REPLICATION_FACTOR"


class InvalidReplicationAssignmentError(BrokerResponseError):
    """A broker's error 39."""

    errno = 39
    message = "INVALID_REPLICATION_ASSIGNMENT"


class InvalidConfigurationError(BrokerResponseError):
    """A broker's error 40."""

    errno = 40
    message = "INVALID_CONFIG"


class NotControllerError(BrokerResponseError):
    """A broker's error 41."""

    errno = 41
    message = "NOT_CONTROLLER"
    retriable = True


class InvalidRequestError(BrokerResponseError):
    """A broker's error 42."""

    errno = 42
    message = "INVALID_REQUEST"


class UnsupportedForMessageFormatError(BrokerResponseError):
    """A broker's error 43."""

    errno = 43
    message = "UNSUPPORTED_FOR_MESSAGE_FORMAT"


class PolicyViolationError(BrokerResponseError):
    """A broker's error 44."""

    errno = 44
    message = "POLICY_VIOLATION"


class OutOfOrderSequenceNumber(BrokerResponseError):
    """A broker's error 45."""

    errno = 45
    message = "OUT_OF_ORDER_SEQUENCE_NUMBER"


class DuplicateSequenceNumber(BrokerResponseError):
    """A broker's error 46."""

    errno = 46
    message = "DUPLICATE_SEQUENCE_NUMBER"


class InvalidProducerEpoch(BrokerResponseError):
    """A broker's error 47."""

    errno = 47
    message = "INVALID_PRODUCER_EPOCH"


class InvalidTxnState(BrokerResponseError):
    """A broker's error 48."""

    errno = 48
    message = "INVALID_TXN_STATE"


class InvalidProducerIdMapping(BrokerResponseError):
    """A broker's error 49."""

    errno = 49
    message = "INVALID_PRODUCER_ID_MAPPING"


class InvalidTransactionTimeout(BrokerResponseError):
    """A broker's error 50."""

    errno = 50
    message = "INVALID_TRANSACTION_TIMEOUT"


class ConcurrentTransactions(BrokerResponseError):
    """A broker's error 51."""

    errno = 51
    message = "CONCURRENT_TRANSACTIONS"


class TransactionCoordinatorFenced(BrokerResponseError):
    """A broker's error 52."""

    errno = 52
    message = "TRANSACTION_COORDINATOR_FENCED"


class TransactionalIdAuthorizationFailed(BrokerResponseError):
    """A broker's error 53."""

    errno = 53
    message = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


class SecurityDisabled(BrokerResponseError):
    """A broker's error 54."""

    errno = 54
    message = "SECURITY_DISABLED"


class OperationNotAttempted(BrokerResponseError):
    """A broker's error 55."""

    errno = 55
    message = "OPERATION_NOT_ATTEMPTED"


class KafkaStorageError(BrokerResponseError):
    """A broker's error 56."""

    errno = 56
    message = "KAFKA_STORAGE_ERROR"
    retriable = True
    invalid_metadata = True


class LogDirNotFound(BrokerResponseError):
    """A broker's error 57."""

    errno = 57
    message = "LOG_DIR_NOT_FOUND"


class SaslAuthenticationFailed(BrokerResponseError):
    """A broker's error 58."""

    errno = 58
    message = "SASL_AUTHENTICATION_FAILED"


class UnknownProducerId(BrokerResponseError):
    """A broker's error 59."""

    errno = 59
    message = "UNKNOWN_PRODUCER_ID"


class ReassignmentInProgress(BrokerResponseError):
    """A broker's error 60."""

    errno = 60
    message = "REASSIGNMENT_IN_PROGRESS"


class DelegationTokenAuthDisabled(BrokerResponseError):
    """A broker's error 61."""

    errno = 61
    message = "DELEGATION_TOKEN_AUTH_DISABLED"


class DelegationTokenNotFound(BrokerResponseError):
    """A broker's error 62."""

    errno = 62
    message = "DELEGATION_TOKEN_NOT_FOUND"


class DelegationTokenOwnerMismatch(BrokerResponseError):
    """A broker's error 63."""

    errno = 63
    message = "DELEGATION_TOKEN_OWNER_MISMATCH"


class DelegationTokenRequestNotAllowed(BrokerResponseError):
    """A broker's error 64."""

    errno = 64
    message = "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"


class DelegationTokenAuthorizationFailed(BrokerResponseError):
    """A broker's error 65."""

    errno = 65
    message = "DELEGATION_TOKEN_AUTHORIZATION_FAILED"


class DelegationTokenExpired(BrokerResponseError):
    """A broker's error 66."""

    errno = 66
    message = "DELEGATION_TOKEN_EXPIRED"


class InvalidPrincipalType(BrokerResponseError):
    """A broker's error 67."""

    errno = 67
    message = "INVALID_PRINCIPAL_TYPE"


class NonEmptyGroup(BrokerResponseError):
    """A broker's error 68."""

    errno = 68
    message = "NON_EMPTY_GROUP"


class GroupIdNotFound(BrokerResponseError):
    """A broker's error 69."""

    errno = 69
    message = "GROUP_ID_NOT_FOUND"


class FetchSessionIdNotFound(BrokerResponseError):
    """A broker's error 70."""

    errno = 70
    message = "FETCH_SESSION_ID_NOT_FOUND"


class InvalidFetchSessionEpoch(BrokerResponseError):
    """A broker's error 71."""

    errno = 71
    message = "INVALID_FETCH_SESSION_EPOCH"


class ListenerNotFound(BrokerResponseError):
    """A broker's error 72."""

    errno = 72
    message = "LISTENER_NOT_FOUND"


class MemberIdRequired(BrokerResponseError):
    """A broker's error 79."""

    errno = 79
    message = "MEMBER_ID_REQUIRED"


InvalidMessageError = CorruptRecordException
CoordinatorLoadInProgressError = GroupLoadInProgressError
CoordinatorNotAvailableError = GroupCoordinatorNotAvailableError
NotCoordinatorError = NotCoordinatorForGroupError

_BY_CODE: Final = {kind.errno: kind for kind in BrokerResponseError.__subclasses__()}


def for_code(error_code: int) -> type[BrokerResponseError]:
    """Return the class for a broker's error code; `UnknownError` for an unknown code."""
    return _BY_CODE.get(error_code, UnknownError)


#: The subclasses of our class and aiokafka's, by these two.
_JOINED: Final[dict[tuple[type[Exception], type[Exception]], type[Exception]]] = {}


def in_both_hierarchies(kind: type[_E], *args: object) -> _E:
    """Return an instance of ``kind``, and of aiokafka's class of that name if ``aiokafka.errors`` is imported."""
    theirs: Any = getattr(sys.modules.get("aiokafka.errors"), kind.__name__, None)
    if theirs is None:
        return kind(*args)
    joined = _JOINED.get((kind, theirs))
    if joined is None:
        joined = _JOINED[kind, theirs] = _subclass_of_both(kind, theirs)
    return cast("_E", joined(*args))


def _subclass_of_both(kind: type[Exception], theirs: type[Exception]) -> type[Exception]:
    """A class with the common name of both; its instances are pickled and copied by that name."""
    namespace = {"__module__": kind.__module__, "__doc__": kind.__doc__, "__str__": kind.__str__, "__reduce__": _reduce}
    return type(kind.__name__, (kind, theirs), namespace)


def _reduce(error: Exception) -> tuple[object, ...]:
    return _restored, (type(error).__name__, error.args)


def _restored(name: str, args: tuple[object, ...]) -> Exception:
    kind: type[Exception] = globals()[name]
    return in_both_hierarchies(kind, *args)
