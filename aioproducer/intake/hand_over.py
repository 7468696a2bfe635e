"""Hands records over from threads to the event loop: in bulk, and with one wake-up for many.

The caller's thread puts a record in here and goes on, where nothing has to be decided that could still be refused: the
topic's partitions are known, nothing of the user's runs on the record's way, its size fits, and there is room for it in
``buffer_memory`` besides all that was handed over before. Every other record takes a round trip through the event loop.

What is handed over has been accepted: it succeeds, or its delivery fails. The event loop takes records in the order in which
they came. A record that has to wait there after all - others were quicker to take the memory, or the topic is gone - waits
in the line of its topic, where those behind it join, so that no record overtakes another one of its topic.

Two threads share the queue, whose ``append`` and ``popleft`` are safe, and a few fields: ``_is_awake``, which either side
may find as it was a moment ago, and ``_large``, which is changed while a lock is held. All others are the event loop's.
"""

# pyright: reportPrivateUsage=false
# A SyncDelivery is filled in here: a call of its class would cost a fifth of the whole.

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from copy import copy
from typing import Any, Final, NamedTuple

from aioproducer.delivery import BatchFailure, Delivery, ProduceResult
from aioproducer.engine.deadline import Deadline
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
)
from aioproducer.hot import Lane
from aioproducer.intake.records import not_acknowledged
from aioproducer.intake.sync_delivery import HandedOver, SyncDelivery, SyncDeliveryCallback, ThreadWaiter
from aioproducer.record import BATCH_OVERHEAD, record_size_upper_bound
from aioproducer.serializers import normalize_bytes, normalize_headers
from aioproducer.types import Header, ProducerRecord, RecordMetadata, TopicPartition

__all__ = ["OWN_THREAD", "HandOver"]

logger = logging.getLogger("aioproducer")

OWN_THREAD: Final = (
    "This runs in the producer's own thread, as callbacks, serializers and interceptors do: it would wait for itself."
)

#: So many records may wait for the event loop, which puts them into batches in a few milliseconds.
_CAPACITY: Final = 10_000
#: What a record counts for in ``buffer_memory`` until it is in a batch, in bytes; larger ones count for their size.
_SMALL: Final = 1024

#: Threads see each other's changes in their order. Where a Python does not say so, it may be one that is free-threaded.
_HAS_GIL: Final = "t" not in getattr(sys, "abiflags", "t")

