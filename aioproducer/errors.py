"""Everything that aioproducer raises.

::

    KafkaError                          .retriable: may the same call succeed later, unchanged?
    ├── ConfigError (ValueError)        an option is unknown, malformed or contradicts another
    ├── InvalidRecord (ValueError)      this record can never be sent: wrong type, header, partition, timestamp, topic
    │   ├── RecordTooLarge              larger than max_request_size, buffer_memory or the broker's limit
    │   └── SerializationError          the serializer raised; the cause is its exception
    ├── ProducerStateError              the producer's state does not allow this call
    │   ├── NotStarted                  before `async with` / `start()`
    │   ├── ProducerClosed              after `close()`
    │   ├── WrongEventLoop              from another event loop or thread, or under trio
    │   ├── ForkedProcess               in a child process of the one that started it
    │   ├── ProducerDied                an internal task ended; the cause says why
    │   └── TransactionStateError       the transaction's state does not allow this call
    ├── TransactionError                a transaction failed; the subclass says what to do
    │   ├── TransactionAbortable        abort it; the same work may be retried in a new one
    │   │   ├── CommitFailed            the consumer group moved on: rejoin it before retrying the work
    │   │   └── SharedPartition         two writers of one transaction wrote into the same partition
    │   ├── TransactionAborted          the record was not sent, because its transaction was aborted
    │   ├── ReopenRequired              close this producer; a new one with the same transactional_id can continue
    │   │   ├── ProducerFenced          another producer with this transactional_id took over, or time ran out
    │   │   └── ProducerIdExpired       the coordinator forgot the transactional_id after a long idle time
    │   ├── TransactionFatal            stop: a retry cannot succeed
    │   └── CommitUnknown               it may be committed or not: check before retrying the work
    ├── DeliveryError                   one record was not acknowledged; .topic .partition .record .last_error
    │   ├── NotWritten                  it is certainly not in the log
    │   │   ├── NotWrittenTimeout (TimeoutError)   time ran out before it was sent
    │   │   ├── BufferFull              enqueue_nowait: no room in buffer_memory
    │   │   └── MetadataNotReady        enqueue_nowait: the topic's partitions are not known yet
    │   └── Unknown                     it may be in the log: it was sent, and no response confirms its outcome
    │       └── UnknownTimeout (TimeoutError)      time ran out while it was in flight
    ├── PartitionStopped                the cause of a NotWritten: on_data_loss="stop", and an earlier record was lost
    ├── SendManyError                   a record of send_many failed; .result .error
    ├── KafkaTimeoutError (TimeoutError)    flush(), ready() or partitions_for() ran out of time
    ├── BrokerConnectionError           a connection failed, or could not be opened
    │   └── AuthenticationError         the broker refused the credentials; not retriable
    ├── ProtocolError                   bytes that are not Kafka's protocol
    │   └── CorruptRecord               an invalid record batch
    ├── UnsupportedVersion              the broker does not support a request version that is needed
    └── BrokerError                     the broker answered with an error; .code .name
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from aioproducer.types import ProducerRecord, SendManyResult

__all__ = [
    "AuthenticationError",
    "BrokerConnectionError",
    "BrokerError",
    "BufferFull",
    "CommitFailed",
    "CommitUnknown",
    "ConfigError",
    "CorruptRecord",
    "DeliveryError",
    "ForkedProcess",
    "InvalidRecord",
    "KafkaError",
    "KafkaTimeoutError",
    "LastError",
    "MetadataNotReady",
    "NotStarted",
    "NotWritten",
    "NotWrittenTimeout",
    "PartitionStopped",
    "ProducerClosed",
    "ProducerDied",
    "ProducerFenced",
    "ProducerIdExpired",
    "ProducerStateError",
    "ProtocolError",
    "RecordTooLarge",
    "RecordsPurged",
    "ReopenRequired",
    "SendManyError",
    "SerializationError",
    "SharedPartition",
    "TransactionAbortable",
    "TransactionAborted",
    "TransactionError",
    "TransactionFatal",
    "TransactionStateError",
    "Unknown",
    "UnknownTimeout",
    "UnsupportedVersion",
    "WrongEventLoop",
]


class KafkaError(Exception):
    """The base class of everything that aioproducer raises on purpose."""

    #: Whether the same call may succeed later, unchanged.
    retriable: bool = False


class ConfigError(KafkaError, ValueError):
    """An option is unknown, malformed or contradicts another one."""


class InvalidRecord(KafkaError, ValueError):
    """The record can never be sent; nothing was buffered."""


class RecordTooLarge(InvalidRecord):
    """The record is larger than a limit of the producer or of the broker."""


class SerializationError(InvalidRecord):
    """A serializer raised or returned something that is not bytes; ``__cause__`` is its exception."""


class ProducerStateError(KafkaError, RuntimeError):
    """The producer's state does not allow this call."""


class NotStarted(ProducerStateError):
    """The producer was used before it was entered."""


class ProducerClosed(ProducerStateError):
    """The producer was used after it was closed."""


class RecordsPurged(KafkaError):
    """``purge()`` gave the record up; the cause of its `NotWritten` or `Unknown`."""


class PartitionStopped(KafkaError):
    """The partition accepts no records after one was lost (``on_data_loss="stop"``): the cause of `NotWritten` or `Unknown`.

    Its cause is the reason for which the first record was lost. ``producer.resume()`` lets the partition continue.
    """


class WrongEventLoop(ProducerStateError):
    """The producer was used from another event loop or thread than the one that it was started in, or without asyncio."""


class ForkedProcess(ProducerStateError):
    """The producer was started in a parent process, before this one was forked."""


