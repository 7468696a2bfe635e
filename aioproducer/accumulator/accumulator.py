"""Holds the records of each partition, in batches, until the Sender takes them (Java's RecordAccumulator)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence, Set
from itertools import accumulate, count
from typing import Protocol

from aioproducer.accumulator.buffer_pool import BufferPool
from aioproducer.accumulator.queues import PartitionQueue, Queues
from aioproducer.accumulator.settings import AccumulatorSettings
from aioproducer.accumulator.sticky import StickyChoice
from aioproducer.core.batches import BATCH_OVERHEAD, FlushWaiter, ProducerBatch
from aioproducer.core.cluster import ClusterMetadata, TopicMetadata
from aioproducer.core.compression_ratio import CompressionRatios
from aioproducer.core.division import divided_by_count, divided_by_size
from aioproducer.core.sequences import Sequences
from aioproducer.core.transactions.writer_shape import FirstBatches
from aioproducer.delivery import Delivery, ProduceResult, UnobservedSink
from aioproducer.errors import KafkaError
from aioproducer.hot import Lane, OpenBatch
from aioproducer.metrics import ProducerMetrics
from aioproducer.record import Codec, EncodedBatch, RecordBatchBuilder
from aioproducer.types import Header, TopicPartition

__all__ = ["OpenTransaction", "RecordAccumulator"]

#: So many batches make a request, or its answer, that takes the event loop's time for milliseconds.
_MOST_BATCHES = 250


class OpenTransaction(Protocol):
    """The transaction that all records are part of."""

    def claim(self, partition: TopicPartition) -> None:
        """Take the partition of a record in; raises where there is no transaction that could take it."""
        ...

    def batch_failed(self, cause: KafkaError) -> None:
        """A batch was given up."""
        ...

    def batch_settled(self) -> None:
        """Nothing of a batch is on its way any more."""
        ...


class RecordAccumulator:
    """Takes records in, and hands batches out."""

    def __init__(
        self,
        settings: AccumulatorSettings,
        metadata: ClusterMetadata,
        pool: BufferPool,
        sequences: Sequences,
        metrics: ProducerMetrics,
        sink: UnobservedSink,
        *,
        wake_sender: Callable[[], object],
        random: Callable[[], float],
        on_late: Callable[[TopicPartition, int], object] = lambda partition, records: None,
        is_waited_for: Callable[[str], bool] = lambda topic: False,
        transaction: OpenTransaction | None = None,
        shape: Sequence[int] = (),
    ) -> None:
        """``on_late`` is told of records that are acknowledged after they were given up.

        ``is_waited_for`` says whether records wait for a topic's metadata that no newcomer may overtake. ``transaction`` is
        what all records are part of. ``shape`` is how many records the first batches of each partition have at most.
        """
        self.settings = settings
        self.pool = pool
        self.sequences = sequences
        self._metadata = metadata
        self._metrics = metrics
        self._sink = sink
        self._wake_sender = wake_sender
        self._on_late = on_late
        self._random = random
        self._is_waited_for = is_waited_for
        self._transaction = transaction
        self._shape = shape
        self._firsts: dict[str, FirstBatches] = {}
        self._ratios = CompressionRatios()
        self.queues = Queues(
            metadata, pool, sequences, linger_s=settings.linger_s, delivery_timeout_s=settings.delivery_timeout_s
        )
        self.sticky = StickyChoice(settings, metadata, self.queues, random=random)
        self._incomplete: dict[ProducerBatch, None] = {}
        self.lanes: dict[str, Lane] = {}
        self._ordinals = count()
        self._to_seal: list[ProducerBatch] = []

    # -- records in ---------------------------------------------------------------------------------------------------

    def try_append(
        self,
        topic: TopicMetadata,
        partition: int | None,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        size: int,
        now: float,
    ) -> Delivery | None:
        """Put the record at the end of its partition, or answer None where there is no room for it yet.

        ``partition`` None: wherever records without a key go now. ``size`` is an upper bound of the encoded record.
        """
        queue = self._queue_for(topic, partition, size, now)
        if queue.lock is not None and queue.lock.locked():
            return None
        if not self.pool.try_acquire(size + BATCH_OVERHEAD):
            return None
        return self._append(queue, timestamp_ms, key, value, headers, size, partition is None, topic, now)

    async def append(
        self,
        topic: TopicMetadata,
        partition: int | None,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        size: int,
        clock: Callable[[], float],
        check: Callable[[], object] | None = None,
    ) -> Delivery:
        """Like `try_append`, but waits for room: first come, first served.

        The partition's lock is held from the place in the queue to the append, so the records of a partition keep the
        order in which they came. Raises PoolClosed, and what ``check`` raises after the wait. Cancellation: nothing was
        buffered, the memory is given back.
        """
        ticket = self.pool.join(size + BATCH_OVERHEAD)
        if partition is None:  # the partition is chosen when there is room: there is no order to keep
            await self.pool.wait(ticket)
            self._check(check, size + BATCH_OVERHEAD)
            topic = self._metadata.topics.get(topic.name, topic)  # leaders may have moved meanwhile
            queue = self._queue_for(topic, None, size, clock())
            return self._append(queue, timestamp_ms, key, value, headers, size, True, topic, clock())

        queue = self.queues.of(TopicPartition(topic.name, partition))
        lock = queue.lock
        if lock is None:
            lock = queue.lock = asyncio.Lock()
        queue.waiting += 1
        try:
            try:
                await lock.acquire()
            except BaseException:
                self.pool.leave(ticket)
                raise
            try:
                await self.pool.wait(ticket)
                self._check(check, size + BATCH_OVERHEAD)
                return self._append(queue, timestamp_ms, key, value, headers, size, False, topic, clock())
            finally:
                lock.release()
        finally:
            queue.waiting -= 1

    def _check(self, check: Callable[[], object] | None, acquired: int) -> None:
        if check is None:
            return
        try:
            check()
        except BaseException:
            self.pool.release(acquired)
            raise

    def append_builder(
        self, topic: TopicMetadata, partition: int, builder: RecordBatchBuilder, now: float
    ) -> ProduceResult:
        """Put records that were encoded elsewhere at the end of a partition, as a batch of their own.

        ``builder.size`` bytes of the BufferPool must have been acquired; they are not the caller's any more. Raises where
        there is no transaction that could take it.
        """
        queue = self.queues.of(TopicPartition(topic.name, partition))
        self._claim(queue, builder.size)
        if self._shape:
            self._first_batches(topic.name).take(partition, builder.count, builder.size)
        batch = self._new_batch(queue, self._lane(topic), now)
        batch.builder = builder
        batch.limit = 0
        self.queues.promote(queue, now)
        self._wake_sender()
        return batch.result

    def batch_limit(self, topic: str, row_size: int) -> int:
        """How many bytes, before they are compressed, are to go into the topic's next batch, if it is encoded elsewhere.

        ``row_size`` is what its records take on average.
        """
        limit = self._limit(topic)
        if self._shape and not (firsts := self._first_batches(topic)).are_over:
            return min(limit, firsts.limit(row_size))
        return limit

    def _limit(self, topic: str) -> int:
        limit = self.settings.batch_size
        if self.settings.codec is Codec.NONE:
            return limit
        return min(self._ratios.uncompressed_limit(topic, limit), max(limit, self.settings.max_request_size))

    def _first_batches(self, topic: str) -> FirstBatches:
        found = self._firsts.get(topic)
        if found is None:
            found = self._firsts[topic] = FirstBatches(self._shape)
        return found

    def sticky_partition(self, topic: TopicMetadata, now: float) -> int:
        """Choose where records without a key go next, as `append_builder` brings them by the batch."""
        return self.sticky.switch(topic, self._lane(topic).sticky, now)

    def _append(
        self,
        queue: PartitionQueue,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        size: int,
        sticky: bool,
        topic: TopicMetadata,
        now: float,
    ) -> Delivery:
        """Add the record to the last batch or to a new one; ``size`` plus a batch header were acquired for it."""
        batches = queue.batches
        acquired = size + BATCH_OVERHEAD
        self._claim(queue, acquired)
        batch = batches[-1] if batches else None
        lane = self._lane(topic)
        is_new = batch is None or not batch.has_room(size)
        if is_new:
            batch = self._new_batch(queue, lane, now)
        assert batch is not None
        try:
            used, delivery = batch.append(timestamp_ms, key, value, headers)
        except BaseException:
            if is_new:
                batch.drop_bytes()
                batches.pop()
                del self._incomplete[batch]
            self.pool.release(acquired)
            raise
        self.pool.release(size - used if is_new else acquired - used)
        if is_new or batch.is_full:
            self.queues.promote(queue, now)
            self._wake_sender()
        if sticky and lane.sticky.appended(used, batch.is_full):
            self.sticky.switch(topic, lane.sticky, now)
        return delivery

    def begin(self, topic: TopicMetadata, partition: int | None, size: int, now: float) -> ProducerBatch | None:
        """A batch that has room for a record of this size, or None where somebody must wait; the caller appends at once.

        ``partition`` None: wherever records without a key go now. The caller takes the record's bytes from the pool; a
        new batch has those of its header. Where it then cannot append, `undo` must follow.
        """
        if size + BATCH_OVERHEAD > self.pool.free or self.pool.line:
            return None
        queue = self._queue_for(topic, partition, size, now)
        if queue.lock is not None and queue.lock.locked():
            return None
        self._claim(queue, 0)
        lane = self._lane(topic)
        batch = queue.batches[-1] if queue.batches else None
        if batch is not None and batch.has_room(size):
            lane.open[queue.partition.partition] = batch
            return batch
        batch = self._new_batch(queue, lane, now)
        self.pool.free -= BATCH_OVERHEAD
        self.queues.promote(queue, now)
        self._wake_sender()
        return batch

    def _claim(self, queue: PartitionQueue, acquired: int) -> None:
        """Have the transaction take the partition in; where that is impossible, the memory is given back."""
        if self._transaction is None:
            return
        try:
            self._transaction.claim(queue.partition)
        except BaseException:
            self.pool.release(acquired)
            raise

    def undo(self, batch: ProducerBatch) -> None:
        """Take back a batch that `begin` made, and that stayed empty."""
        queue = self.queues.by_partition[batch.partition]
        queue.batches.remove(batch)
        del self._incomplete[batch]
        batch.drop_bytes()
        self.queues.place(queue, batch.created_at)
        self.pool.release(BATCH_OVERHEAD)

    def filled(self, batch: OpenBatch) -> None:
        """The batch became full on the short way, which looks after nothing else."""
        assert isinstance(batch, ProducerBatch)
        self.queues.place_again(batch.partition, batch.created_at)  # full is full, whatever the time
        self._wake_sender()

    def _new_batch(self, queue: PartitionQueue, lane: Lane, now: float) -> ProducerBatch:
        if queue.batches:
            self._seal_ahead(queue.batches[-1])
        topic, partition = queue.partition
        batch = ProducerBatch(queue.partition, now, self._limit(topic), self._sink)
        batch.ordinal = (next(self._ordinals),)
        batch.transactional = self._transaction is not None
        queue.batches.append(batch)
        self._incomplete[batch] = None
        if partition < lane.partition_count:
            lane.open[partition] = batch
        if not queue.expiry_armed:
            self.queues.arm_expiry(queue, batch)
        return batch

    def _lane(self, topic: TopicMetadata) -> Lane:
        """The lane of the topic; one without partitions, which lets nobody pass, as long as some wait for its metadata."""
        lane = self.lanes.get(topic.name)
        if lane is None or lane.partition_count != topic.partition_count:
            sticky = self.sticky.begin() if lane is None else lane.sticky
            if lane is not None:
                lane.partition_count = 0  # whoever still has it must look for the new one
            partition_count = 0 if self._is_waited_for(topic.name) else topic.partition_count
            lane = self.lanes[topic.name] = Lane(partition_count, sticky)
            self._expect(topic.name)
        return lane

    def _expect(self, topic: str) -> None:
        """Count the turn of a partition in the bytes that the records are expected to take on the wire."""
        if self.settings.codec is not Codec.NONE and topic in self.lanes:
            self.lanes[topic].sticky.ratio = self._ratios.on_the_wire(topic)

    # -- the partition of a record without a key ------------------------------------------------------------------------

    def _queue_for(self, topic: TopicMetadata, partition: int | None, size: int, now: float) -> PartitionQueue:
        if partition is not None:
            return self.queues.of(TopicPartition(topic.name, partition))
        sticky = self._lane(topic).sticky
        if not 0 <= sticky.partition < topic.partition_count:
            self.sticky.switch(topic, sticky, now)
        queue = self.queues.of(TopicPartition(topic.name, sticky.partition))
        if (not queue.batches or not queue.batches[-1].has_room(size)) and sticky.appended(0, True):
            self.sticky.switch(topic, sticky, now)  # rather than begin another batch there
            queue = self.queues.of(TopicPartition(topic.name, sticky.partition))
        return queue

    # -- batches out --------------------------------------------------------------------------------------------------

    def not_taken(self, node: int, now: float) -> None:
        """Note that the node cannot take any more, which counts against it if there is more."""
        self.sticky.not_taken(node, now)

    def drain(self, node: int, max_size: int, now: float) -> list[ProducerBatch]:
        """The batches of the next request to this node: one of each ready partition in turn, up to ``max_size`` bytes.

        A batch that is larger than that travels alone; and there are some hundred of them at most. They are numbered and
        in flight from here on; each of them comes back through exactly one of `complete`, `retry`, `split` and `fail`.
        """
        queues = self.queues
        drained: list[ProducerBatch] = []
        if not queues.is_ready(node):
            return drained
        total = 0
        for queue in queues.turns(node, _MOST_BATCHES):
            if queue.shaped < len(self._shape):
                self._cut(queue)
            head = queue.batches[0]
            if not self.sequences.may_drain(head) or not self._seal(head):
                queues.block(queue)
                continue
            if drained and total + head.size > max_size:
                queues.give_turn_back(queue, node)
                break
            total += head.size
            queue.batches.popleft()
            queue.in_flight.append(head)
            queue.shaped += head.attempts == 0
            self._mark_in_flight(head, now)
            drained.append(head)
            if queue.batches:
                queues.place(queue, now)
        self.sticky.taken(node)
        return drained

    def _mark_in_flight(self, batch: ProducerBatch, now: float) -> None:
        self.sequences.number(batch)
        leader = self._metadata.leader(*batch.partition)
        batch.leader_epoch = leader[1] if leader is not None else -1
        batch.is_in_flight = True
        batch.retry_at = 0.0
        if batch.attempts == 0:
            self._metrics.record_queue_time.observe(now - batch.created_at)
            self._metrics.batch_size.observe(batch.size)
        batch.attempts += 1
        batch.last_attempt_at = now

    # -- compression --------------------------------------------------------------------------------------------------

    def take_to_seal(self) -> list[ProducerBatch]:
        """The batches that are to be compressed off the event loop; each comes back through `sealed`."""
        if not self._to_seal:
            return []
        batches, self._to_seal = self._to_seal, []
        return [batch for batch in batches if batch.is_open]  # some may have been given up since they were put here

    def sealed(self, batch: ProducerBatch, encoded: EncodedBatch, now: float) -> None:
        """A worker has compressed the batch."""
        if batch.result.done:  # it expired meanwhile
            batch.drop_bytes()
            return
        uncompressed = batch.size
        batch.sealed(encoded)
        self._compressed(batch, uncompressed)
        self.queues.place_again(batch.partition, now)

    def _is_for_worker(self, batch: ProducerBatch) -> bool:
        return self.settings.codec is not Codec.NONE and batch.size >= self.settings.compression_threshold

    def _seal_ahead(self, batch: ProducerBatch) -> None:
        """Have a large batch compressed as soon as no record will join it."""
        if batch.is_open and not batch.is_sealing and self._is_for_worker(batch):
            batch.is_sealing = True
            self._to_seal.append(batch)

    def _seal(self, batch: ProducerBatch) -> bool:
        """Fix the bytes of a batch now, or have a worker do it; answers whether they are fixed."""
        if batch.encoded is not None:
            return True
        if batch.is_sealing:
            return False
        if self._is_for_worker(batch):
            batch.is_sealing = True
            self._to_seal.append(batch)
            return False
        uncompressed = batch.size
        batch.seal(self.settings.codec, self.settings.compression_level)
        self._compressed(batch, uncompressed)
        return True

    def _compressed(self, batch: ProducerBatch, uncompressed: int) -> None:
        if self.settings.codec is Codec.NONE:
            return
        ratio = batch.size / uncompressed
        self._ratios.observe(batch.partition.topic, ratio)
        self._expect(batch.partition.topic)
        self._metrics.compression_rate.observe(ratio)

    # -- what became of them ------------------------------------------------------------------------------------------

    def complete(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int, now: float) -> None:
        """The batch is in the log."""
        self.sequences.acknowledged(batch, base_offset)
        topic = self._metrics.topic(batch.partition.topic)
        topic.largest_batch = max(topic.largest_batch, batch.size)
        if batch.whole_in_doubt and self.sequences.idempotent:
            self._resolve_split_siblings(batch)
        if batch.given_up:
            self._on_late(batch.partition, batch.count)
        else:
            self._metrics.records_delivered += batch.count
            topic.record_send_total += batch.count
            topic.byte_total += batch.size
            self._note_outcome(batch)
            if batch.attempts > 1 and batch.encoded is not None and log_append_time_ms == batch.latest_timestamp:
                # A broker that recognises a repeat answers with the batch's latest timestamp in this place, whoever
                # stamps the records of the topic (UnifiedLog: the timestamp of the duplicate).
                log_append_time_ms = -1
            batch.result.succeed(base_offset, log_append_time_ms)
        queue = self.queues.by_partition[batch.partition]
        queue.remove_from_flight(batch)
        if queue.batches:
            self.queues.promote(queue, now)
        self._finish(batch)

    def _resolve_split_siblings(self, part: ProducerBatch) -> None:
        """A part was taken under the sequence of the whole, so the whole is not in the log, nor are the other parts."""
        for other in self.queues.by_partition[part.partition].batches:
            if other.ordinal[0] != part.ordinal[0]:
                break
            if other.whole_in_doubt:
                other.whole_in_doubt = False
                other.possibly_written = other.attempts > 0

    def fail(
        self,
        batch: ProducerBatch,
        cause: KafkaError,
        now: float,
        *,
        timed_out: bool = False,
        record_errors: dict[int, str] | None = None,
    ) -> None:
        """The batch is given up; its records are told why."""
        batch.is_in_flight = False
        if not batch.given_up:  # before its sequence is: the first reason is the one that a transaction tells
            self._fail_deliveries(batch, cause, timed_out, record_errors)
        self.sequences.given_up(batch)
        queue = self.queues.by_partition[batch.partition]
        queue.remove_from_flight(batch)
        self.queues.place(queue, now)
        self._finish(batch)

    def retry(self, batch: ProducerBatch, now: float) -> None:
        """The batch goes back to where it was in its queue, to be sent again with the same bytes after a backoff."""
        queue = self.queues.by_partition[batch.partition]
        queue.remove_from_flight(batch)
        batch.retry_at = now + self.settings.retry_backoff.delay(batch.attempts - 1, self._random())
        self._metrics.record_retry_total += batch.count
        self._metrics.topic(batch.partition.topic).record_retry_total += batch.count
        queue.insert(batch)
        self.queues.place(queue, now)

    def split(self, batch: ProducerBatch, now: float) -> None:
        """The broker found the batch too large: put smaller ones in its place (KIP-126, KAFKA-19479)."""
        assert batch.encoded is not None
        queue = self.queues.by_partition[batch.partition]
        parts = divided_by_size(batch, batch.encoded.uncompressed_size // 2)
        if self.settings.codec is not Codec.NONE:
            self._ratios.reset(batch.partition.topic, batch.encoded.size / batch.encoded.uncompressed_size)
            self._expect(batch.partition.topic)
        self._metrics.batch_split_total += 1
        self.sequences.split(batch, parts)
        queue.remove_from_flight(batch)
        self._substitute(queue, batch, parts)
        self.queues.place(queue, now)

    def _substitute(self, queue: PartitionQueue, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        """Put the parts of a batch into the queue, in which it is not any more."""
        # From here on each part owns its share of what the whole had reserved.
        spare = batch.hand_over() - sum(part.reserved for part in parts)
        if spare > 0:
            self.pool.release(spare)
        else:
            self.pool.free += spare  # the headers of the parts; a debt of some bytes until they are done
        for waiter in batch.flush_waiters or ():
            waiter.remaining += len(parts) - 1
        for part in parts:
            part.possibly_written = part.whole_in_doubt = batch.possibly_written
            part.flush_waiters = list(batch.flush_waiters) if batch.flush_waiters else None
            self._incomplete[part] = None
            queue.insert(part)
            self._seal_ahead(part)
        batch.flush_waiters = None
        self._incomplete.pop(batch, None)
        batch.result.split(
            [part.result for part in parts], list(accumulate((each.count for each in parts[:-1]), initial=0))
        )
        batch.drop_bytes()

    def _cut(self, queue: PartitionQueue) -> None:
        """Give the first batches the shape by which the broker can tell who wrote them."""
        head = queue.batches[0]
        if head.base_sequence >= 0 or head.is_sealing:  # it has left in its shape, or a worker has it
            return
        if head.count > self._shape[queue.shaped]:
            if head.builder is not None:
                head.close()
            queue.batches.popleft()
            self._substitute(queue, head, divided_by_count(head, self._shape[queue.shaped :]))

    def give_up(self, batch: ProducerBatch, cause: KafkaError, now: float, *, timed_out: bool) -> None:
        """Tell the records of an expired batch. One that is on its way keeps its memory until it is answered."""
        if batch.is_in_flight:
            self._fail_deliveries(batch, cause, timed_out, None)
            batch.given_up = True
        else:
            self.fail(batch, cause, now, timed_out=timed_out)

    def _fail_deliveries(
        self, batch: ProducerBatch, cause: KafkaError, timed_out: bool, record_errors: dict[int, str] | None
    ) -> None:
        self._metrics.topic(batch.partition.topic).record_error_total += batch.count
        failure = batch.failure(cause, timed_out=timed_out, record_errors=record_errors)
        if failure.possibly_written:
            self._metrics.records_unknown += batch.count
        else:
            self._metrics.records_failed += batch.count
        self._note_outcome(batch)
        batch.result.fail(failure)
        if self._transaction is not None:
            self._transaction.batch_failed(cause)

    def _note_outcome(self, batch: ProducerBatch) -> None:
        """Everything that follows from the records' outcome being known, but the outcome itself."""
        self._incomplete.pop(batch, None)
        waiters, batch.flush_waiters = batch.flush_waiters, None
        for waiter in waiters or ():
            waiter.one_less()

    def _finish(self, batch: ProducerBatch) -> None:
        reserved = batch.hand_over()
        batch.drop_bytes()
        self.pool.release(reserved)
        if self._transaction is not None:
            self._transaction.batch_settled()

    # -- everything ---------------------------------------------------------------------------------------------------

    @property
    def has_unsettled(self) -> bool:
        """Whether any batch is here or on its way, its records told or not."""
        return bool(self._incomplete) or any(
            queue.batches or queue.in_flight for queue in self.queues.by_partition.values()
        )

    def fail_undrained(self, cause: KafkaError, now: float) -> None:
        """Give up what has never left; what has goes on until its fate is known."""
        for queue in list(self.queues.by_partition.values()):
            for batch in [each for each in queue.batches if each.base_sequence < 0]:
                queue.batches.remove(batch)
                self.fail(batch, cause, now)

    @property
    def pending_records(self) -> int:
        """How many records wait for their outcome."""
        return sum(batch.count for batch in self._incomplete)

    @property
    def oldest_created_at(self) -> float | None:
        """When the oldest batch without an outcome was begun."""
        return min((batch.created_at for batch in self._incomplete), default=None)

    def incomplete(self) -> Iterator[ProducerBatch]:
        """The batches whose records wait for their outcome, in the order of each partition."""
        yield from sorted(self._incomplete, key=lambda batch: batch.ordinal)

    def hurry(self, now: float) -> None:
        """Have everything sent that only lingers, or waits for the end of a pause."""
        self.queues.hurry(now)
        self._wake_sender()

    def reroute(self, now: float) -> None:
        """Take the metadata into account that have just changed: who leads, and which topics are forgotten."""
        forgotten = self.queues.topics_besides(self._metadata.topics.keys())
        if forgotten:
            self._forget_idle(forgotten)
        self.queues.reroute(now)

    def _forget_idle(self, topics: Set[str]) -> None:
        """Drop what is known of topics that nobody used for ``metadata_max_idle_ms``, and of which nothing is under way.

        What `Sequences` must know to go on in their partitions stays.
        """
        idle, partitions = self.queues.forget_idle(topics)
        for partition in partitions:
            self.sequences.forget(partition)
        for topic in topics & self.lanes.keys():
            self.lanes[topic].partition_count = 0  # whoever comes must wait for the topic, behind those who do
        for topic in idle:
            self.lanes.pop(topic, None)
            self.sticky.forget(topic)
            self._ratios.forget(topic)
            self._metrics.forget(topic)

    def begin_flush(self, on_done: Callable[[], object], now: float) -> FlushWaiter:
        """Call ``on_done`` when everything that is accepted now has an outcome; nothing lingers until `end_flush`."""
        self.queues.hurries += 1
        batches = list(self._incomplete)
        waiter = FlushWaiter(len(batches), on_done)
        if not batches:
            on_done()
            return waiter
        for batch in batches:  # flushes that ran out of time leave themselves behind, until the next one passes
            others = [each for each in batch.flush_waiters if not each.is_over] if batch.flush_waiters else []
            batch.flush_waiters = [*others, waiter]
        self.hurry(now)
        return waiter

    def end_flush(self, waiter: FlushWaiter) -> None:
        """The flush is over, or was cancelled."""
        self.queues.hurries -= 1
        waiter.is_over = True

    def close(self, now: float) -> None:
        """Take no more; those who wait for memory are told so. What was accepted is still to be sent, at once."""
        self.queues.hurries += 1
        self.pool.close()
        self.hurry(now)

    def fail_all(self, cause: KafkaError, now: float, *, timed_out: bool = False) -> None:
        """Give up everything that has no outcome yet."""
        batches = list(self.incomplete())
        told: list[ProducerBatch] = []
        for batch in batches:  # first of all, as a bug may be the cause, and what follows may raise on its account
            if batch in self._incomplete:  # the failure of another one may have ended a transaction, and so this one
                told.append(batch)
                batch.given_up = True  # first: what it ends may give up this one, too
                self._fail_deliveries(batch, cause, timed_out, None)
        for batch in told:
            if batch.is_in_flight:
                continue
            queue = self.queues.by_partition[batch.partition]
            if batch in queue.batches:
                queue.batches.remove(batch)
            self.fail(batch, cause, now)
