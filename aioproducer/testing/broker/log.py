"""The log of one partition, and its leader's state of each producer.

The rules are those of Kafka's UnifiedLog, LogValidator and ProducerAppendInfo, in the same order, because the first rule
that a batch violates determines the error that its producer gets:

1. the field holds exactly one complete batch of magic 2, and nothing after it;
2. base offset 0, not larger than max.message.bytes, at least a header, right CRC;
3. offsets and count agree, no control batch, a producer id comes with a sequence;
4. every record can be read, and nothing is left over; keys and timestamps meet the topic's configuration;
5. the sequence follows the producer's last one, or repeats one of its last five batches exactly;
6. a transactional batch belongs to a transaction that the coordinator knows of, and while one is open in this log its
   producer writes nothing else.

A transaction begins with its first batch and ends with a marker, a control batch of the coordinator. Up to the first batch
of the oldest open transaction the log is stable: that is how far a read_committed consumer reads.

A topic with its own compression.type checks the size that it would store, but stores batches unmodified.

Three rules are stricter than Kafka's, since a client that violates them has a bug: bytes after the batch are refused (Kafka
drops them), and so are a wrong maxTimestamp and the timestamp type LogAppendTime (Kafka corrects them).
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from crc32c import crc32c

from aioproducer.errors import ConfigError, CorruptRecord, KafkaError
from aioproducer.protocol import ErrorCode
from aioproducer.record.compression import Codec, compress, decompress
from aioproducer.record.reader import Record, read_batches
from aioproducer.types import Header, TimestampType

__all__ = [
    "AbortedRange",
    "Appended",
    "BatchHeader",
    "LogRules",
    "LoggedBatch",
    "LoggedRecord",
    "PartitionLog",
    "ProducerState",
    "RecordError",
    "Refused",
    "TopicConfig",
]

_HEADER = struct.Struct(">qiibIhiqqqhii")
_BEFORE_BATCH = 12  # baseOffset and batchLength, which batchLength does not count
_MAGIC_AT = 16
_CRC_AT = 17
_CRC_FROM = 21  # the CRC covers everything from the attributes on
_MAX_TIMESTAMP_AT = 35
_SMALLEST_RECORD = 14  # what Kafka takes for the smallest batchLength: the overhead of a message of magic 0

_CODEC_BITS = 0x07
_LOG_APPEND_TIME_BIT = 0x08
_TRANSACTIONAL_BIT = 0x10
_CONTROL_BIT = 0x20

_MAX_SEQUENCE = 2**31 - 1
_NO_SEQUENCE = -1
_MAGIC = 2
_MARKER_KEY = struct.Struct(">hh")  # version, type
_MARKER_VALUE = struct.Struct(">hi")  # version, coordinator epoch
_ABORT_MARKER, _COMMIT_MARKER = 0, 1
_NO_TIMESTAMP = -1
_REMEMBERED_BATCHES = 5
_DECOMPRESSED_LIMIT = 1 << 30

_HOUR_MS = 3_600_000

#: From this transaction.version on each marker has the next epoch.
_MARKERS_BUMP_EPOCH = 2


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic's configuration for its records; the fields are Kafka's topic configurations.

    Times are milliseconds. ``message_timestamp_after_max_ms`` None means the default of the release: an hour since 4.0,
    no limit before. ``message_timestamp_difference_max_ms`` holds where neither it nor ``..._before_max_ms`` says anything.
    """

    max_message_bytes: int = 1_048_588
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    message_timestamp_before_max_ms: int | None = None
    message_timestamp_after_max_ms: int | None = None
    message_timestamp_difference_max_ms: int | None = None
    min_insync_replicas: int = 1
    compacted: bool = False
    compression_type: str = "producer"

    @classmethod
    def from_kafka(cls, configs: Mapping[str, str | None]) -> TopicConfig:
        """The configuration that Kafka's dotted names and text values describe; names without meaning here are ignored.

        Raises ConfigError for a value that cannot be read.
        """
        values: dict[str, object] = {}
        for name, text in configs.items():
            reading = _KAFKA_CONFIGS.get(name)
            if reading is None or text is None:
                continue
            try:
                values[reading.field] = reading.parse(text)
            except (KeyError, ValueError) as error:
                raise ConfigError(f"Invalid value {text!r} for the topic configuration {name}.") from error
        return cls(**values)  # type: ignore[arg-type]  # the table names each field with a parser of its type

    def as_kafka(self, timestamp_limits: Mapping[str, int] = MappingProxyType({})) -> Iterator[tuple[str, str, bool]]:
        """Kafka's name of each configuration that Kafka would report, its value as text, and whether that is the default.

        ``timestamp_limits`` are those that the release in charge knows, with their defaults.
        """
        defaults = TopicConfig()
        yield (
            "message.timestamp.type",
            _TIMESTAMP_TYPES[self.message_timestamp_type],
            self.message_timestamp_type == defaults.message_timestamp_type,
        )
        for name, own, default in (
            ("max.message.bytes", self.max_message_bytes, defaults.max_message_bytes),
            ("compression.type", self.compression_type, defaults.compression_type),
            ("min.insync.replicas", self.min_insync_replicas, defaults.min_insync_replicas),
        ):
            yield name, str(own), own == default
        for name, limit in timestamp_limits.items():
            chosen = getattr(self, _KAFKA_CONFIGS[name].field)
            yield name, str(limit if chosen is None else chosen), chosen is None
        yield "cleanup.policy", "compact" if self.compacted else "delete", not self.compacted


