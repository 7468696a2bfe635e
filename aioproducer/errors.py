"""Everything that aioproducer raises.

::

    KafkaError                          .retriable: may the same call succeed later, with nothing changed?
    ├── ConfigError (ValueError)        an option is unknown, malformed or contradicts another
    ├── InvalidRecord (ValueError)      this record can never be sent: wrong type, header, partition, timestamp, topic
    │   ├── RecordTooLarge              larger than max_request_size, buffer_memory or what the broker takes
    │   └── SerializationError          the serializer raised; the cause says what
    ├── ProducerStateError              the producer cannot be used (like this)
    │   ├── NotStarted                  before `async with` / `start()`
    │   ├── ProducerClosed              after `close()`
    │   ├── WrongEventLoop              from another event loop or thread
    │   ├── ForkedProcess               in a child process of the one that started it
    │   ├── ProducerDied                an internal task ended; the cause says why
    │   └── TransactionStateError       the transaction's state does not allow this call
    ├── TransactionError                what became of a transaction, and so what to do
    │   ├── TransactionAbortable        abort it; the same work may be done again in a new one
    │   │   ├── CommitFailed            the consumer group moved on: rejoin it before doing the work again
    │   │   └── SharedPartition         two writers of one transaction wrote into the same partition
    │   ├── TransactionAborted          a record that was not sent any more, as its transaction was aborted
    │   ├── ReopenRequired              close this producer; another one with the same transactional_id can go on
    │   │   ├── ProducerFenced          another producer with this transactional_id took over, or time ran out
    │   │   └── ProducerIdExpired       the coordinator forgot the transactional_id, which was long unused
    │   ├── TransactionFatal            stop: doing it again changes nothing
    │   └── CommitUnknown               it may be committed or not: look before doing the work again
    ├── DeliveryError                   what became of one record; .topic .partition .record
    │   ├── NotWritten                  it is certainly not in the log
    │   │   ├── NotWrittenTimeout (TimeoutError)   time ran out before it left
    │   │   ├── BufferFull              enqueue_nowait: no room in buffer_memory
    │   │   └── MetadataNotReady        enqueue_nowait: the topic's partitions are not known yet
    │   └── Unknown                     it may be in the log: it left, and no answer told what became of it
    │       └── UnknownTimeout (TimeoutError)      time ran out while it was in flight
    ├── SendManyError                   a record of send_many failed; .result .error
    ├── KafkaTimeoutError (TimeoutError)    flush(), ready() or partitions_for() ran out of time
    ├── BrokerConnectionError           a connection could not be made, or broke
    │   └── AuthenticationError         the broker refused the credentials; not retriable
    ├── ProtocolError                   bytes that are not Kafka's protocol
    │   └── CorruptRecord               a record batch that is not one
    ├── UnsupportedVersion              the broker does not speak what this needs
    └── BrokerError                     the broker answered with an error; .code .name
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    "MetadataNotReady",
    "NotStarted",
    "NotWritten",
    "NotWrittenTimeout",
    "ProducerClosed",
    "ProducerDied",
    "ProducerFenced",
    "ProducerIdExpired",
    "ProducerStateError",
    "ProtocolError",
    "RecordTooLarge",
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
    """The root of everything that aioproducer raises on purpose."""

    #: Whether the same call may succeed later with nothing changed by the caller.
    retriable: bool = False


class ConfigError(KafkaError, ValueError):
    """An option is unknown, malformed or contradicts another one."""


class InvalidRecord(KafkaError, ValueError):
    """This record can never be sent as it is; nothing was buffered."""


class RecordTooLarge(InvalidRecord):
    """The record is larger than a limit of the producer or of the broker."""


class SerializationError(InvalidRecord):
    """A serializer raised or returned something that is not bytes; ``__cause__`` is its exception."""


class ProducerStateError(KafkaError, RuntimeError):
    """The producer cannot be used, or not like this."""


class NotStarted(ProducerStateError):
    """The producer was used before it was entered."""


class ProducerClosed(ProducerStateError):
    """The producer was used after it was closed."""


class WrongEventLoop(ProducerStateError):
    """The producer was used from another event loop or thread than the one that it was started in."""


class ForkedProcess(ProducerStateError):
    """The producer was started in another process, of which this one is a fork."""


class ProducerDied(ProducerStateError):
    """An internal task of the producer ended; ``__cause__`` is what ended it."""


class TransactionStateError(ProducerStateError):
    """The transaction's state does not allow this call; nothing was changed by it."""


