"""The values that users pass in and get back: records, their partitions and offsets, and their outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from aioproducer._metadata import RecordMetadata, TimestampType, TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from typing_extensions import TypeVar

    # Any, so that a function that is annotated with a bare `Producer` takes every producer, and sends anything.
    K = TypeVar("K", contravariant=True, default=Any)
    V = TypeVar("V", contravariant=True, default=Any)
    # Those of the constructors, in which a serializer that is not given leaves bytes and text.
    KeyT = TypeVar("KeyT", default="Plain")
    ValueT = TypeVar("ValueT", default="Plain")
else:
    from typing import TypeVar  # has no defaults before Python 3.13, and nothing reads them at run time

    K = TypeVar("K", contravariant=True)
    V = TypeVar("V", contravariant=True)
    KeyT = TypeVar("KeyT")
    ValueT = TypeVar("ValueT")

__all__ = [
    "BrokerInfo",
    "BytesLike",
    "CloseReport",
    "ClusterInfo",
    "ConsumerGroupMetadata",
    "Header",
    "Headers",
    "HeadersInput",
    "Health",
    "HealthStatus",
    "K",
    "KeyT",
    "OffsetAndMetadata",
    "PartitionInfo",
    "Plain",
    "ProducerRecord",
    "PurgeReport",
    "RecordMetadata",
    "SendManyResult",
    "TimestampType",
    "TopicInfo",
    "TopicPartition",
    "TransactionOutcome",
    "V",
    "ValueT",
    "Written",
]

BytesLike: TypeAlias = bytes | bytearray | memoryview

#: A key or a value that needs no serializer; None, which is allowed everywhere, aside.
Plain: TypeAlias = BytesLike | str

#: One header as it is on the wire: a name and bytes, or None for a null value.
Header: TypeAlias = tuple[str, bytes | None]
Headers: TypeAlias = Sequence[Header]

#: What ``headers=`` accepts: a mapping, or a sequence of pairs if names repeat or their order matters.
HeadersInput: TypeAlias = Mapping[str, "BytesLike | str | None"] | Sequence[tuple[str, "BytesLike | str | None"]]

#: The end of a transaction; "prepared" if a producer was closed that left the decision to another one (KIP-939).
TransactionOutcome: TypeAlias = Literal["committed", "aborted", "prepared", "unknown"]


class Written(NamedTuple):
    """The acknowledged records of one writer in one partition: their count, and the first and the last offset.

    There may be records of other producers in between, so the count does not follow from the offsets.
    """

    records: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """One record to send: what ``send(topic, value, ...)`` takes, as a value that interceptors can replace.

    ``timestamp_ms`` is in milliseconds since 1970 (None: the moment of the send; a record older than a day is not retried
    once it may be in the log, except in a transaction: ``producer_id_expiration_ms``). ``partition`` None leaves the choice
    to the partitioner.
    """

    topic: str
    value: object = None
    key: object = None
    headers: HeadersInput | None = None
    partition: int | None = None
    timestamp_ms: int | None = None

    @property
    def topic_partition(self) -> TopicPartition | None:
        """The partition, if it is known already."""
        return None if self.partition is None else TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A consumer position to commit inside a transaction: the offset of the *next* record to read."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """The member that commits offsets (KIP-447): the coordinator fences it if its generation is over."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class CloseReport:
    """The outcome of everything that the producer accepted; ``close()`` returns it.

    ``delivered`` (acknowledged, whether or not the transaction was committed), ``failed`` (certainly not written) and
    ``unknown`` (possibly written) count records over the producer's whole life. Records that were still waiting when the
    close timeout ended are handed back, with serialized keys and values, in order per partition, so that an application
    can spool them: ``not_written`` were never sent or were refused, ``maybe_written`` were in flight.
    """

    delivered: int = 0
    failed: int = 0
    unknown: int = 0
    not_written: Sequence[ProducerRecord] = ()
    maybe_written: Sequence[ProducerRecord] = ()

    @property
    def undelivered(self) -> Sequence[ProducerRecord]:
        """All records that were handed back, the ones that are certainly not in the log last."""
        return (*self.maybe_written, *self.not_written)

    @property
    def clean(self) -> bool:
        """Whether every accepted record was acknowledged."""
        return self.failed == 0 and self.unknown == 0