_COMPRESSION_TYPES: Mapping[str, Codec] = {
    "uncompressed": Codec.NONE,
    **{codec.name.lower(): codec for codec in Codec if codec is not Codec.NONE},
}


def _is_compacted(policy: str) -> bool:
    return "compact" in policy.split(",")


class _Reading(NamedTuple):
    field: str
    parse: Callable[[str], object]


_TIMESTAMP_TYPES: Mapping[TimestampType, str] = {
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}

_KAFKA_CONFIGS: dict[str, _Reading] = {
    "max.message.bytes": _Reading("max_message_bytes", int),
    "compression.type": _Reading(
        "compression_type", {name: name for name in ("producer", *_COMPRESSION_TYPES)}.__getitem__
    ),
    "message.timestamp.type": _Reading(
        "message_timestamp_type",
        {text: kind for kind, text in _TIMESTAMP_TYPES.items()}.__getitem__,
    ),
    "message.timestamp.before.max.ms": _Reading("message_timestamp_before_max_ms", int),
    "message.timestamp.after.max.ms": _Reading("message_timestamp_after_max_ms", int),
    "message.timestamp.difference.max.ms": _Reading("message_timestamp_difference_max_ms", int),
    "min.insync.replicas": _Reading("min_insync_replicas", int),
    "cleanup.policy": _Reading("compacted", _is_compacted),
}


class LogRules(NamedTuple):
    """The release's rules for a batch, and the batch's version of Produce."""

    produce_version: int = 13
    knows_invalid_record: bool = True
    accepts_unknown_producers: bool = True
    limits_future_timestamps: bool = True


class AbortedRange(NamedTuple):
    """An aborted transaction: from its first record to its marker, the producer's transactional records are void."""

    producer_id: int
    first_offset: int
    last_offset: int


class RecordError(NamedTuple):
    """Why one record of a refused batch was at fault (KIP-467)."""

    batch_index: int
    message: str


class Appended(NamedTuple):
    """The batch is in the log, from ``base_offset`` on; ``duplicate``: it already was, and nothing was written.

    ``log_append_time_ms`` is -1 for a topic with CreateTime - except for a duplicate, where Kafka's answer has the batch's
    largest timestamp.
    """

    base_offset: int
    log_append_time_ms: int
    duplicate: bool = False


class Refused(NamedTuple):
    """The batch is not in the log, and why.

    ``reached_log`` False: it was refused before the log was asked, and the answer does not report its start.
    """

    code: ErrorCode
    message: str
    record_errors: Sequence[RecordError] = ()
    reached_log: bool = True


