"""Applies the outcome of batches to their records, their memory and the flushes that wait for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from itertools import accumulate
from typing import Protocol, TypeAlias

from aioproducer.accumulator.buffer_pool import BufferPool
from aioproducer.accumulator.partition_queue import PartitionQueue
from aioproducer.accumulator.queues import Queues
from aioproducer.accumulator.sealing import Sealing
from aioproducer.accumulator.stopped_partitions import StoppedPartitions
from aioproducer.core.backoff import ExponentialBackoff
from aioproducer.core.batches import FlushWaiter, ProducerBatch, UndeliveredRecords
from aioproducer.core.division import divided_by_size
from aioproducer.core.failed_attempt import FailedAttempt, latest
from aioproducer.core.sequences import Sequences
from aioproducer.delivery import BatchFailure
from aioproducer.errors import KafkaError
from aioproducer.metrics.producer import ProducerMetrics
from aioproducer.types import TopicPartition

__all__ = ["OpenTransaction", "Outcomes"]


Cause: TypeAlias = KafkaError | Callable[[ProducerBatch], KafkaError]


class OpenTransaction(Protocol):
    """The transaction of all records."""

    def claim(self, partition: TopicPartition) -> None:
        """Add the partition of a record; raises if no transaction can take it."""
        ...

    def batch_failed(self, cause: KafkaError) -> None:
        """A batch was given up."""
        ...

    def batch_settled(self) -> None:
        """No attempt of a batch is in flight any more."""
        ...


class Outcomes:
    """Takes back batches, in flight or waiting, and completes, fails, divides or retries them."""

    def __init__(
        self,
        queues: Queues,
        sealing: Sealing,
        pool: BufferPool,
        sequences: Sequences,
        metrics: ProducerMetrics,
        *,
        retry_backoff: ExponentialBackoff,
        random: Callable[[], float],
        on_late: Callable[[TopicPartition, int], object],
        transaction: OpenTransaction | None,
        stopped: StoppedPartitions,
    ) -> None:
        """``on_late`` is called for records that are acknowledged after they were given up."""
        #: The batches whose records have no outcome yet.
        self.incomplete: dict[ProducerBatch, None] = {}
        self._queues = queues
        self._sealing = sealing
        self._pool = pool
        self._sequences = sequences
        self._metrics = metrics
        self._retry_backoff = retry_backoff
        self._random = random
        self._on_late = on_late
        self._transaction = transaction
        self._stopped = stopped

    # -- after a broker's response ------------------------------------------------------------------------------------

    def complete(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int, now: float) -> None:
        """The batch was written to the log."""
        self._sequences.acknowledged(batch)
        topic = self._metrics.topic(batch.partition.topic)
        encoded = batch.encoded
        assert encoded is not None
        size = encoded.size
        if size > topic.largest_batch:
            topic.largest_batch = size
        if self._sealing.limits.by_topic:
            self._sealing.limits.accepted(batch.partition.topic, size)
        if batch.whole_in_doubt and self._sequences.idempotent:
            self._resolve_split_siblings(batch)
        if batch.given_up:
            self._on_late(batch.partition, batch.count)
        else:
            self._metrics.records_delivered += batch.count
            topic.record_send_total += batch.count
            topic.byte_total += size
            self._note_outcome(batch)
            if batch.attempts > 1 and log_append_time_ms == encoded.max_timestamp:
                # For a duplicate, a broker answers with the batch's latest timestamp here, even for topics with
                # LogAppendTime (UnifiedLog: the timestamp of the duplicate).
                log_append_time_ms = -1
            topic.has_log_append_time = log_append_time_ms >= 0
            batch.result.succeed(base_offset, log_append_time_ms)
        queue = self._queues.by_partition[batch.partition]
        queue.remove_from_flight(batch)
        if queue.batches:
            self._queues.promote(queue, now)
        self._release(batch)

    def _resolve_split_siblings(self, part: ProducerBatch) -> None:
        """A part was accepted under the sequence of the whole: neither the whole nor the other parts are in the log."""
        for other in self._queues.by_partition[part.partition].batches:
            if other.ordinal[0] != part.ordinal[0]:
                break
            if other.whole_in_doubt:
                other.whole_in_doubt = False
                other.possibly_written = other.attempts > 0

    def retry(self, batch: ProducerBatch, now: float) -> None:
        """Return the batch to its place in the queue, to be sent again with the same bytes after a backoff.

        Behind a lost batch of a stopped partition it is given up instead.
        """
        if self._stopped.is_behind_loss(batch):
            return self.fail(batch, self._stopped.refusal(batch.partition), now)
        queue = self._queues.by_partition[batch.partition]
        queue.remove_from_flight(batch)
        batch.retry_at = now + self._retry_backoff.delay(batch.attempts - 1, self._random())
        self._metrics.record_retry_total += batch.count
        self._metrics.topic(batch.partition.topic).record_retry_total += batch.count
        queue.insert(batch)
        self._queues.place(queue, now)

    def split(self, batch: ProducerBatch, now: float) -> None:
        """The broker found the batch too large: replace it with smaller ones (KIP-126, KAFKA-19479)."""
        assert batch.encoded is not None
        queue = self._queues.by_partition[batch.partition]
        self._sealing.refused(batch)
        half = batch.encoded.uncompressed_size // 2
        parts = divided_by_size(batch, min(half, self._sealing.limit(batch.partition.topic)))
        self._metrics.batch_split_total += 1
        self._sequences.split(batch, parts)
        queue.remove_from_flight(batch)
        self.substitute(queue, batch, parts)
        self._queues.place(queue, now)

    def substitute(self, queue: PartitionQueue, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        """Put the parts of a batch into the queue; the batch itself has left it."""
        # From here on each part owns its share of what the whole had reserved.
        spare = batch.hand_over() - sum(part.reserved for part in parts)
        if spare > 0:
            self._pool.release(spare)
        else:
            self._pool.free += spare  # negative: the parts' headers, a debt of some bytes until they are done
        for waiter in batch.flush_waiters or ():
            waiter.remaining += len(parts) - 1
        for part in parts:
            part.possibly_written = part.whole_in_doubt = batch.possibly_written
            part.flush_waiters = list(batch.flush_waiters) if batch.flush_waiters else None
            self.incomplete[part] = None
            queue.insert(part)
            self._sealing.seal_ahead(part)
        batch.flush_waiters = None
        self.incomplete.pop(batch, None)
        batch.result.split(
            [part.result for part in parts], list(accumulate((each.count for each in parts[:-1]), initial=0))
        )
        batch.drop_bytes()

    def fail(
        self,
        batch: ProducerBatch,
        cause: KafkaError,
        now: float,
        *,
        timed_out: bool = False,
        record_errors: dict[int, str] | None = None,
    ) -> None:
        """Give the batch up; its deliveries fail with the cause. This may stop its partition."""
        self._fail(batch, cause, now, timed_out, record_errors)
        if self._stopped.losses:
            self.fail_stopped(self._queues.by_partition[batch.partition], now)

    def _fail(
        self,
        batch: ProducerBatch,
        cause: KafkaError,
        now: float,
        timed_out: bool = False,
        record_errors: dict[int, str] | None = None,
    ) -> None:
        batch.is_in_flight = False
        if not batch.given_up:  # before its sequence is given up: a transaction reports the first cause
            self._fail_deliveries(batch, cause, now, timed_out, record_errors)
        self._sequences.given_up(batch)
        queue = self._queues.by_partition[batch.partition]
        queue.remove_from_flight(batch)
        self._queues.place(queue, now)
        self._release(batch)

    def is_behind_loss(self, batch: ProducerBatch) -> bool:
        """Whether the batch will not be sent again, because an earlier one of its partition was lost."""
        return self._stopped.is_behind_loss(batch)

    def lose(self, partition: TopicPartition, failure: BatchFailure) -> None:
        """A record that comes after everything of its partition was accepted elsewhere, and is lost."""
        if partition.partition < 0:  # nothing has chosen it yet
            return
        self._stopped.note_last(partition, failure)
        queue = self._queues.by_partition.get(partition)
        if queue is not None and queue.batches and partition in self._stopped.losses:
            queue.batches[-1].limit = 0  # no later record may join it

    def resume(self, topic: str | None, partition: int | None) -> tuple[TopicPartition, ...]:
        """Let stopped partitions go on: one, those of a topic, or all; returns them in order."""
        return self._stopped.resume(topic, partition, self._newest_in_flight)

    def _newest_in_flight(self, partition: TopicPartition) -> tuple[int, ...] | None:
        queue = self._queues.by_partition.get(partition)
        return None if queue is None else max((batch.ordinal for batch in queue.in_flight), default=None)

    def fail_stopped(self, queue: PartitionQueue, now: float) -> None:
        """Give up the waiting batches behind the one that has stopped the partition, if it is stopped.

        This includes those that were sent before and wait for a retry.
        """
        for batch in [each for each in queue.batches if self._stopped.is_behind_loss(each)]:
            if batch in queue.batches:
                queue.batches.remove(batch)
                self._fail(batch, self._stopped.refusal(queue.partition), now)

    def sent_from(self, batch: ProducerBatch) -> list[ProducerBatch]:
        """Return the batch and later ones of its partition that were sent and have no final answer."""
        queue = self._queues.by_partition[batch.partition]
        waiting = [each for each in queue.batches if each.attempts]
        return [each for each in (*queue.in_flight, *waiting) if each.ordinal >= batch.ordinal]

    # -- giving up without a response ---------------------------------------------------------------------------------

    def give_up(self, batch: ProducerBatch, cause: KafkaError, now: float, *, timed_out: bool) -> None:
        """Fail the deliveries of an expired batch. A batch in flight keeps its memory until it is answered."""
        if batch.is_in_flight:
            self._fail_deliveries(batch, cause, now, timed_out, None)
            batch.given_up = True
            self.fail_stopped(self._queues.by_partition[batch.partition], now)
        else:
            self.fail(batch, cause, now, timed_out=timed_out)

    def purge(
        self, cause: KafkaError, now: float, *, topics: Set[str], in_flight: bool
    ) -> list[tuple[bool, UndeliveredRecords]]:
        """Give up the records of these topics (none: of all), also those in flight if ``in_flight``.

        Returns for each batch whether it may be written, and its records.
        """
        batches = [
            batch
            for batch in self.incomplete_in_order()
            if (in_flight or not batch.is_in_flight) and (not topics or batch.partition.topic in topics)
        ]
        purged = [(batch.possibly_written or batch.is_in_flight, batch.undelivered()) for batch in batches]
        for batch in batches:
            if batch not in self.incomplete:
                continue  # another failure has ended the transaction and this batch
            if not batch.is_in_flight:
                self._queues.by_partition[batch.partition].batches.remove(batch)
            self.give_up(batch, cause, now, timed_out=False)
        return purged

    def fail_undrained(self, cause: KafkaError, now: float) -> None:
        """Give up batches that were never sent; the others continue until their outcome is known."""
        for queue in list(self._queues.by_partition.values()):
            for batch in [each for each in queue.batches if each.base_sequence < 0]:
                queue.batches.remove(batch)
                self.fail(batch, cause, now)

    def fail_all(self, cause: Cause, now: float, *, timed_out: bool = False) -> None:
        """Give up all batches without an outcome, for one cause or for a cause of each batch."""
        failed: list[tuple[ProducerBatch, KafkaError]] = []
        # The deliveries come first: a bug may be the cause, and the steps that follow may raise too.
        for batch in self.incomplete_in_order():
            if batch in self.incomplete:  # another failure may have ended the transaction and this batch
                its_cause = cause(batch) if callable(cause) else cause
                failed.append((batch, its_cause))
                batch.given_up = True  # first: the failure may give up this batch again
                self._fail_deliveries(batch, its_cause, now, timed_out, None)
        for batch, its_cause in failed:
            if batch.is_in_flight:
                continue
            queue = self._queues.by_partition[batch.partition]
            if batch in queue.batches:
                queue.batches.remove(batch)
            self._fail(batch, its_cause, now)

    def forsake_all(self, cause: KafkaError, now: float) -> None:
        """Fail everything that has no outcome when the event loop is closed: nothing is woken, nothing given back."""
        for batch in self.incomplete_in_order():
            self._count_failure(batch, failure := batch.failure(cause, now=now))
            batch.flush_waiters = None
            batch.given_up = True
            batch.result.forsake(failure)
        self.incomplete.clear()

    @property
    def last_failure(self) -> FailedAttempt | None:
        """The last failure of the incomplete batches; None if none of them has failed."""
        return latest(batch.last_failure for batch in self.incomplete)

    def incomplete_in_order(self) -> list[ProducerBatch]:
        """The batches whose records wait for their outcome, in the order of each partition."""
        return sorted(self.incomplete, key=lambda batch: batch.ordinal)

    # -- consequences -------------------------------------------------------------------------------------------------

    def _fail_deliveries(
        self,
        batch: ProducerBatch,
        cause: KafkaError,
        now: float,
        timed_out: bool,
        record_errors: dict[int, str] | None,
    ) -> None:
        failure = batch.failure(cause, now=now, timed_out=timed_out, record_errors=record_errors)
        self._count_failure(batch, failure)
        self._note_outcome(batch)
        self._stopped.note(batch, failure)
        batch.result.fail(failure)
        if self._transaction is not None:
            self._transaction.batch_failed(cause)

    def _count_failure(self, batch: ProducerBatch, failure: BatchFailure) -> None:
        self._metrics.topic(batch.partition.topic).record_error_total += batch.count
        if failure.possibly_written:
            self._metrics.records_unknown += batch.count
        else:
            self._metrics.records_failed += batch.count

    def _note_outcome(self, batch: ProducerBatch) -> None:
        """The batch is no longer incomplete; flushes do not wait for it."""
        self.incomplete.pop(batch, None)
        if batch.flush_waiters:
            waiters, batch.flush_waiters = batch.flush_waiters, None
            for waiter in waiters:
                waiter.one_less()

    def call_when_complete(self, on_done: Callable[[], object]) -> FlushWaiter:
        """Call ``on_done`` when everything that is incomplete now has an outcome; at once if nothing is."""
        batches = list(self.incomplete)
        waiter = FlushWaiter(len(batches), on_done)
        if not batches:
            on_done()
        for batch in batches:  # removes the leftovers of flushes that timed out
            others = [each for each in batch.flush_waiters if not each.is_over] if batch.flush_waiters else []
            batch.flush_waiters = [*others, waiter]
        return waiter

    def _release(self, batch: ProducerBatch) -> None:
        """Give back the memory of a batch that has nothing in flight any more."""
        reserved = batch.finish()
        self._pool.release(reserved)
        if self._transaction is not None:
            self._transaction.batch_settled()
