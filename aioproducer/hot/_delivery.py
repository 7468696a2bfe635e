"""Tells each accepted record's outcome: one shared result for a batch, and a small handle for each of its records.

The records of a batch succeed or fail together, so the outcome is stored once (`ProduceResult`, Java's
ProduceRequestResult) and a `Delivery` (Java's FutureRecordMetadata) is only the result and an index into it.
Completing a batch therefore costs nothing for the records that nobody waits for.

Nobody's failure is lost. A `Delivery` that is thrown away before anybody looked at it leaves its index with the result;
if the batch then fails, these records go to the producer's error sink. A `Delivery` that is thrown away after its batch
failed reports itself. Looking means: awaiting to the end, ``result()``, ``exception()``, or a callback.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol, TypeAlias

from aioproducer.errors import DeliveryError
from aioproducer.failure import BatchFailure
from aioproducer.types import RecordMetadata, TimestampType, TopicPartition

__all__ = ["Delivery", "DeliveryCallback", "ProduceResult", "UnobservedSink"]

logger = logging.getLogger("aioproducer")

DeliveryCallback: TypeAlias = "Callable[[Delivery], object]"


class UnobservedSink(Protocol):
    """Where the failures go that nobody looks at, and how callbacks are run."""

    def call_soon(self, callback: Callable[..., object], *args: Any) -> object:
        """Run the callback soon, outside the code that completes batches."""
        ...

    def unobserved(self, failure: BatchFailure, indexes: Sequence[int]) -> None:
        """Take the failures of these records of a batch; may be called from any thread, and from a finalizer."""
        ...


class ProduceResult:
    """The outcome of one batch, shared by its records.

    Moves once from pending to succeeded or failed. A batch that is split forwards to the results of its parts, whose
    records are the same in the same order (KAFKA-9312: the whole is done only when all parts are).
    """

    __slots__ = (
        "_abandoned",
        "_listeners",
        "_parts",
        "_sink",
        "_starts",
        "base_offset",
        "failure",
        "log_append_time_ms",
        "partition",
        "succeeded",
    )

    def __init__(self, partition: TopicPartition, sink: UnobservedSink) -> None:
        self.partition = partition
        self.succeeded = False
        self.failure: BatchFailure | None = None
        self.base_offset = -1
        self.log_append_time_ms = -1
        self._sink = sink
        # By the future that waits, so that ten thousand that are cancelled at once are forgotten quickly.
        self._listeners: dict[object, tuple[Delivery, asyncio.Future[None] | DeliveryCallback]] | None = None
        self._abandoned: list[int] | None = None
        self._parts: Sequence[ProduceResult] = ()
        self._starts: Sequence[int] = ()

    @property
    def done(self) -> bool:
        """Whether the outcome of these records is known; a result that was split is asked through `locate`."""
        return self.succeeded or self.failure is not None

    @property
    def is_split(self) -> bool:
        """Whether the records belong to other results by now."""
        return bool(self._parts)

    def succeed(self, base_offset: int, log_append_time_ms: int) -> None:
        """Tell every record that it is in the log; ``base_offset`` -1 where the broker did not tell it."""
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.succeeded = True
        if self._listeners is not None:
            self._notify()

    def fail(self, failure: BatchFailure) -> None:
        """Tell every record why it was given up; those that nobody looks at go to the sink."""
        self.failure = failure
        if self._listeners is not None:
            self._notify()
        if self._abandoned:
            self._sink.unobserved(failure, self._abandoned)
            self._abandoned = None

    def split(self, parts: Sequence[ProduceResult], starts: Sequence[int]) -> None:
        """Hand all records over to ``parts``, of which part i begins with record ``starts[i]`` of this one."""
        self._parts, self._starts = parts, starts
        listeners, self._listeners = self._listeners, None
        for delivery, listener in listeners.values() if listeners else ():
            delivery.located().listen(delivery, listener)
        abandoned, self._abandoned = self._abandoned, None
        for index in abandoned or ():
            part, index_there = self.locate(index)
            part.abandon(index_there)

    def locate(self, index: int) -> tuple[ProduceResult, int]:
        """Which result holds the record now, and as which one."""
        result = self
        while result._parts:
            at = bisect_right(result._starts, index) - 1
            result, index = result._parts[at], index - result._starts[at]
        return result, index

    def listen(self, delivery: Delivery, listener: asyncio.Future[None] | DeliveryCallback) -> None:
        """Wake or call the listener when the outcome is known."""
        if self._listeners is None:
            self._listeners = {}
        # One callback may be given to many deliveries, and count each time.
        self._listeners[object() if callable(listener) else listener] = (delivery, listener)

    def unlisten(self, listener: asyncio.Future[None]) -> None:
        """Forget a waiter that was cancelled."""
        if self._listeners is not None:
            self._listeners.pop(listener, None)

    def abandon(self, index: int) -> None:
        """Note that nobody will look at this record's outcome."""
        if self.succeeded:
            return
        if self.failure is not None:
            self._sink.unobserved(self.failure, (index,))
        elif self._abandoned is None:
            self._abandoned = [index]
        else:
            self._abandoned.append(index)

    def call_soon(self, callback: DeliveryCallback, delivery: Delivery) -> None:
        """Run a callback for a record whose outcome is known."""
        self._sink.call_soon(_run_callback, callback, delivery)

    def _notify(self) -> None:
        listeners, self._listeners = self._listeners, None
        for delivery, listener in listeners.values() if listeners else ():
            if callable(listener):
                self.call_soon(listener, delivery)
            elif not listener.done():
                listener.set_result(None)