class BatchHeader(NamedTuple):
    """The 61 bytes in front of a batch's records, field by field."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @classmethod
    def parse(cls, raw: bytes) -> BatchHeader:
        """The header of a batch that is at least 61 bytes long."""
        return cls(*_HEADER.unpack_from(raw))

    @classmethod
    def of(cls, raw: bytes) -> BatchHeader | None:
        """The header of whatever the bytes are, None if they are too short for one or of another magic."""
        header = cls.parse(raw) if len(raw) >= _HEADER.size else None
        return header if header is not None and header.magic == _MAGIC else None

    @property
    def codec(self) -> int:
        """The compression, as its number: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & _CODEC_BITS

    @property
    def timestamp_type(self) -> TimestampType:
        """The origin of the records' timestamps."""
        return TimestampType.LOG_APPEND_TIME if self.attributes & _LOG_APPEND_TIME_BIT else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & _TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Whether the batch is a marker of the broker, and no data."""
        return bool(self.attributes & _CONTROL_BIT)

    @property
    def last_offset(self) -> int:
        """The offset of the last record."""
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; sequences go on with 0 after 2^31 - 1."""
        return _sequence_after(self.base_sequence, self.last_offset_delta)


@dataclass(frozen=True, slots=True)
class LoggedRecord:
    """One record in the log.

    ``producer_id``, ``producer_epoch`` and ``sequence`` are -1 where the producer was not idempotent. ``timestamp_ms``
    is what a consumer would see.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()
    producer_id: int = -1
    producer_epoch: int = -1
    sequence: int = -1


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """One batch in the log: ``raw`` as a consumer would fetch it, and as it was received in ``sent``."""

    topic: str
    partition: int
    header: BatchHeader
    raw: bytes = field(repr=False)
    sent: bytes = field(repr=False)
    _read: Sequence[Record] = field(repr=False)

    @property
    def base_offset(self) -> int:
        """The offset of the first record."""
        return self.header.base_offset

    @property
    def last_offset(self) -> int:
        """The offset of the last record."""
        return self.header.last_offset

    @property
    def records(self) -> list[LoggedRecord]:
        """The records in order."""
        header = self.header
        stamped = header.timestamp_type is TimestampType.LOG_APPEND_TIME
        return [
            LoggedRecord(
                self.topic,
                self.partition,
                header.base_offset + index,
                header.max_timestamp if stamped else record.timestamp_ms,
                record.key,
                record.value,
                record.headers,
                header.producer_id,
                header.producer_epoch,
                _NO_SEQUENCE if header.producer_id < 0 else _sequence_after(header.base_sequence, index),
            )
            for index, record in enumerate(self._read)
        ]


class _Remembered(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int
    max_timestamp: int


@dataclass(slots=True)
class ProducerState:
    """A partition leader's state of one producer id: its epoch, and its last five batches.

    ``last_timestamp_ms`` is that of the batch, or the marker, that was written last: by it the state ages.
    """

    epoch: int
    batches: deque[_Remembered] = field(default_factory=lambda: deque[_Remembered](maxlen=_REMEMBERED_BATCHES))
    last_timestamp_ms: int = _NO_TIMESTAMP
    #: The epoch of the coordinator whose marker was written last, -1 before the first.
    coordinator_epoch: int = -1

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record appended in this epoch, -1 before the first."""
        return self.batches[-1].last_sequence if self.batches else _NO_SEQUENCE

    def find_duplicate(self, header: BatchHeader) -> _Remembered | None:
        """The remembered batch of the same epoch with exactly this first and last sequence."""
        if header.producer_epoch != self.epoch:
            return None
        wanted = (header.base_sequence, header.last_sequence)
        return next((batch for batch in self.batches if batch[:2] == wanted), None)

    def enter_epoch(self, epoch: int) -> None:
        """A new epoch forgets the batches of the old one."""
        if epoch != self.epoch:
            self.batches.clear()
            self.epoch = epoch

    def remember(self, header: BatchHeader, base_offset: int, max_timestamp: int) -> None:
        """Record an appended batch."""
        self.enter_epoch(header.producer_epoch)
        self.batches.append(_Remembered(header.base_sequence, header.last_sequence, base_offset, max_timestamp))
        self.last_timestamp_ms = max_timestamp


@dataclass(slots=True)
class _Verification:
    """A question to the transaction coordinator that no batch was written after yet (``VerificationStateEntry``)."""

    epoch: int
    lowest_sequence: int
    #: Of transaction.version 2, where a producer that is not known begins with sequence 0.
    adds_partition: bool

    def see(self, epoch: int, sequence: int) -> None:
        if epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)
        elif epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence

    def allows(self, sequence: int, state: ProducerState | None) -> bool:
        has_no_batches = state is None or not state.batches
        return sequence <= self.lowest_sequence and not (self.adds_partition and has_no_batches and sequence != 0)


