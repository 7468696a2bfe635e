"""Hands records over from threads to the event loop: in bulk, and with one wake-up for many.

The caller's thread only puts a record into a queue if the record cannot be refused any more: the topic's partitions are
known, no user code processes the record, its size is allowed, and ``buffer_memory`` has room for it besides all records that
were handed over before. Every other record takes a round trip through the event loop.

A record that is handed over has been accepted: it succeeds, or its delivery fails. The event loop takes records in order. A
record that has to wait there (because other records took the memory first, or the topic was deleted) waits in the line of
its topic, and later ones join that line, so that no record overtakes another one of its topic.

Two threads share the queue, whose ``append`` and ``popleft`` are safe, and a few fields: ``_is_awake``, which
either side may see slightly late, and ``_large``, which is changed under a lock. All other fields belong to the
event loop's thread.
"""

# pyright: reportPrivateUsage=false
# A SyncDelivery is filled in here: calling its class would take a fifth of the whole time.

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Set
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from aioproducer.delivery import BatchFailure, Delivery, ProduceResult
from aioproducer.engine.engine import Engine
from aioproducer.errors import (
    DeliveryError,
    ForkedProcess,
    InvalidRecord,
    KafkaError,
    NotWritten,
    NotWrittenTimeout,
    ProducerClosed,
    ProducerStateError,
    RecordsPurged,
)
from aioproducer.hot import Appender, Lane
from aioproducer.intake.sync_delivery import HandedOver, SyncDelivery, SyncDeliveryCallback, ThreadWaiter
from aioproducer.intake.timeouts import not_acknowledged
from aioproducer.record import BATCH_OVERHEAD, partition_for_key, record_size_upper_bound
from aioproducer.runtime.deadline import Deadline
from aioproducer.runtime.detached import detached
from aioproducer.serializers import normalize_bytes, normalize_headers
from aioproducer.types import Header, ProducerRecord, RecordMetadata, TopicPartition

__all__ = ["OWN_THREAD", "HandOver"]

OWN_THREAD: Final = (
    "This runs in the producer's own thread (as callbacks and serializers do): waiting here would deadlock."
)

#: How many records may wait for the event loop, which puts them into batches in a few milliseconds.
_CAPACITY: Final = 10_000
#: The bytes of ``buffer_memory`` that a record counts for until it is in a batch; a larger one counts for its size.
_SMALL: Final = 1024

#: Whether threads see each other's changes in order. A Python that does not say so may be free-threaded.
_HAS_GIL: Final = "t" not in getattr(sys, "abiflags", "t")

#: The largest overhead of a record besides its key, value and headers, in bytes.
_BOUND: Final = record_size_upper_bound(None, None)
_PURGED: Final = "purge() was called while this record waited for metadata or for room in buffer_memory."
_NO_LANES: Final[Mapping[str, Lane]] = {}
_new: Final = object.__new__
_get_ident: Final = threading.get_ident
_time_ns: Final = time.time_ns

_all: weakref.WeakSet[HandOver] = weakref.WeakSet()


def _end_in_fork() -> None:
    for each in list(_all):
        each.end_in_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_end_in_fork)