#: What a record takes at most next to its key, value and headers.
_BOUND: Final = record_size_upper_bound(None, None)
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
    """The way of records from threads into the producer of an event loop; to be created in that loop.

    ``enqueue`` is the producer's. Where ``is_open`` is False every record takes the round trip.
    """

    def __init__(
        self, engine: Engine, enqueue: Callable[..., Coroutine[object, object, Delivery]], *, is_open: bool
    ) -> None:
        self.loop = engine.loop
        self._engine = engine
        self._enqueue = enqueue
        self._appender = engine.appender
        self._pool = engine.pool
        self._lanes = engine.accumulator.lanes if is_open else _NO_LANES
        self._max_size = min(engine.config.max_request_size, engine.config.buffer_memory) - BATCH_OVERHEAD
        self._max_block_s = engine.config.max_block_ms / 1000
        self._thread = _get_ident()
        self._records: deque[SyncDelivery] = deque()
        self._is_awake = False  # the event loop will look for records
        self._lock = threading.RLock()  # reentrant: a finalizer or a signal handler may send in the midst of it
        self._large = 0  # bytes of large records that were handed over, and are in no batch
        self._lines: dict[str, _Line] = {}
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
        """Hand a record over, or return None where it must take the round trip; nothing was done then, and nothing raised.

        ``waiter`` is woken when the outcome is known.
        """
        # All in one, as a call costs a tenth of the whole.
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
            or self._lines
        ):
            return None
        delivery = _new(SyncDelivery)  # what SyncDelivery.__init__ does
        delivery._loop_thread = self
        delivery._delivery = delivery._outcome = delivery._when_accepted = None
        delivery._record = (topic, value, key, headers, partition, timestamp_ms, size, deadline)
        if on_delivery is not None:
            delivery.tell(on_delivery)
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
        except BaseException:  # Ctrl-C: nobody may have woken the event loop, so let the next one do so
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
        """Hand a record over and wait for its acknowledgement, or return None where it must take the round trip."""
        waiter = ThreadWaiter(self.loop)
        deadline = None if timeout is None else time.monotonic() + timeout
        delivery = self.put(topic, value, key, headers, partition, timestamp_ms, waiter=waiter, deadline=deadline)
        if delivery is None:
            return None
        if not waiter.wait(timeout):
            delivery.wait_accepted()  # it was, or is refused now, as its time is over
            accepted = delivery._delivery
            if timeout is not None and accepted is not None and not delivery.done():
                raise not_acknowledged(accepted, timeout)
        return delivery.result()

    def check_waiter(self) -> None:
        """Raise where the wait for an outcome would never end: in a fork, and in the event loop's thread."""
        if self._engine.is_forked:
            raise ForkedProcess(
                "This record was accepted in another process, of which this one is a fork that will not hear of its outcome."
            )
        if _get_ident() == self._thread:
            raise ProducerStateError(OWN_THREAD)

    def post(self, call: Callable[[], object]) -> bool:
        """Have something done in the event loop; returns whether it will be, which it is not once that has ended."""
        try:
            self.loop.call_soon_threadsafe(call)
        except RuntimeError:
            return False
        return True

    def end_in_fork(self) -> None:
        """Take no records in this copy, in which there is no event loop, and perhaps a lock that nobody releases."""
        self._lanes = _NO_LANES

    # -- in the event loop's thread -----------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether nothing was handed over that is in no batch."""
        return not self._records and not self._lines

    @property
    def waiting(self) -> int:
        """How many records were handed over and wait for metadata or room."""
        return sum(len(line.records) for line in self._lines.values())

    def take(self) -> None:
        """Put records into batches until the event loop should run something else, and go on behind that."""
        if not self._put_in(stop_after_burst=True):
            self._is_awake = False
            if not self._records:
                if not _HAS_GIL:
                    self.loop.call_soon(self._look_again)
                return
            self._is_awake = True
        self.loop.call_soon(self.take)

    def _look_again(self) -> None:
        """Find what a thread put in that still saw the event loop awake, when this did not see its record yet."""
        if self._records and not self._is_awake:
            self._is_awake = True
            self.take()

    def take_all(self) -> None:
        """Put all records into batches, or into lines."""
        self._put_in(stop_after_burst=False)

    async def settle(self, topic: str | None = None, timeout: float | None = None) -> float | None:
        """Wait until what was handed over so far is in batches, or refused; returns what is left of the timeout.

        With a ``topic``: what was handed over for that one. Cancellation: the records go on.
        """
        self.take_all()
        lines = list(self._lines.values()) if topic is None else [self._lines[topic]] if topic in self._lines else []
        if not lines:
            return timeout
        began = self.loop.time()
        await asyncio.wait([line.task for line in lines], timeout=timeout)
        return None if timeout is None else max(0.0, timeout - (self.loop.time() - began))

    async def close(self, deadline: Deadline) -> None:
        """Take no more records, and wait until the deadline for those that wait for metadata or room.

        Cancellation: they go on waiting.
        """
        self._lanes = _NO_LANES
        with suppress(TimeoutError):
            async with deadline.limit():
                await self.settle()

    def end(self) -> None:
        """Refuse what a thread has put in at the very end; to be called when the event loop has ended."""
        lines, self._lines = self._lines, {}
        for line in lines.values():
            self._records.extend(handle for handle, _ in line.records)
        while self._records:
            self._refuse(self._records.popleft(), _ended())

    @property
    def not_written(self) -> list[ProducerRecord]:
        """The records that waited for metadata or room when the producer was closed."""
        return self._not_written

    def _put_in(self, *, stop_after_burst: bool) -> bool:
        """Put records into batches, all that there are or a burst; returns whether that left some."""
        records, lines, appender = self._records, self._lines, self._appender
        append = appender.append
        appender.burst = 0
        left = len(records)
        while left and records:  # a finalizer may have done the same
            left -= 1
            handle = records.popleft()
            record: Any = handle._record  # never None here
            topic, value, key, headers, partition, timestamp_ms, size, _ = record
            accepted = None
            if topic not in lines:
                try:
                    accepted = append(topic, value, key, headers, partition, timestamp_ms)
                    if accepted is None and appender.burst:
                        if stop_after_burst:
                            records.appendleft(handle)
                            return True
                        appender.burst = 0
                        accepted = append(topic, value, key, headers, partition, timestamp_ms)
                except Exception:  # a bug of ours or no memory, of which the round trip tells
                    logger.exception("A record for topic %r could not be put into a batch at once", topic)
            if accepted is None:
                self._line_up(handle)
                continue
            handle._delivery, handle._record = accepted, None  # what SyncDelivery.accept does
            handle._outcome = accepted.located()
            if handle._when_accepted is not None:
                handle.accept(accepted)
            if size > _SMALL:
                self._count_large(-size)
        if self._large and not records and not lines:
            self._large = 0  # Ctrl-C may have hit a thread that had counted its record
        return False

    def _count_large(self, size: int) -> None:
        with self._lock:
            self._large += size

    # -- records that wait after all ----------------------------------------------------------------------------------

    def _line_up(self, handle: SyncDelivery) -> None:
        topic, *_, deadline = handle.record
        if deadline is None:
            deadline = time.monotonic() + self._max_block_s
        line = self._lines.get(topic)
        if line is not None:
            line.records.append((handle, deadline))
            return
        records = deque([(handle, deadline)])
        task = self.loop.create_task(self._serve(topic, records), name="aioproducer hand-over")
        self._lines[topic] = _Line(records, task)

    async def _serve(self, topic: str, records: deque[tuple[SyncDelivery, float]]) -> None:
        """Put in what stands in the line of a topic, one record after the other."""
        try:
            while records:
                handle, deadline = records[0]
                size = handle.record[-2]
                try:
                    accepted = await self._accepted(handle.record, max(0.0, deadline - time.monotonic()))
                except KafkaError as error:
                    self._refuse(handle, error)
                except Exception as error:  # a bug of ours: nothing is lost without a word
                    logger.exception("A record for topic %r could not be put into a batch", topic)
                    self._refuse(handle, KafkaError(repr(error)))
                else:
                    handle.accept(accepted)
                    if size > _SMALL:
                        self._count_large(-size)
                records.popleft()
        finally:
            self._lines.pop(topic, None)
            for handle, _ in records:
                self._refuse(handle, _ended())

    async def _accepted(self, record: HandedOver, timeout: float) -> Delivery:
        if not self._engine.is_usable:
            raise self._engine.refusal()
        topic, value, key, headers, partition, timestamp_ms, _, _ = record
        try:
            return await self._enqueue(
                topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms, timeout=timeout
            )
        except KafkaError:
            self._engine.metrics.records_refused -= 1  # it counts among those that failed after they had been accepted
            raise

    def _refuse(self, handle: SyncDelivery, error: KafkaError) -> None:
        error.__traceback__ = None  # it leads to the delivery, which would live as long as its outcome
        topic, value, key, headers, partition, timestamp_ms, size, _ = handle.record
        whole = ProducerRecord(topic, value, key, headers, partition, timestamp_ms)
        if isinstance(error, ProducerClosed):
            self._not_written.append(whole)
        place = TopicPartition(topic, -1 if partition is None else partition)
        result = ProduceResult(place, self._engine.unobserved)
        handle.accept(
            Delivery(result, 0, timestamp_ms, -1 if key is None else len(key), -1 if value is None else len(value))
        )
        try:
            result.fail(_Refusal(place, error, whole))
        except RuntimeError:  # the event loop has ended, and calls nobody back
            result.wake()
        self._engine.metrics.records_failed += 1
        if size > _SMALL:
            self._count_large(-size)