@dataclass(slots=True)
class PartitionLog:
    """The batches of one partition in order, shared by its replicas: what one has, all have."""

    topic: str
    partition: int
    config: TopicConfig = field(default_factory=TopicConfig)
    start_offset: int = 0
    end_offset: int = 0
    batches: list[LoggedBatch] = field(default_factory=list[LoggedBatch])
    producers: dict[int, ProducerState] = field(default_factory=dict[int, ProducerState])
    #: Producers that this log has no state of and wants to hear so (UNKNOWN_PRODUCER_ID), whatever the release.
    disowned: set[int] = field(default_factory=set[int])
    #: The offset of the first batch of each open transaction, by producer id.
    open_transactions: dict[int, int] = field(default_factory=dict[int, int])
    #: The aborted transactions that have records here, in the order of their markers.
    aborted: list[AbortedRange] = field(default_factory=list[AbortedRange])
    _markers: int = field(default=0, repr=False)
    _verifications: dict[int, _Verification] = field(default_factory=dict[int, "_Verification"], repr=False)

    def append(
        self, data: bytes, *, leader_epoch: int, now_ms: int, rules: LogRules, verified: bool = False
    ) -> Appended | Refused:
        """Append the batch in ``data``, or return the error; nothing changes unless all of it is valid.

        ``verified``: according to the transaction coordinator this partition belongs to the producer's open transaction.
        """
        verdict = self._append(data, leader_epoch, now_ms, rules, verified)
        if isinstance(verdict, Refused) and verdict.code is ErrorCode.INVALID_RECORD and not rules.knows_invalid_record:
            return verdict._replace(code=ErrorCode.CORRUPT_MESSAGE)
        return verdict

    def _append(
        self, data: bytes, leader_epoch: int, now_ms: int, rules: LogRules, verified: bool
    ) -> Appended | Refused:
        refused = _check_framing(data, rules.produce_version)
        if refused is not None:
            return refused._replace(reached_log=False)
        refused = _check_batch(data, self.config)
        if refused is not None:
            return refused
        header = BatchHeader.parse(data)
        records = _read_records(data, header)
        if isinstance(records, Refused):
            return records
        refused = _check_records(records, self.config, now_ms, rules) or _check_stored_size(data, header, self.config)
        if refused is not None:
            return refused
        state = self.producers.get(header.producer_id)
        if state is not None and (duplicate := state.find_duplicate(header)) is not None:
            return Appended(duplicate.base_offset, duplicate.max_timestamp, duplicate=True)
        refused = self._check_transaction(header, verified) or self._check_producer(header, state, rules)
        if refused is not None:
            return refused
        if header.producer_id in self.open_transactions and not header.is_transactional:
            who = f"producer {header.producer_id} in {self.topic}-{self.partition}"
            return Refused(ErrorCode.INVALID_TXN_STATE, f"Expected transactional write from {who}")
        return self._write(data, header, records, leader_epoch, now_ms)

    def _check_transaction(self, header: BatchHeader, verified: bool) -> Refused | None:
        is_open = self.has_open_transaction(header.producer_id, header.producer_epoch)
        if not header.is_transactional or verified or is_open:
            return None
        return Refused(ErrorCode.INVALID_TXN_STATE, "Record was not part of an ongoing transaction")

    def _check_producer(self, header: BatchHeader, state: ProducerState | None, rules: LogRules) -> Refused | None:
        if header.producer_id < 0:
            return None
        if header.producer_id in self.disowned and header.base_sequence != 0:
            return self._unknown_producer(header)
        who = f"producer {header.producer_id} in {self.topic}-{self.partition}"
        if state is not None and header.producer_epoch < state.epoch:
            return Refused(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of {who} is {header.producer_epoch}, which is smaller than the last seen epoch {state.epoch}",
            )
        verification = self._verifications.get(header.producer_id)
        if verification is not None and not verification.allows(header.base_sequence, state):
            return Refused(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for {who}: {header.base_sequence} (incoming seq. number), "
                f"{verification.lowest_sequence} (earliest seen sequence)",
            )
        if state is None:
            if rules.accepts_unknown_producers or header.base_sequence == 0:
                return None
            return self._unknown_producer(header)
        return self._check_sequence(header, state, rules, who)

    def _check_sequence(self, header: BatchHeader, state: ProducerState, rules: LogRules, who: str) -> Refused | None:
        if header.producer_epoch > state.epoch:
            if header.base_sequence == 0:
                return None
            return Refused(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Invalid sequence number {header.base_sequence} for the new epoch {header.producer_epoch} of {who}; "
                f"the last seen epoch is {state.epoch}",
            )
        if header.base_sequence == _sequence_after(state.last_sequence, 1):
            return None
        if state.last_sequence == _NO_SEQUENCE and not rules.accepts_unknown_producers:
            return self._unknown_producer(header)
        return Refused(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Out of order sequence number for {who}: {header.base_sequence} (incoming seq. number), "
            f"{state.last_sequence} (current end sequence number)",
        )

    def _unknown_producer(self, header: BatchHeader) -> Refused:
        return Refused(
            ErrorCode.UNKNOWN_PRODUCER_ID,
            f"Found no record of producerId={header.producer_id} in {self.topic}-{self.partition}",
        )

    def _write(
        self, data: bytes, header: BatchHeader, records: Sequence[Record], leader_epoch: int, now_ms: int
    ) -> Appended:
        append_time = now_ms if self.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME else _NO_TIMESTAMP
        raw = _stamp(data, self.end_offset, leader_epoch, append_time)
        stored = BatchHeader.parse(raw)
        self.batches.append(LoggedBatch(self.topic, self.partition, stored, raw, data, records))
        self.end_offset += header.record_count
        if header.producer_id >= 0:
            self.disowned.discard(header.producer_id)
            state = self.producers.setdefault(header.producer_id, ProducerState(header.producer_epoch))
            state.remember(header, stored.base_offset, stored.max_timestamp)
        if header.is_transactional:
            self._verifications.pop(header.producer_id, None)
            self.open_transactions.setdefault(header.producer_id, stored.base_offset)
        return Appended(stored.base_offset, append_time)

    def start_verification(self, header: BatchHeader, *, adds_partition: bool) -> None:
        """Note that the coordinator is asked about a batch, the first of its transaction here.

        Until one is written, batches behind the earliest that was asked about are refused: they must not overtake it.
        """
        known = self._verifications.setdefault(
            header.producer_id, _Verification(header.producer_epoch, header.base_sequence, adds_partition)
        )
        known.see(header.producer_epoch, header.base_sequence)

    def refuse_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, transaction_version: int
    ) -> ErrorCode:
        """NONE, or why a marker is not written: ProducerAppendInfo's checks of its two epochs."""
        state = self.producers.get(producer_id)
        if state is None:
            return ErrorCode.NONE
        if coordinator_epoch < state.coordinator_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        must_be_newer = transaction_version >= _MARKERS_BUMP_EPOCH and producer_id in self.open_transactions
        lowest = state.epoch + 1 if must_be_newer else state.epoch
        return ErrorCode.NONE if producer_epoch >= lowest else ErrorCode.INVALID_PRODUCER_EPOCH

    def end_transaction(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        committed: bool,
        leader_epoch: int,
        coordinator_epoch: int,
        now_ms: int,
    ) -> None:
        """Write a transaction marker, as the coordinator does into every partition that was added, even an empty one."""
        raw = _marker(producer_id, producer_epoch, committed, coordinator_epoch, now_ms)
        stored = _stamp(raw, self.end_offset, leader_epoch, _NO_TIMESTAMP)
        header = BatchHeader.parse(stored)
        self.batches.append(LoggedBatch(self.topic, self.partition, header, stored, raw, ()))
        self.end_offset += 1
        self._markers += 1
        state = self.producers.setdefault(producer_id, ProducerState(producer_epoch))
        state.enter_epoch(producer_epoch)
        state.last_timestamp_ms = now_ms
        state.coordinator_epoch = coordinator_epoch
        self._verifications.pop(producer_id, None)
        first_offset = self.open_transactions.pop(producer_id, None)
        if first_offset is not None and not committed:
            self.aborted.append(AbortedRange(producer_id, first_offset, header.base_offset))

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a transaction of this epoch has begun here: one of an epoch before may be over already."""
        state = self.producers.get(producer_id)
        return producer_id in self.open_transactions and state is not None and state.epoch == producer_epoch

    @property
    def last_stable_offset(self) -> int:
        """The start of the oldest open transaction, or the end: everything before it is committed or aborted."""
        return min(self.open_transactions.values(), default=self.end_offset)

    def aborted_in(self, first_offset: int, end_offset: int) -> list[AbortedRange]:
        """The aborted transactions with records from ``first_offset`` on and before ``end_offset``."""
        return [a for a in self.aborted if a.last_offset >= first_offset and a.first_offset < end_offset]

    def is_aborted(self, batch: LoggedBatch) -> bool:
        """Whether the batch belongs to a transaction that was aborted."""
        header = batch.header
        return header.is_transactional and any(
            header.producer_id == a.producer_id and a.first_offset <= header.base_offset < a.last_offset
            for a in self.aborted
        )

    def __len__(self) -> int:
        """The number of records that a consumer can still read, without markers, with those of aborted transactions."""
        return self.end_offset - self.start_offset - self._markers

    def __bool__(self) -> bool:
        """A log without records is a log too."""
        return True

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool = True, before: int | None = None) -> bytes:
        """Whole batches from the one that holds ``offset`` on, at most ``max_bytes`` - or the first one if larger.

        ``before`` is the offset where the reading ends, None the end of the log.
        """
        index = max(0, bisect_right(self.batches, offset, key=lambda batch: batch.base_offset) - 1)
        pieces: list[bytes] = []
        size = 0
        for batch in self.batches[index:]:
            if batch.last_offset < offset:
                continue
            if before is not None and batch.base_offset >= before:
                break
            if size + len(batch.raw) > max_bytes and (pieces or not at_least_one):
                break
            pieces.append(batch.raw)
            size += len(batch.raw)
        return b"".join(pieces)

    def first_record_since(self, timestamp_ms: int) -> LoggedRecord | None:
        """The first record that is not older than the timestamp."""
        return next((r for r in self.records() if r.timestamp_ms >= timestamp_ms), None)

    def records(self, *, committed: bool = False) -> list[LoggedRecord]:
        """The records that a consumer can read, in order; with ``committed`` only those that read_committed allows."""
        return [
            record
            for batch in self.batches
            if not committed or (batch.base_offset < self.last_stable_offset and not self.is_aborted(batch))
            for record in batch.records
            if record.offset >= self.start_offset
        ]

    def delete_records(self, before_offset: int) -> None:
        """Increase the first offset of the log, as retention or DeleteRecords does."""
        self.start_offset = max(self.start_offset, min(before_offset, self.end_offset))
        self.batches = [batch for batch in self.batches if batch.last_offset >= self.start_offset]
        self._markers = sum(batch.header.is_control for batch in self.batches)

    def forget_producer(self, producer_id: int, *, disown: bool = False) -> None:
        """Drop the state of a producer; with ``disown`` its next batch is refused unless it starts at sequence 0."""
        self.producers.pop(producer_id, None)
        if disown:
            self.disowned.add(producer_id)

    def expire_producers(self, now_ms: int, expiration_ms: int) -> None:
        """Lose the state of producers whose last batch is so old by its own timestamp, unless they have a transaction open.

        Follows ProducerStateManager.removeExpiredProducers.
        """
        self.producers = {
            producer_id: state
            for producer_id, state in self.producers.items()
            if producer_id in self.open_transactions or now_ms - state.last_timestamp_ms < expiration_ms
        }

    def fence_producer(self, producer_id: int, *, above_epoch: int | None = None) -> None:
        """Behave as if this producer id had continued with the next epoch."""
        state = self.producers.setdefault(producer_id, ProducerState(-1))
        state.epoch = max(state.epoch, -1 if above_epoch is None else above_epoch) + 1
        state.batches.clear()


def _check_framing(data: bytes, produce_version: int) -> Refused | None:
    """Exactly one complete batch of magic 2: Kafka's ByteBufferLogInputStream and ProduceRequest.validateRecords."""
    what = f"Produce requests with version {produce_version}"
    if len(data) < _MAGIC_AT + 1:
        return Refused(ErrorCode.INVALID_RECORD, f"{what} must have at least one record batch per partition")
    (length,) = struct.unpack_from(">i", data, 8)
    if length < _SMALLEST_RECORD:
        return Refused(
            ErrorCode.CORRUPT_MESSAGE,
            f"Record size {length} is less than the minimum record overhead {_SMALLEST_RECORD}",
        )
    magic = struct.unpack_from(">b", data, _MAGIC_AT)[0]
    if not 0 <= magic <= 2:
        return Refused(ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record: {magic}")
    size = _BEFORE_BATCH + length
    if len(data) < size:
        return Refused(
            ErrorCode.INVALID_RECORD,
            f"{what} must have at least one record batch per partition; this one announces {size} bytes and has {len(data)}",
        )
    if magic != 2:
        return Refused(
            ErrorCode.INVALID_RECORD, f"{what} are only allowed to contain record batches with magic version 2"
        )
    if size >= _CRC_FROM + 2 and data[_CRC_FROM + 1] & _CODEC_BITS == Codec.ZSTD and produce_version < 7:
        return Refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"{what} are not allowed to use ZStandard compression")
    if len(data) > size:
        return Refused(
            ErrorCode.INVALID_RECORD,
            f"{what} are only allowed to contain exactly one record batch per partition; "
            f"{len(data) - size} bytes follow the first",
        )
    return None