class Delivery:
    """The acknowledgement to come of one accepted record.

    Await it for the `RecordMetadata` or the `DeliveryError`, as often and from as many tasks as you like. Cancelling the
    await does not cancel the delivery. Nobody has to look at it: a failure that nobody looked at goes to the producer's
    ``on_delivery_error``.
    """

    __slots__ = ("_error", "_index", "_key_size", "_observed", "_result", "_timestamp_ms", "_value_size")

    def __init__(self, result: ProduceResult, index: int, timestamp_ms: int, key_size: int, value_size: int) -> None:
        self._result = result
        self._index = index
        self._timestamp_ms = timestamp_ms
        self._key_size = key_size
        self._value_size = value_size
        self._observed = False
        self._error: DeliveryError | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        """Where the record goes; known from the moment it was accepted."""
        return self._result.partition

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self.located().done

    def result(self) -> RecordMetadata:
        """The metadata of the acknowledged record.

        Raises the `DeliveryError` of a failed one, and `asyncio.InvalidStateError` where the outcome is not known yet.
        """
        error = self.exception()
        if error is not None:
            raise error
        result = self._result
        log_append_time_ms = result.log_append_time_ms
        stamped_by_broker = log_append_time_ms >= 0
        return RecordMetadata(
            result.partition.topic,
            result.partition.partition,
            result.base_offset + self._index if result.base_offset >= 0 else -1,
            log_append_time_ms if stamped_by_broker else self._timestamp_ms,
            self._key_size,
            self._value_size,
            TimestampType.LOG_APPEND_TIME if stamped_by_broker else TimestampType.CREATE_TIME,
        )

    def exception(self) -> DeliveryError | None:
        """The error of a failed record, None for an acknowledged one.

        Raises `asyncio.InvalidStateError` where the outcome is not known yet.
        """
        result = self.located()
        if result.succeeded:
            return None
        if result.failure is None:
            raise asyncio.InvalidStateError(f"The outcome of this record for {result.partition} is not known yet.")
        self._observed = True
        if self._error is None:
            self._error = result.failure.error_for(self._index)
        return self._error

    def add_done_callback(self, callback: DeliveryCallback) -> None:
        """Call ``callback(delivery)`` soon after the outcome is known, in the producer's event loop.

        An exception that the callback raises is logged. With a callback the record counts as looked at.
        """
        self.mark_observed()
        self.watch(callback)

    def mark_observed(self) -> None:
        """Count as looked at: a failure does not go to ``on_delivery_error`` any more."""
        self._observed = True

    def peek(self) -> tuple[RecordMetadata | None, DeliveryError | None]:
        """The outcome as (metadata, error), without counting as looked at: for those who only watch, as interceptors."""
        seen, self._observed = self._observed, True
        try:
            error = self.exception()
            return (self.result() if error is None else None), error
        finally:
            self._observed = seen

    def watch(self, callback: DeliveryCallback) -> None:
        """Like `add_done_callback`, but a failure still counts as one that nobody looked at."""
        result = self.located()
        if result.done:
            result.call_soon(callback, self)
        else:
            result.listen(self, callback)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        result = self.located()
        if not result.done:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            result.listen(self, waiter)
            try:
                yield from waiter
            except BaseException:
                self.located().unlisten(waiter)
                raise
        return self.result()

    def located(self) -> ProduceResult:
        """The result that holds this record now, after any splits."""
        if self._result.is_split:
            self._result, self._index = self._result.locate(self._index)
        return self._result

    def __del__(self) -> None:
        if not self._observed:
            self.located().abandon(self._index)

    def __repr__(self) -> str:
        result = self.located()
        state = "delivered" if result.succeeded else "failed" if result.failure is not None else "pending"
        return f"<Delivery to {result.partition} [{state}]>"


def _run_callback(callback: DeliveryCallback, delivery: Delivery) -> None:
    try:
        callback(delivery)
    except Exception:  # foreign code: one bad callback must not cost the others theirs
        logger.exception("The delivery callback %r raised for a record of %s", callback, delivery.topic_partition)