class ProducerDied(ProducerStateError):
    """An internal task of the producer ended; ``__cause__`` says why."""


class TransactionStateError(ProducerStateError):
    """The transaction's state does not allow this call, which has changed nothing."""


class TransactionError(KafkaError):
    """A transaction failed; the subclass says what to do about it (KIP-1050). ``__cause__`` is the reason."""


class TransactionAbortable(TransactionError):
    """The transaction can no longer be committed: abort it. The same work may succeed in a new one."""


class CommitFailed(TransactionAbortable):
    """The consumer group refused the offsets: it has a new generation, or no longer knows this member.

    Abort the transaction. Before a retry the consumer has to rejoin and read from the committed offsets.
    """


class SharedPartition(TransactionAbortable):
    """Two writers that share a transaction by its handle wrote into the same partition.

    Brokers distinguish producers only by id and epoch, and may mistake a batch of one writer for a duplicate of the
    other's: it is acknowledged and not written. So acknowledgements are not reliable here; abort, and give each
    partition to one writer.
    """


class TransactionAborted(TransactionError):
    """The transaction was aborted before the record or the offsets left this process."""


class ReopenRequired(TransactionError):
    """The producer can run no more transactions; a new one with the same ``transactional_id`` can."""


class ProducerFenced(ReopenRequired):
    """The coordinator has a newer epoch.

    Another producer with the same ``transactional_id`` took over, or the transaction was open for longer than
    ``transaction_timeout_ms`` and was aborted.
    """


class ProducerIdExpired(ReopenRequired):
    """The coordinator no longer knows the producer id.

    Its ``transactional_id`` was unused for longer than the broker's ``transactional.id.expiration.ms``.
    """


class TransactionFatal(TransactionError):
    """The producer can run no more transactions, nor could a new one like it: close it."""


class CommitUnknown(TransactionError):
    """The transaction may be committed or not: the commit was sent, and no response confirms its outcome.

    A retry could do the work twice: read with ``isolation_level=read_committed`` first.
    """


class LastError(NamedTuple):
    """The last error before a record failed or a call timed out: what a broker answered, or why its connection failed.

    ``broker`` is the id of that broker; None for a bootstrap server, and where the error concerns the cluster.
    ``seconds_ago`` is the time between this error and the failure.
    """

    error: KafkaError
    broker: int | None
    seconds_ago: float


class DeliveryError(KafkaError):
    """One record was not acknowledged; ``__cause__`` is the reason.

    ``record`` is the record with its serialized key and value, or None if it failed before it was created. ``last_error`` is
    the last error of a broker before that, None if there was none: after a timeout it says what went wrong until then.
    """

    topic: str | None = None
    partition: int | None = None
    record: ProducerRecord | None = None
    last_error: LastError | None = None


class NotWritten(DeliveryError):
    """The record is certainly not in the log; sending it again cannot duplicate it."""


class NotWrittenTimeout(NotWritten, TimeoutError):
    """Time ran out before the record was sent; it is not in the log."""

    retriable = True


class BufferFull(NotWritten):
    """``enqueue_nowait`` found no room in ``buffer_memory``, or other calls waiting for it; nothing was buffered."""

    retriable = True


class MetadataNotReady(NotWritten):
    """``enqueue_nowait`` does not know the topic's partitions yet; it has requested them, and nothing was buffered."""

    retriable = True


class Unknown(DeliveryError):
    """The record may be in the log or not: it was sent, and no response confirms its outcome."""


class UnknownTimeout(Unknown, TimeoutError):
    """Time ran out while the record was in flight; it may or may not be in the log."""


class SendManyError(KafkaError):
    """A record of ``send_many`` failed, so the rest was not read.

    ``result`` says what was delivered, ``error`` is the error of the first record that failed. Later records of other
    partitions may have been delivered: ``result`` counts them.
    """

    def __init__(self, message: str, result: SendManyResult, error: KafkaError) -> None:
        super().__init__(message)
        self.result = result
        self.error = error


class KafkaTimeoutError(KafkaError, TimeoutError):
    """A call that waits - for a flush, for readiness, for metadata - ran out of time.

    ``last_error`` is the last error before that; None if there was none.
    """

    retriable = True
    last_error: LastError | None = None


class BrokerConnectionError(KafkaError, ConnectionError):
    """A connection to a broker failed or could not be opened; ``__cause__`` is the operating system's reason, if any."""

    retriable = True


class AuthenticationError(BrokerConnectionError):
    """The broker refused the credentials."""

    retriable = False


class ProtocolError(KafkaError):
    """The peer sent bytes that are not valid in Kafka's protocol; the connection cannot be used again."""


class CorruptRecord(ProtocolError):
    """The bytes are not a valid record batch."""


class UnsupportedVersion(KafkaError):
    """The broker does not support a request version that this producer needs."""


class BrokerError(KafkaError):
    """The broker answered with an error code.

    ``code`` is the number, ``name`` Kafka's name for it (``NOT_LEADER_OR_FOLLOWER``); the text has both and, if the broker
    sent one, its message.
    """

    def __init__(self, code: int, name: str, message: str, *, retriable: bool = False) -> None:
        super().__init__(code, name, message, retriable)
        self.code = code
        self.name = name
        self.message = message
        self.retriable = retriable

    def __str__(self) -> str:
        return f"{self.name} ({self.code}): {self.message}"

    def __reduce__(self) -> tuple[object, ...]:
        return _make_broker_error, (self.code, self.name, self.message, self.retriable), vars(self)


def _make_broker_error(code: int, name: str, message: str, retriable: bool) -> BrokerError:
    return BrokerError(code, name, message, retriable=retriable)