class HandOver:
    """Takes records from threads to the producer of an event loop; must be created in that loop.

    ``appender`` and ``enqueue`` are the producer's. If ``is_open`` is False, every record takes the round trip. With
    ``keys_choose``, the key of a record decides its partition.
    """

    def __init__(
        self,
        engine: Engine,
        appender: Appender,
        enqueue: Callable[..., Coroutine[object, object, Delivery]],
        *,
        is_open: bool,
        keys_choose: bool = True,
    ) -> None:
        self.loop = engine.loop
        self.log = engine.log
        self._engine = engine
        self._enqueue = enqueue
        self._keys_choose = keys_choose
        self._appender = appender
        self._pool = engine.pool
        self._lanes = engine.accumulator.lanes if is_open else _NO_LANES
        self._max_size = min(engine.config.max_request_size, engine.config.buffer_memory) - BATCH_OVERHEAD
        self._max_block_s = engine.config.max_block_ms / 1000
        self._thread = _get_ident()
        self._records: deque[SyncDelivery] = deque()
        self._is_awake = False  # the event loop will look for records
        self._lock = threading.RLock()  # reentrant: a finalizer or a signal handler may send while it is held
        self._large = 0  # bytes of large records that were handed over and are not in a batch yet
        self._topic_queues: dict[str, _TopicQueue] = {}
        self._purged: set[asyncio.Task[None] | None] = set()  # those of queues that `purge` ends
        self._not_written: list[ProducerRecord] = []
        _all.add(self)

    # -- in the callers' threads --------------------------------------------------------------------------------------

    def put(
        self,
        topic: Any,
        value: Any,
        key: Any,
        headers: Any,
        partition: Any,
        timestamp_ms: Any,
        *,
        on_delivery: SyncDeliveryCallback | None = None,
        waiter: ThreadWaiter | None = None,
        deadline: float | None = None,
    ) -> SyncDelivery | None:
        """Hand a record over, or return None, with nothing done or raised, if it must take the round trip.

        ``waiter`` is woken when the outcome is known.
        """
        # All in one function, because a call takes a tenth of the whole time.
        lanes, records, pool = self._lanes, self._records, self._pool
        lane = lanes.get(topic) if type(topic) is str else None
        if lane is None or _get_ident() == self._thread or self._engine.died is not None:
            return None
        size = _BOUND
        try:
            if value is not None:
                if type(value) is not bytes:
                    value = normalize_bytes(value)
                size += len(value)
            if key is not None:
                if type(key) is not bytes:
                    key = normalize_bytes(key)
                size += len(key)
            if headers is not None:
                headers = _plain_headers(headers)
                size += record_size_upper_bound(None, None, headers) - _BOUND
        except (InvalidRecord, UnicodeEncodeError):
            return None
        if partition is None:
            if lane.partition_count <= 0:
                return None
        elif type(partition) is not int or not 0 <= partition < lane.partition_count:
            return None
        if timestamp_ms is None:
            timestamp_ms = _time_ns() // 1_000_000
        elif type(timestamp_ms) is not int or not 0 <= timestamp_ms < 1 << 63:
            return None
        waiting = len(records)
        if (
            size > self._max_size
            or waiting >= _CAPACITY
            or size + waiting * _SMALL + self._large > pool.free
            or pool.line
            or self._topic_queues
        ):
            return None
        delivery = _new(SyncDelivery)  # what SyncDelivery.__init__ does
        delivery._loop_thread = self
        delivery._delivery = delivery._outcome = delivery._when_accepted = None
        delivery._record = (topic, value, key, headers, partition, timestamp_ms, size, deadline)
        if on_delivery is not None:
            delivery.add_done_callback_in_loop(on_delivery)
        if waiter is not None:
            delivery.when_accepted(waiter.wait_for)
        try:
            if size > _SMALL:
                self._count_large(size)
            records.append(delivery)
            if not self._is_awake or self._lanes is not lanes:
                self._is_awake = True
                self.loop.call_soon_threadsafe(self.take)
        except RuntimeError:  # the event loop has ended
            with suppress(ValueError):  # it was refused already
                records.remove(delivery)
                return None
        except BaseException:  # Ctrl-C: the event loop may not have been woken, so let the next record wake it
            self._is_awake = False
            raise
        return delivery

    def send(
        self,
        topic: object,
        value: object,
        key: object,
        headers: object,
        partition: object,
        timestamp_ms: object,
        timeout: float | None,
    ) -> RecordMetadata | None:
        """Hand a record over and wait for its acknowledgement, or return None if it must take the round trip."""
        waiter = ThreadWaiter(self.loop)
        deadline = None if timeout is None else time.monotonic() + timeout
        delivery = self.put(topic, value, key, headers, partition, timestamp_ms, waiter=waiter, deadline=deadline)
        if delivery is None:
            return None
        if not waiter.wait(timeout):
            delivery.wait_accepted()  # it was accepted, or is refused now because its time is over
            accepted = delivery._delivery
            if timeout is not None and accepted is not None and not delivery.done():
                raise not_acknowledged(accepted.topic_partition, timeout, self._engine)
        return delivery.result()

    def check_waiter(self) -> None:
        """Raise if the wait for an outcome would never end: in a fork, and in the event loop's thread."""
        if self._engine.is_forked:
            raise ForkedProcess(
                "This record was accepted in another process; this fork of it will not receive the outcome."
            )
        if _get_ident() == self._thread:
            raise ProducerStateError(OWN_THREAD)

    def post(self, call: Callable[[], object]) -> bool:
        """Schedule a call in the event loop; returns False if that has ended."""
        try:
            self.loop.call_soon_threadsafe(call)
        except RuntimeError:
            return False
        return True

    def end_in_fork(self) -> None:
        """Accept no records in a fork, which has no event loop, and perhaps a lock that is never released."""
        self._lanes = _NO_LANES

    # -- in the event loop's thread -----------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether every record that was handed over is in a batch."""
        return not self._records and not self._topic_queues

    @property
    def waiting(self) -> int:
        """The number of handed-over records that wait for metadata or room."""
        return sum(len(queue.records) for queue in self._topic_queues.values())

    def take(self) -> None:
        """Put records into batches until the event loop should run other tasks, and continue after them."""
        if not self._put_in(stop_after_burst=True):
            self._is_awake = False
            if not self._records:
                if not _HAS_GIL:
                    self.loop.call_soon(self._look_again)
                return
            self._is_awake = True
        self.loop.call_soon(self.take)

    def _look_again(self) -> None:
        """Take a record from a thread that still saw the event loop awake, while the loop did not see the record yet."""
        if self._records and not self._is_awake:
            self._is_awake = True
            self.take()

    def take_all(self) -> None:
        """Put all records into batches, or into queues."""
        self._put_in(stop_after_burst=False)

    async def settle(self, topic: str | None = None, timeout: float | None = None) -> float | None:
        """Wait until all records handed over so far are in batches, or refused; returns the remaining timeout.

        With a ``topic``: only the records for that one. Cancellation: the records are still sent.
        """
        self.take_all()
        tasks = [queue.task for name, queue in self._topic_queues.items() if topic is None or name == topic]
        if not tasks:
            return timeout
        began = self.loop.time()
        await asyncio.wait(tasks, timeout=timeout)
        return None if timeout is None else max(0.0, timeout - (self.loop.time() - began))

    async def purge(self, topics: Set[str]) -> list[ProducerRecord]:
        """Refuse the records of these topics (none: of all) that wait for metadata or room, and return them.

        Cancellation: they are refused as well.
        """
        self.take_all()
        queues = {name: queue for name, queue in self._topic_queues.items() if not topics or name in topics}
        own = {
            name: queue for name, queue in queues.items() if queue.task not in self._purged
        }  # others report the rest
        waiting = [_whole(handle.record) for queue in own.values() for handle, _ in queue.records]
        for name, queue in own.items():
            self._purged.add(queue.task)
            queue.task.add_done_callback(partial(self._refuse_unserved, name, queue))
            queue.task.cancel()
        if queues:
            await asyncio.wait([queue.task for queue in queues.values()])
        return waiting

    def _refuse_unserved(self, topic: str, queue: _TopicQueue, task: asyncio.Task[None]) -> None:
        """Refuse the records of a purged queue whose task was cancelled before its first step, so that none of it ran."""
        if self._topic_queues.get(topic) is not queue:
            return
        del self._topic_queues[topic]
        self._purged.discard(task)
        for handle, _ in queue.records:
            self._refuse(handle, RecordsPurged(_PURGED))

    async def close(self, deadline: Deadline) -> None:
        """Accept no more records, and wait until the deadline for those that wait for metadata or room.

        Cancellation: they keep waiting.
        """
        self._lanes = _NO_LANES
        with suppress(TimeoutError):
            async with deadline.limit():
                await self.settle()

    def end(self) -> None:
        """Refuse records that threads added at the very end; call it after the event loop has ended."""
        queues, self._topic_queues = self._topic_queues, {}
        for queue in queues.values():
            self._records.extend(handle for handle, _ in queue.records)
        while self._records:
            self._refuse(self._records.popleft(), _ended())

    @property
    def not_written(self) -> list[ProducerRecord]:
        """The records that waited for metadata or room when the producer was closed."""
        return self._not_written

    def _put_in(self, *, stop_after_burst: bool) -> bool:
        """Put all records or one burst into batches; returns whether some are left."""
        records, queues, appender = self._records, self._topic_queues, self._appender
        append = appender.append
        appender.burst = 0
        left = len(records)
        while left and records:  # a finalizer may have taken the record
            left -= 1
            handle = records.popleft()
            record: Any = handle._record  # never None here
            topic, value, key, headers, partition, timestamp_ms, size, _ = record
            accepted = None
            if topic not in queues:
                try:
                    accepted = append(topic, value, key, headers, partition, timestamp_ms)
                    if accepted is None and appender.burst:
                        if stop_after_burst:
                            records.appendleft(handle)
                            return True
                        appender.burst = 0
                        accepted = append(topic, value, key, headers, partition, timestamp_ms)
                except Exception:  # an internal error or no memory, which the round trip reports
                    self.log.exception(
                        "The fast path failed for a record for topic %r; it continues on the slow path",
                        topic,
                        extra={"topic": topic},
                    )
            if accepted is None:
                self._queue_up(handle)
                continue
            handle._delivery, handle._record = accepted, None  # what SyncDelivery.accept does
            handle._outcome = accepted.located()
            if handle._when_accepted is not None:
                handle.accept(accepted)
            if size > _SMALL:
                self._count_large(-size)
        if self._large and not records and not queues:
            self._large = 0  # Ctrl-C may have interrupted a thread after it counted its record
        return False

    def _count_large(self, size: int) -> None:
        with self._lock:
            self._large += size

    # -- records that have to wait --------------------------------------------------------------------------------------

    def _queue_up(self, handle: SyncDelivery) -> None:
        topic, *_, deadline = handle.record
        if deadline is None:
            deadline = time.monotonic() + self._max_block_s
        queue = self._topic_queues.get(topic)
        if queue is not None:
            queue.records.append((handle, deadline))
            return
        records = deque([(handle, deadline)])
        task = self.loop.create_task(self._serve(topic, records), name="aioproducer hand-over")
        self._topic_queues[topic] = _TopicQueue(records, task)

    async def _serve(self, topic: str, records: deque[tuple[SyncDelivery, float]]) -> None:
        """Enqueue the records that wait for a topic, one after the other.

        A propagating exception keeps the frames that it passes through. So no variable here refers to a SyncDelivery
        while one is raised, nor once a record is finished: otherwise a delivery that the caller has dropped would stay,
        and its failure would not be reported.
        """
        try:
            while records:
                record, deadline = records[0][0].record, records[0][1]
                accepted = await self._accepted(record, max(0.0, deadline - time.monotonic()))
                if isinstance(accepted, KafkaError):
                    self._refuse(records.popleft()[0], accepted)
                    continue
                records.popleft()[0].accept(accepted)
                if record[-2] > _SMALL:
                    self._count_large(-record[-2])
        finally:
            self._topic_queues.pop(topic, None)
            task = asyncio.current_task()
            why = RecordsPurged(_PURGED) if task in self._purged else _ended()
            self._purged.discard(task)
            for handle, _ in records:
                self._refuse(handle, why)

    async def _accepted(self, record: HandedOver, timeout: float) -> Delivery | KafkaError:
        """Return the record's `Delivery`, or why it was refused."""
        if not self._engine.is_usable:
            return self._engine.refusal()
        topic, value, key, headers, partition, timestamp_ms, _, _ = record
        try:
            return await self._enqueue(
                topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms, timeout=timeout
            )
        except KafkaError as error:
            self._engine.metrics.records_refused -= 1  # it counts as a record that failed after it was accepted
            return detached(error)
        except Exception as error:  # an internal error: no record is lost silently
            self.log.exception("A record for topic %r could not be put into a batch", topic, extra={"topic": topic})
            return KafkaError(repr(error))

    def _place_of(self, record: HandedOver) -> TopicPartition:
        """The partition of a record, as far as its own partition or its key decides it; otherwise -1."""
        topic, _, key, _, partition, *_ = record
        if partition is None:
            known = self._engine.client.metadata.topics.get(topic) if self._keys_choose else None
            if key is None or known is None or not known.partition_count:
                partition = -1
            else:
                partition = partition_for_key(key, known.partition_count)
        return TopicPartition(topic, partition)

    def _refuse(self, handle: SyncDelivery, error: KafkaError) -> None:
        topic, value, key, _, partition, timestamp_ms, size, _ = handle.record
        whole, lost_at = _whole(handle.record), self._place_of(handle.record)
        if isinstance(error, ProducerClosed):
            self._not_written.append(whole)
        place = TopicPartition(topic, -1 if partition is None else partition)
        result = ProduceResult(place, self._engine.unobserved)
        handle.accept(
            Delivery(result, 0, timestamp_ms, -1 if key is None else len(key), -1 if value is None else len(value))
        )
        failure = _Refusal(place, error, whole)
        self._engine.accumulator.outcomes.lose(lost_at, failure)
        try:
            result.fail(failure)
        except RuntimeError:  # the event loop has ended, and runs no callbacks
            result.wake()
        metrics = self._engine.metrics
        metrics.records_failed += 1
        metrics.topic(topic).record_error_total += 1
        if size > _SMALL:
            self._count_large(-size)