def _check_batch(data: bytes, config: TopicConfig) -> Refused | None:
    """The header on its own: Kafka's UnifiedLog.analyzeAndValidateRecords and LogValidator.validateBatch."""
    if int.from_bytes(data[:8], "big", signed=True) != 0:
        return Refused(ErrorCode.INVALID_RECORD, "The baseOffset of the record batch should be 0")
    if len(data) > config.max_message_bytes:
        return Refused(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch size is {len(data)} bytes which exceeds the maximum configured value of "
            f"{config.max_message_bytes}",
        )
    if len(data) < _HEADER.size:
        return Refused(
            ErrorCode.CORRUPT_MESSAGE,
            f"Record batch is corrupt (the size {len(data)} is smaller than the minimum allowed overhead {_HEADER.size})",
        )
    header = BatchHeader.parse(data)
    computed = crc32c(memoryview(data)[_CRC_FROM:])
    if header.crc != computed:
        return Refused(
            ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt (stored crc = {header.crc}, computed crc = {computed})"
        )
    if header.last_offset_delta < 0:
        return Refused(ErrorCode.INVALID_RECORD, f"Batch has an invalid offset range: [0, {header.last_offset_delta}]")
    if header.record_count <= 0:
        return Refused(ErrorCode.INVALID_RECORD, f"Invalid reported count for record batch: {header.record_count}")
    if header.record_count != header.last_offset_delta + 1:
        return Refused(
            ErrorCode.INVALID_RECORD,
            f"Inconsistent batch offset range [0, {header.last_offset_delta}] and count of records {header.record_count}",
        )
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return Refused(ErrorCode.INVALID_TIMESTAMP, "Producer should not set timestamp type to LogAppendTime")
    if header.is_control:
        return Refused(ErrorCode.INVALID_RECORD, "Clients are not allowed to write control records")
    if header.producer_id >= 0 and header.base_sequence < 0:
        return Refused(
            ErrorCode.INVALID_RECORD,
            f"Invalid sequence number {header.base_sequence} in record batch with producerId {header.producer_id}",
        )
    return None