class TransactionError(KafkaError):
    """What became of a transaction; its subclasses say what to do about it (KIP-1050). ``__cause__`` is the reason."""


class TransactionAbortable(TransactionError):
    """The transaction cannot be committed any more: abort it. The same work may succeed in a new one."""


class CommitFailed(TransactionAbortable):
    """The consumer group refused the offsets, as it has a new generation or does not know this member any more.

    Abort the transaction. Before the work is done again the consumer has to rejoin, and to read from the committed offsets.
    """


class SharedPartition(TransactionAbortable):
    """Two writers that share a transaction by its handle wrote into the same partition.

    Brokers tell producers apart by id and epoch alone, and may take the batch of one for a repetition of the other's: it is
    acknowledged and not written. So what they were told counts for nothing; abort, and give each partition to one writer.
    """


class TransactionAborted(TransactionError):
    """The transaction was aborted before the record or the offsets left this process."""


class ReopenRequired(TransactionError):
    """This producer can do no more transactions; another one with the same ``transactional_id`` can."""


class ProducerFenced(ReopenRequired):
    """The coordinator counts under a newer epoch: another producer with the same ``transactional_id`` took over, or the
    transaction was open for longer than ``transaction_timeout_ms`` and was aborted."""


class ProducerIdExpired(ReopenRequired):
    """The coordinator does not know the producer id any more: its ``transactional_id`` was not used for long
    (``transactional.id.expiration.ms`` of the broker)."""


class TransactionFatal(TransactionError):
    """The producer can do no more transactions, and another one like it could not either: close it."""


class CommitUnknown(TransactionError):
    """The transaction may be committed or not: the commit was sent, and no answer told what became of it.

    Doing the work again could do it twice: read with ``isolation_level=read_committed`` first.
    """


class DeliveryError(KafkaError):
    """What became of one record that was not acknowledged; ``__cause__`` is the reason.

    ``record`` is the record with its key and value as serialized, or None where it was never put together.
    """

    topic: str | None = None
    partition: int | None = None
    record: ProducerRecord | None = None


class NotWritten(DeliveryError):
    """The record is certainly not in the log; sending it again cannot duplicate it."""


class NotWrittenTimeout(NotWritten, TimeoutError):
    """Time ran out before the record left this process; it is not in the log."""

    retriable = True


class BufferFull(NotWritten):
    """``enqueue_nowait`` found no room in ``buffer_memory``, or others already waiting for it; nothing was buffered."""

    retriable = True


class MetadataNotReady(NotWritten):
    """``enqueue_nowait`` does not know the topic's partitions yet; they were asked for, and nothing was buffered."""

    retriable = True


class Unknown(DeliveryError):
    """The record may be in the log or not: it left this process, and no answer told what became of it."""


class UnknownTimeout(Unknown, TimeoutError):
    """Time ran out while the record was in flight; it may or may not be in the log."""


class SendManyError(KafkaError):
    """A record of ``send_many`` failed, and with it the rest was not read.

    ``result`` tells what was delivered, ``error`` is what became of the first record that was not. Records of other
    partitions behind it may have been delivered: ``result`` counts them.
    """

    def __init__(self, message: str, result: SendManyResult, error: KafkaError) -> None:
        super().__init__(message)
        self.result = result
        self.error = error


class KafkaTimeoutError(KafkaError, TimeoutError):
    """A call that waits - for a flush, for readiness, for metadata - ran out of time."""

    retriable = True


class BrokerConnectionError(KafkaError, ConnectionError):
    """A connection to a broker could not be made, or broke; ``__cause__`` is the operating system's reason, if any."""

    retriable = True


class AuthenticationError(BrokerConnectionError):
    """The broker refused the credentials."""

    retriable = False


class ProtocolError(KafkaError):
    """The peer sent bytes that are not what Kafka's protocol says; the connection cannot be used again."""


class CorruptRecord(ProtocolError):
    """Bytes that should be a record batch are not a valid one."""


class UnsupportedVersion(KafkaError):
    """The broker does not speak a version of a request that this producer needs."""


class BrokerError(KafkaError):
    """The broker answered with an error code.

    ``code`` is the number, ``name`` Kafka's name for it (``NOT_LEADER_OR_FOLLOWER``); the text holds both and, where the
    broker sent one, its own message.
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
        return _make_broker_error, (self.code, self.name, self.message, self.retriable)


def _make_broker_error(code: int, name: str, message: str, retriable: bool) -> BrokerError:
    return BrokerError(code, name, message, retriable=retriable)