def _whole(record: HandedOver) -> ProducerRecord:
    topic, value, key, headers, partition, timestamp_ms, _, _ = record
    return ProducerRecord(topic, value, key, headers, partition, timestamp_ms)


def _plain_headers(headers: object) -> tuple[Header, ...]:
    plain = normalize_headers(headers)
    for name, _ in plain:
        name.encode()  # a lone surrogate cannot be encoded
    return plain


class _TopicQueue(NamedTuple):
    """Records of a topic that wait for metadata or room, each with its deadline, and the task that waits."""

    records: deque[tuple[SyncDelivery, float]]
    task: asyncio.Task[None]


def _ended() -> ProducerClosed:
    return ProducerClosed("The producer ended before this record was accepted into the buffer.")


class _Refusal(BatchFailure):
    """Why a record that was handed over could not be accepted."""

    def __init__(self, partition: TopicPartition, error: KafkaError, record: ProducerRecord) -> None:
        super().__init__(partition, error, False, isinstance(error, NotWrittenTimeout), lambda: (record,))

    def error_for(self, index: int) -> DeliveryError:
        """The error that `enqueue` would have raised; a new object each time, as for every failure."""
        cause, (record,) = self.cause, self.records
        if isinstance(cause, DeliveryError):
            return detached(cause)
        error = NotWritten(f"The record for topic {record.topic!r} was not accepted into the buffer: {cause}")
        error.topic, error.partition, error.record = record.topic, record.partition, record
        error.retriable = cause.retriable
        error.__cause__ = detached(cause)
        return error