def _read_records(data: bytes, header: BatchHeader) -> Sequence[Record] | Refused:
    try:
        (batch,) = read_batches(data)
    except CorruptRecord as error:
        return Refused(_why_unreadable(data, header), str(error))
    return batch.records


def _why_unreadable(data: bytes, header: BatchHeader) -> ErrorCode:
    # Kafka has no error for a payload that does not decompress: it reports an unexpected one.
    try:
        decompress(Codec(header.codec), data[_HEADER.size :], max_size=_DECOMPRESSED_LIMIT)
    except (KafkaError, ValueError):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.INVALID_RECORD


def _check_records(records: Sequence[Record], config: TopicConfig, now_ms: int, rules: LogRules) -> Refused | None:
    for find, code, text in _RECORD_CHECKS:
        errors = tuple(find(records, config, now_ms, rules))
        if errors:
            return Refused(code, text, errors)
    return None


def _check_stored_size(data: bytes, header: BatchHeader, config: TopicConfig) -> Refused | None:
    """A batch that the topic stores with another codec than it came with is measured again."""
    codec = _COMPRESSION_TYPES.get(config.compression_type, header.codec)
    if codec == header.codec:
        return None
    plain = decompress(Codec(header.codec), data[_HEADER.size :], max_size=_DECOMPRESSED_LIMIT)
    size = _HEADER.size + len(compress(Codec(codec), plain))
    if size <= config.max_message_bytes:
        return None
    return Refused(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"Message batch size is {size} bytes in append, which exceeds the maximum configured size of "
        f"{config.max_message_bytes}",
    )


