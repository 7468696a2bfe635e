"""Holds the records of each partition, in batches, until the Sender takes them (Java's RecordAccumulator)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence, Set
from itertools import count

from aioproducer.accumulator.buffer_pool import BufferPool
from aioproducer.accumulator.linger import Linger
from aioproducer.accumulator.outcomes import OpenTransaction, Outcomes
from aioproducer.accumulator.partition_queue import PartitionQueue
from aioproducer.accumulator.queues import Queues
from aioproducer.accumulator.sealing import Sealing
from aioproducer.accumulator.settings import AccumulatorSettings
from aioproducer.accumulator.sticky import StickyChoice
from aioproducer.accumulator.stopped_partitions import StoppedPartitions
from aioproducer.accumulator.writer_shapes import WriterShapes
from aioproducer.core.batches import BATCH_OVERHEAD, FlushWaiter, ProducerBatch
from aioproducer.core.cluster import ClusterMetadata, TopicMetadata
from aioproducer.core.sequences import Sequences
from aioproducer.delivery import Delivery, ProduceResult, UnobservedSink
from aioproducer.hot import Lane, OpenBatch
from aioproducer.metrics.producer import ProducerMetrics
from aioproducer.record import EncodedBatch, RecordBatchBuilder
from aioproducer.types import Header, TopicPartition

__all__ = ["RecordAccumulator"]

#: The most batches of one request: more of them, or the response to them, would hold up the event loop for
#: milliseconds.
_MOST_BATCHES = 250


class RecordAccumulator:
    """Takes records in and hands batches out.

    ``queues`` know what can be sent and when, ``sealing`` which batches to compress; drained batches come back through
    ``outcomes``.
    """

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
        """``on_late`` is called for records that are acknowledged after they were given up.

        ``is_waited_for`` returns whether records wait for a topic's metadata: newer records must not overtake them.
        ``transaction`` is the transaction of all records. ``shape`` gives the maximum number of records in the first
        batches of each partition.
        """
        self.settings = settings
        self.pool = pool
        self.sequences = sequences
        self._metadata = metadata
        self._metrics = metrics
        self._sink = sink
        self._wake_sender = wake_sender
        #: Sends the only batch of a queue now, or returns False if the Sender must send it.
        self.send_at_once: Callable[[PartitionQueue, float], bool] = lambda queue, now: False
        self._is_waited_for = is_waited_for
        self._transaction = transaction
        self.queues = Queues(
            metadata, Linger(settings.linger_s, pool), sequences, delivery_timeout_s=settings.delivery_timeout_s
        )
        self.lanes: dict[str, Lane] = {}
        self.sealing = Sealing(settings, self.queues, self.lanes, metrics)
        self.stopped = StoppedPartitions(sink, is_enabled=settings.stops_on_data_loss)
        self.outcomes = Outcomes(
            self.queues,
            self.sealing,
            pool,
            sequences,
            metrics,
            retry_backoff=settings.retry_backoff,
            random=random,
            on_late=on_late,
            transaction=transaction,
            stopped=self.stopped,
        )
        self._incomplete = self.outcomes.incomplete
        self._shapes = WriterShapes(shape, self.outcomes) if shape else None
        self.sticky = StickyChoice(settings, metadata, self.queues, self.lanes, self.stopped, random=random)
        self._ordinals = count()

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
        """Append the record to its partition, or return None if there is no room for it yet.

        ``partition`` None: the partition that currently takes records without a key. ``size`` is an upper bound of the
        encoded record.
        """
        queue = self._queue_for(topic, self._lane(topic), partition, size, now)
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

        The partition's lock is held from joining the queue until the append, so the records of a partition keep the
        order in which they arrived. Raises PoolClosed, and whatever ``check`` raises after the wait. Cancellation:
        nothing was buffered, the memory is given back.
        """
        ticket = self.pool.join(size + BATCH_OVERHEAD)
        if partition is None:  # no order to keep: the partition is chosen once there is room
            await self.pool.wait(ticket)
            self._check(check, size + BATCH_OVERHEAD)
            topic = self._metadata.topics.get(topic.name, topic)  # leaders may have moved during the wait
            queue = self._queue_for(topic, self._lane(topic), None, size, clock())
            return self._append(queue, timestamp_ms, key, value, headers, size, True, topic, clock())
        queue = self.queues.of(topic.name, partition)
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
        """Append records that were encoded elsewhere to a partition, as a separate batch.

        The caller has acquired ``builder.size`` bytes of the BufferPool and hands them over. Raises if no transaction
        can take the batch; fails the batch if its partition is stopped.
        """
        queue = self.queues.of(topic.name, partition)
        if self._transaction is not None:
            self._claim(queue, builder.size)
        if self._shapes is not None:
            self._shapes.encoded(queue.partition, builder.count, builder.size)
        batch = self._new_batch(queue, self._lane(topic), now)
        batch.builder = builder
        batch.limit = 0
        self.queues.promote(queue, now)
        self.outcomes.fail_stopped(queue, now)
        self._wake_sender()
        return batch.result

    def batch_limit(self, topic: str, row_size: int) -> int:
        """Return the size in bytes, before compression, of the topic's next batch if it is encoded elsewhere.

        ``row_size`` is the average size of its records.
        """
        limit = self.sealing.limit(topic)
        return limit if self._shapes is None else self._shapes.limit(topic, row_size, limit)

    def sticky_partition(self, topic: TopicMetadata, now: float) -> int:
        """Choose the next partition for records without a key that `append_builder` appends a batch at a time."""
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
        is_full = batch.is_full
        if is_new:
            self._begun(queue, now)
        elif is_full:
            self.queues.promote(queue, now)
            self._wake_sender()
        if sticky and lane.sticky.appended(used, is_full):
            self.sticky.switch(topic, lane.sticky, now)
        return delivery

    def begin(self, topic: TopicMetadata, partition: int | None, size: int, now: float) -> ProducerBatch | None:
        """Return a batch with room for a record of this size, or None if the caller must wait.

        ``partition`` None: the partition that currently takes records without a key. The caller appends at once, and
        takes the record's bytes from the pool; a new batch has already taken those of its header. Call `ready` next if
        the batch is new, or `undo` if nothing was appended.
        """
        if size + BATCH_OVERHEAD > self.pool.free or self.pool.line:
            return None
        lane = self._lane(topic)
        queue = self._queue_for(topic, lane, partition, size, now)
        if (queue.lock is not None and queue.lock.locked()) or queue.partition in self.stopped.losses:
            return None
        if self._transaction is not None:
            self._transaction.claim(queue.partition)
        batch = queue.batches[-1] if queue.batches else None
        if batch is not None and batch.has_room(size):
            lane.open[queue.partition.partition] = batch
            return batch
        batch = self._new_batch(queue, lane, now)
        self.pool.free -= BATCH_OVERHEAD
        return batch

    def _begun(self, queue: PartitionQueue, now: float) -> None:
        """The queue has a new batch with its first record."""
        if not self.send_at_once(queue, now):
            self.queues.promote(queue, now)
            self._wake_sender()

    def _claim(self, queue: PartitionQueue, acquired: int) -> None:
        """Add the partition to the transaction, or check that it is not stopped; if that fails, give the memory back."""
        gate = self.stopped if self._transaction is None else self._transaction
        try:
            gate.claim(queue.partition)
        except BaseException:
            self.pool.release(acquired)
            raise

    def undo(self, batch: ProducerBatch) -> None:
        """Take back a batch that `begin` created and that is still empty."""
        queue = self.queues.by_partition[batch.partition]
        queue.batches.remove(batch)
        del self._incomplete[batch]
        batch.drop_bytes()
        self.queues.place(queue, batch.created_at)
        self.pool.release(BATCH_OVERHEAD)

    def ready(self, batch: OpenBatch) -> None:
        """The batch got its first record, or became full, in hot/, which knows nothing of queues."""
        assert isinstance(batch, ProducerBatch)
        queue = self.queues.by_partition[batch.partition]
        now = batch.created_at  # a full batch is due at any time
        if batch.count != 1 or not self.send_at_once(queue, now):
            self.queues.place(queue, now)
            self._wake_sender()

    def _new_batch(self, queue: PartitionQueue, lane: Lane, now: float) -> ProducerBatch:
        if queue.batches:
            self.sealing.seal_ahead(queue.batches[-1])
        topic, partition = queue.partition
        batch = ProducerBatch(queue.partition, now, self.sealing.limit(topic), self._sink)
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
        """Return the topic's lane: without partitions while records wait for its metadata, so that none is overtaken."""
        lane = self.lanes.get(topic.name)
        if lane is None or lane.partition_count != topic.partition_count:
            sticky = self.sticky.begin() if lane is None else lane.sticky
            if lane is not None:
                lane.partition_count = 0  # a caller that still holds it must fetch the new one
            partition_count = 0 if self._is_waited_for(topic.name) else topic.partition_count
            lane = self.lanes[topic.name] = Lane(partition_count, sticky)
            self.sealing.expect(topic.name)
        return lane

    # -- the partition of a record without a key ------------------------------------------------------------------------

    def _queue_for(
        self, topic: TopicMetadata, lane: Lane, partition: int | None, size: int, now: float
    ) -> PartitionQueue:
        if partition is not None:
            return self.queues.of(topic.name, partition)
        sticky = lane.sticky
        if not 0 <= sticky.partition < topic.partition_count or (topic.name, sticky.partition) in self.stopped.losses:
            self.sticky.switch(topic, sticky, now)
        queue = self.queues.of(topic.name, sticky.partition)
        if (not queue.batches or not queue.batches[-1].has_room(size)) and sticky.appended(0, True):
            self.sticky.switch(topic, sticky, now)  # instead of beginning another batch there
            queue = self.queues.of(topic.name, sticky.partition)
        return queue

    # -- batches out --------------------------------------------------------------------------------------------------

    def not_accepted(self, node: int, now: float) -> None:
        """Note that the node cannot take more; this counts against it if it has more batches ready."""
        self.sticky.not_accepted(node, now)

    def drain(self, node: int, max_size: int, now: float) -> list[ProducerBatch]:
        """Return the batches of the next request to this node: one of each ready partition, up to ``max_size`` bytes.

        The partitions take turns. A larger batch travels alone; the number of batches is limited too. Each batch is
        numbered and in flight from here on, and comes back through exactly one of `complete`, `retry`, `split` and
        `fail` of `Outcomes`.
        """
        queues, shapes = self.queues, self._shapes
        drained: list[ProducerBatch] = []
        if not queues.is_ready(node):
            return drained
        total = 0
        for queue in queues.turns(node, _MOST_BATCHES):
            if shapes is not None:
                shapes.cut(queue)
            head = queue.batches[0]
            encoded = self.sealing.seal(head) if self.sequences.may_drain(head) else None
            if encoded is None:
                queues.block(queue)
                continue
            total += encoded.size
            if drained and total > max_size:
                queues.give_turn_back(queue, node)
                break
            queues.take(queue)
            if shapes is not None:
                shapes.drained(head)
            leader = self._metadata.leader(*queue.partition)
            self._mark_in_flight(head, encoded, -1 if leader is None else leader[1], now)
            drained.append(head)
            if queue.batches:
                queues.place(queue, now)
        self.sticky.taken(node)
        return drained

    def drain_lone(self, queue: PartitionQueue, leader_epoch: int, now: float) -> ProducerBatch | None:
        """Drain the first batch of the queue like `drain`; None if the batch must wait its turn."""
        head = queue.batches[0]
        is_free = self._shapes is None and self.sequences.may_drain(head)
        if not is_free or (encoded := self.sealing.seal(head)) is None:
            return None
        self.queues.take(queue)
        self._mark_in_flight(head, encoded, leader_epoch, now)
        return head

    def _mark_in_flight(self, batch: ProducerBatch, encoded: EncodedBatch, leader_epoch: int, now: float) -> None:
        self.sequences.number(batch)
        batch.leader_epoch = leader_epoch
        batch.is_in_flight = True
        batch.retry_at = 0.0
        if batch.attempts == 0:
            metrics = self._metrics
            metrics.record_queue_time.observe(now - batch.created_at)
            metrics.batch_size.observe(encoded.size)
            metrics.batched_records += encoded.count
            metrics.batched_bytes += encoded.uncompressed_size - BATCH_OVERHEAD
            if encoded.largest_record > metrics.largest_record:
                metrics.largest_record = encoded.largest_record
        batch.attempts += 1
        batch.last_attempt_at = now

    # -- all batches --------------------------------------------------------------------------------------------------

    @property
    def has_unsettled(self) -> bool:
        """Whether any batch is waiting or in flight, with or without an outcome."""
        return bool(self._incomplete) or any(
            queue.batches or queue.in_flight for queue in self.queues.by_partition.values()
        )

    @property
    def pending_records(self) -> int:
        """The number of records without an outcome."""
        return sum(batch.count for batch in list(self._incomplete))  # a copy, because any thread may ask

    @property
    def oldest_created_at(self) -> float | None:
        """The creation time of the oldest batch without an outcome."""
        return min((batch.created_at for batch in list(self._incomplete)), default=None)  # as above

    def begin_flush(self, on_done: Callable[[], object], now: float) -> FlushWaiter:
        """Call ``on_done`` when everything that is accepted now has an outcome; nothing lingers until `end_flush`."""
        self.queues.linger.suspend()
        waiter = self.outcomes.call_when_complete(on_done)
        if waiter.remaining:
            self.end_linger(now)
        return waiter

    def end_flush(self, waiter: FlushWaiter) -> None:
        """The flush is over, or was cancelled."""
        self.queues.linger.resume()
        waiter.is_over = True

    def close(self, now: float) -> None:
        """Accept no more records; waiters for memory fail with PoolClosed. Accepted records are still sent, at once."""
        self.queues.linger.suspend()
        self.pool.close()
        self.end_linger(now)

    def end_linger(self, now: float) -> None:
        """Send everything that only lingers, or waits for the end of a pause."""
        self.queues.end_linger(now)
        self._wake_sender()

    def reroute(self, now: float) -> None:
        """Apply the latest metadata: the leaders, and the topics that were forgotten."""
        forgotten = self.queues.topics_besides(self._metadata.topics.keys())
        if forgotten:
            self._forget_idle(forgotten)
        self.queues.reroute(now)

    def _forget_idle(self, topics: Set[str]) -> None:
        """Drop the state of topics that were unused for ``metadata_max_idle_ms`` and have nothing in progress.

        The sequence numbers of their partitions stay in `Sequences`, so that sending can resume.
        """
        idle, partitions = self.queues.forget_idle(topics)
        for partition in partitions:
            self.sequences.forget(partition)
            if self._shapes is not None:
                self._shapes.forget(partition)
        for topic in topics & self.lanes.keys():
            self.lanes[topic].partition_count = 0  # new callers must wait for the topic, behind the current waiters
        for topic in idle:
            self.lanes.pop(topic, None)
            self.sticky.forget(topic)
            self.sealing.forget(topic)
            self._metrics.forget(topic)
