"""One batch of records for one partition, from its first record to its outcome (Java's ProducerBatch).

A batch is open while records may join it, sealed once its bytes are fixed (closed and compressed), and done once its
outcome is known. The bytes of a sealed batch do not change while they are referenced: a socket may still be
reading them long after the batch expired (KAFKA-19012).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from aioproducer.core.failed_attempt import FailedAttempt
from aioproducer.core.sequences import NO_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from aioproducer.delivery import BatchFailure, ProduceResult, UnobservedSink
from aioproducer.errors import KafkaError
from aioproducer.hot import OpenBatch
from aioproducer.record import BATCH_OVERHEAD, Codec, EncodedBatch, RecordBatchBuilder, encode_batch
from aioproducer.types import ProducerRecord, TopicPartition

if TYPE_CHECKING:
    from aioproducer.record.reader import Record

__all__ = ["BATCH_OVERHEAD", "FlushWaiter", "ProducerBatch", "UndeliveredRecords"]


class FlushWaiter:
    """Counts down the batches that a flush waits for, and reports when none is left."""

    __slots__ = ("_on_done", "is_over", "remaining")

    def __init__(self, remaining: int, on_done: Callable[[], object]) -> None:
        self.remaining = remaining
        self.is_over = False  # nothing waits any more
        self._on_done = on_done

    def one_less(self) -> None:
        """A batch is done."""
        self.remaining -= 1
        if self.remaining == 0:
            self._on_done()


class ProducerBatch(OpenBatch):
    """Records that travel together.

    ``is_in_flight``: its bytes were handed to a connection and not answered yet. ``possibly_written``: an attempt left
    this process and was not certainly refused. ``whole_in_doubt``: it may be written, but its broker would not recognise
    it: it is a part of a batch that was split, or the broker has forgotten it. ``given_up``: its deliveries failed while it
    was in flight; it only waits for the answer.
    """

    __slots__ = (
        "_reserved",
        "_stamped",
        "attempts",
        "base_sequence",
        "created_at",
        "encoded",
        "flush_waiters",
        "given_up",
        "is_in_flight",
        "is_sealing",
        "last_attempt_at",
        "last_failure",
        "leader_epoch",
        "ordinal",
        "partition",
        "possibly_written",
        "producer_epoch",
        "producer_id",
        "retry_at",
        "sink",
        "transactional",
        "whole_in_doubt",
    )

    result: ProduceResult

    def __init__(self, partition: TopicPartition, created_at: float, limit: int, sink: UnobservedSink) -> None:
        super().__init__(ProduceResult(partition, sink), limit)
        self.partition = partition
        self.created_at = created_at
        self.sink = sink
        self.encoded: EncodedBatch | None = None
        self.attempts = 0
        self.last_attempt_at = created_at
        self.last_failure: FailedAttempt | None = None
        self.retry_at = 0.0
        self.leader_epoch = -1
        self.is_in_flight = False
        self.possibly_written = False
        self.whole_in_doubt = False
        self.given_up = False
        self.is_sealing = False
        self.ordinal: tuple[
            int, ...
        ] = ()  # the place among the partition's batches; the parts of a split share a prefix
        self.flush_waiters: list[FlushWaiter] | None = None
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_EPOCH
        self.base_sequence = NO_SEQUENCE
        self.transactional = False
        self._stamped = False
        self._reserved: int | None = None  # while records may join, the builder knows it

    @property
    def is_open(self) -> bool:
        """Whether the bytes are not fixed yet."""
        return self.builder is not None

    # -- sealing ------------------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """The size in bytes: on the wire once sealed, uncompressed before."""
        if self.encoded is not None:
            return self.encoded.size
        return self.builder.size if self.builder is not None else 0

    @property
    def latest_timestamp(self) -> int:
        """The timestamp of the latest record in milliseconds; only of a sealed batch."""
        assert self.encoded is not None
        return self.encoded.max_timestamp

    @property
    def reserved(self) -> int:
        """The bytes of the BufferPool that the batch holds: its uncompressed records and a batch header."""
        if self._reserved is not None:
            return self._reserved
        builder = self.builder
        return builder.size if builder is not None and builder.count else 0

    def hand_over(self) -> int:
        """Return the bytes of the BufferPool that the batch holds; the caller owns them from here on."""
        reserved = self._reserved
        if reserved is None:
            reserved = self.reserved
        self._reserved = 0
        return reserved

    def finish(self) -> int:
        """Drop the records, and return the bytes of the BufferPool that the batch held; the caller gives them back."""
        reserved = self._reserved
        if reserved is None:
            reserved = self.reserved
        self._reserved = 0
        self.encoded = None
        if self.builder is not None:
            self.drop_builder()
        return reserved

    def close(self) -> RecordBatchBuilder:
        """Let no more records join, and return the records to encode; `sealed` must follow."""
        builder = self.builder
        assert builder is not None
        self.limit = 0
        self._reserved = builder.size if builder.count else 0
        return builder

    def sealed(self, encoded: EncodedBatch) -> None:
        """Set the final bytes of the batch."""
        self.encoded = encoded
        self.drop_builder()
        self.is_sealing = False

    def seal(self, codec: Codec, level: int | None) -> EncodedBatch:
        """Close and compress at once; returns the final bytes."""
        encoded = encode_batch(self.close(), codec, level)
        self.sealed(encoded)
        return encoded

    # -- sending ------------------------------------------------------------------------------------------------------

    def renumber(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Set these numbers; only the header is rewritten."""
        self.producer_id, self.producer_epoch, self.base_sequence = producer_id, producer_epoch, base_sequence
        self._stamped = False

    @property
    def pieces(self) -> tuple[bytes, bytes]:
        """Return header and records as on the wire; both are immutable."""
        encoded = self.encoded
        assert encoded is not None
        if not self._stamped:
            encoded.stamp(self.producer_id, self.producer_epoch, self.base_sequence, self.transactional)
            self._stamped = True
        return encoded.pieces

    # -- the end ------------------------------------------------------------------------------------------------------

    def failure(
        self,
        cause: KafkaError,
        *,
        now: float,
        timed_out: bool = False,
        record_errors: dict[int, str] | None = None,
    ) -> BatchFailure:
        """Return the failure of this batch for this cause, with what is known about its outcome."""
        return BatchFailure(
            self.partition,
            cause,
            self.possibly_written or self.is_in_flight,
            timed_out,
            self.undelivered(),
            record_errors or {},
            None if self.last_failure is None else self.last_failure.seen_at(now),
        )

    def undelivered(self) -> UndeliveredRecords:
        """Return the records; they stay readable after the batch is done."""
        return UndeliveredRecords(self.partition, self.builder, self.encoded)

    def read_records(self) -> Sequence[Record]:
        """Return the records, decoded from the bytes."""
        if self.encoded is not None:
            return self.encoded.read_records()
        return self.builder.read_records() if self.builder is not None else ()

    def drop_bytes(self) -> None:
        """Drop the records: their outcome was reported, and no socket reads them any more."""
        self.encoded = None
        self.drop_builder()

    def __repr__(self) -> str:
        state = "open" if self.is_open else "in flight" if self.is_in_flight else "sealed"
        what = f"{self.partition}: {self.count} records, {self.size} bytes, {state}, {self.attempts} attempts"
        if self.base_sequence >= 0:
            what += f", sequence {self.base_sequence} of {self.producer_id}/{self.producer_epoch}"
        return f"<ProducerBatch for {what}>"


class UndeliveredRecords:
    """Returns the records of a batch, with serialized keys and values."""

    __slots__ = ("_builder", "_encoded", "_partition")

    def __init__(
        self, partition: TopicPartition, builder: RecordBatchBuilder | None, encoded: EncodedBatch | None
    ) -> None:
        self._partition = partition
        self._builder = builder
        self._encoded = encoded

    def __call__(self) -> Sequence[ProducerRecord]:
        source = self._encoded or self._builder
        topic, partition = self._partition
        return [
            ProducerRecord(topic, record.value, record.key, tuple(record.headers), partition, record.timestamp_ms)
            for record in (source.read_records() if source is not None else ())
        ]