def _plain_headers(headers: object) -> tuple[Header, ...]:
    plain = normalize_headers(headers)
    for name, _ in plain:
        name.encode()  # a lone surrogate would not do
    return plain


class _Line(NamedTuple):
    """Records of a topic that wait for metadata or room, each with the time until which it may, and the task that waits."""

    records: deque[tuple[SyncDelivery, float]]
    task: asyncio.Task[None]


def _ended() -> ProducerClosed:
    return ProducerClosed("The producer ended before this record was accepted into the buffer.")


class _Refusal(BatchFailure):
    """Why a record that was handed over could not be accepted."""

    def __init__(self, partition: TopicPartition, error: KafkaError, record: ProducerRecord) -> None:
        super().__init__(partition, error, False, isinstance(error, NotWrittenTimeout), lambda: (record,))

    def error_for(self, index: int) -> DeliveryError:
        """What `enqueue` would have raised, where that says it of the record; a new one each time, as of any failure."""
        cause, (record,) = self.cause, self.records
        if isinstance(cause, DeliveryError):
            error = copy(cause)
            error.__cause__ = cause.__cause__
            return error
        error = NotWritten(f"The record for topic {record.topic!r} was not accepted into the buffer: {cause}")
        error.topic, error.partition, error.record = record.topic, record.partition, record
        error.retriable = cause.retriable
        error.__cause__ = cause
        return error