def _find_missing_keys(
    records: Sequence[Record], config: TopicConfig, now_ms: int, rules: LogRules
) -> list[RecordError]:
    if not config.compacted:
        return []
    return [
        RecordError(index, "Compacted topic cannot accept message without key")
        for index, record in enumerate(records)
        if record.key is None
    ]


def _find_bad_timestamps(
    records: Sequence[Record], config: TopicConfig, now_ms: int, rules: LogRules
) -> list[RecordError]:
    if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
        return []
    before, after = (
        config.message_timestamp_difference_max_ms if limit is None else limit
        for limit in (config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms)
    )
    if after is None and rules.limits_future_timestamps:
        after = _HOUR_MS
    earliest = None if before is None else now_ms - before
    latest = None if after is None else now_ms + after
    return [
        RecordError(index, f"Timestamp {record.timestamp_ms} is out of range: from {earliest} to {latest}")
        for index, record in enumerate(records)
        if record.timestamp_ms != _NO_TIMESTAMP
        and (
            (earliest is not None and record.timestamp_ms < earliest)
            or (latest is not None and record.timestamp_ms > latest)
        )
    ]


_FindErrors: TypeAlias = Callable[[Sequence[Record], TopicConfig, int, LogRules], list[RecordError]]

_RECORD_CHECKS: tuple[tuple[_FindErrors, ErrorCode, str], ...] = (
    (
        _find_missing_keys,
        ErrorCode.INVALID_RECORD,
        "One or more records have been rejected due to missing keys",
    ),
    (
        _find_bad_timestamps,
        ErrorCode.INVALID_TIMESTAMP,
        "One or more records have been rejected due to invalid timestamp",
    ),
)