class HealthStatus(StrEnum):
    """The state of a producer in one word."""

    CREATED = "created"
    STARTING = "starting"  # the tasks run; no broker has answered yet
    READY = "ready"
    DEGRADED = "degraded"  # records wait, and no broker is connected
    CLOSING = "closing"
    CLOSED = "closed"
    FAILED = "failed"  # an internal task died, or the transactions failed fatally (fenced, for example); see `error`


@dataclass(frozen=True, slots=True)
class Health:
    """The producer's state, for liveness and readiness probes.

    ``pressure`` is the used part of ``buffer_memory``, 0.0 to 1.0. ``oldest_pending_s`` is the age in seconds of the
    oldest record that is not acknowledged, 0.0 if all are.
    """

    status: HealthStatus
    connected_brokers: Sequence[int] = ()
    pending_records: int = 0
    waiting_senders: int = 0
    pressure: float = 0.0
    oldest_pending_s: float = 0.0
    error: BaseException | None = None

    @property
    def alive(self) -> bool:
        """For a liveness probe: False only if this producer will never send again, and a new one might."""
        return self.status is not HealthStatus.FAILED

    @property
    def ready(self) -> bool:
        """For a readiness probe: whether sends are expected to succeed now."""
        return self.status is HealthStatus.READY

    def as_dict(self) -> dict[str, object]:
        """All fields as values that ``json.dumps`` accepts; ``error`` is its message, or None."""
        return {
            "status": str(self.status),
            "alive": self.alive,
            "ready": self.ready,
            "connected_brokers": list(self.connected_brokers),
            "pending_records": self.pending_records,
            "waiting_senders": self.waiting_senders,
            "pressure": self.pressure,
            "oldest_pending_s": self.oldest_pending_s,
            "error": None if self.error is None else f"{type(self.error).__name__}: {self.error}",
        }


class PartitionInfo(NamedTuple):
    """A partition in the cluster's metadata; ``leader`` is the id of a broker, -1 if it has no leader now.

    ``replicas``, ``in_sync_replicas`` and ``offline_replicas`` are the ids of brokers as well; those in sync are known to
    the broker that was asked, which may lag behind the controller.
    """

    topic: str
    partition: int
    leader: int
    leader_epoch: int = -1
    replicas: Sequence[int] = ()
    in_sync_replicas: Sequence[int] = ()
    offline_replicas: Sequence[int] = ()


class TopicInfo(NamedTuple):
    """A topic in the cluster's metadata. ``topic_id`` is None before Kafka 2.8."""

    name: str
    topic_id: UUID | None
    is_internal: bool
    partitions: Sequence[PartitionInfo]


class BrokerInfo(NamedTuple):
    """A broker, at the address that it advertises to clients."""

    node_id: int
    host: str
    port: int
    rack: str | None


class ClusterInfo(NamedTuple):
    """A cluster as one of its brokers describes it. ``controller_id`` is the id of a broker, -1 if none is known.

    ``topics``, by name, are those that the client may describe.
    """

    cluster_id: str | None
    controller_id: int
    brokers: Sequence[BrokerInfo]
    topics: Mapping[str, TopicInfo]


@dataclass(frozen=True, slots=True)
class PurgeReport:
    """The records that ``purge()`` gave up, with serialized keys and values, in order per partition.

    ``not_written`` are certainly not in the log; ``maybe_written`` were sent before, and not acknowledged.
    """

    not_written: Sequence[ProducerRecord] = ()
    maybe_written: Sequence[ProducerRecord] = ()


@dataclass(frozen=True, slots=True)
class SendManyResult:
    """The result of ``send_many``: the number of records and bytes, and the offsets in each partition.

    ``serialized_bytes`` counts keys and values. ``offsets`` maps each partition to (first, last) offset; with ``acks=0``
    it is empty. ``failed`` and ``unknown`` count records that were accepted but not acknowledged.
    """

    count: int = 0
    failed: int = 0
    unknown: int = 0
    serialized_bytes: int = 0
    offsets: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict[TopicPartition, tuple[int, int]])