def _stamp(data: bytes, base_offset: int, leader_epoch: int, append_time: int) -> bytes:
    """The batch as the leader stores it; only a LogAppendTime touches what the CRC covers."""
    raw = bytearray(data)
    struct.pack_into(">q", raw, 0, base_offset)
    struct.pack_into(">i", raw, 12, leader_epoch)
    if append_time != _NO_TIMESTAMP:
        raw[_CRC_FROM + 1] |= _LOG_APPEND_TIME_BIT
        struct.pack_into(">q", raw, _MAX_TIMESTAMP_AT, append_time)
        struct.pack_into(">I", raw, _CRC_AT, crc32c(memoryview(raw)[_CRC_FROM:]))
    return bytes(raw)


def _marker(producer_id: int, producer_epoch: int, committed: bool, coordinator_epoch: int, now_ms: int) -> bytes:
    """A control batch of one record, Kafka's EndTransactionMarker, at offset 0."""
    key = _MARKER_KEY.pack(0, _COMMIT_MARKER if committed else _ABORT_MARKER)
    value = _MARKER_VALUE.pack(0, coordinator_epoch)
    # Attributes, timestamp delta and offset delta are 0; the lengths fit into one byte as zigzag varints.
    body = b"\0\0\0" + bytes([2 * len(key)]) + key + bytes([2 * len(value)]) + value + b"\0"
    record = bytes([2 * len(body)]) + body
    header = BatchHeader(
        base_offset=0,
        batch_length=_HEADER.size - _BEFORE_BATCH + len(record),
        partition_leader_epoch=0,
        magic=_MAGIC,
        crc=0,
        attributes=_TRANSACTIONAL_BIT | _CONTROL_BIT,
        last_offset_delta=0,
        base_timestamp=now_ms,
        max_timestamp=now_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=_NO_SEQUENCE,
        record_count=1,
    )
    raw = bytearray(_HEADER.pack(*header) + record)
    struct.pack_into(">I", raw, _CRC_AT, crc32c(memoryview(raw)[_CRC_FROM:]))
    return bytes(raw)


def _sequence_after(sequence: int, steps: int) -> int:
    return (sequence + steps) & _MAX_SEQUENCE
