"""The handle of an accepted record, in plain Python: the reference for the native twin.

The records of a batch succeed or fail together, so the outcome is stored once (`Outcome`), and a `Delivery` (Java's
FutureRecordMetadata) is only a reference to it and an index. So completing a batch costs nothing for records that no one
awaits.
"""

# pyright: reportPrivateUsage=false
# A Delivery reads its Outcome's private attributes: a property would double the cost.

from __future__ import annotations

import asyncio
import weakref
from array import array
from collections.abc import Callable, Generator
from typing import Any, Final

from aioproducer.errors import DeliveryError
from aioproducer.types import RecordMetadata, TimestampType, TopicPartition

__all__ = ["Delivery", "Outcome"]

_CREATE_TIME: Final = TimestampType.CREATE_TIME
_LOG_APPEND_TIME: Final = TimestampType.LOG_APPEND_TIME


class Outcome:
    """The outcome of some records, once it is known. `ProduceResult` manages the waiters."""

    __slots__ = (
        "_number",
        "_topic",
        "_waiters",
        "abandoned",
        "base_offset",
        "failure",
        "held",
        "is_split",
        "log_append_time_ms",
        "partition",
        "succeeded",
    )

    #: The waiters, each with its record. Keyed by the future, so that ten thousand cancelled ones can be removed quickly.
    _waiters: dict[asyncio.Future[None], int] | None
    #: How many deliveries exist that refer to this outcome and were not observed.
    held: int
    #: Whether the records now belong to other outcomes.
    is_split: bool
    #: -1 if the broker did not return it.
    base_offset: int
    #: The broker's time in milliseconds if the topic uses LogAppendTime, else -1.
    log_append_time_ms: int

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self._topic, self._number = partition  # cached, because all of its records need them
        self.succeeded = False
        self.failure: Any = None  # a BatchFailure, with details
        self.held = 0
        self.is_split = False
        self._waiters = None
        self.base_offset = -1
        self.log_append_time_ms = -1
        self.abandoned: array[int] | None = None

    @property
    def done(self) -> bool:
        """Whether the outcome of these records is known."""
        return self.succeeded or self.failure is not None

    def wake(self) -> None:
        """Wake all waiters; each checks the outcome of its record."""
        waiters, self._waiters = self._waiters, None
        for waiter in waiters or ():
            if not waiter.done():
                waiter.set_result(None)

    def keep(self, index: int, waiter: asyncio.Future[None]) -> None:
        """Wake this waiter when the outcome of that record is known."""
        if self._waiters is None:
            self._waiters = {}
        self._waiters[waiter] = index

    def forget(self, waiter: asyncio.Future[None]) -> None:
        """Remove this waiter."""
        if self._waiters is not None:
            self._waiters.pop(waiter, None)

    def take_waiters(self) -> list[tuple[int, asyncio.Future[None]]]:
        """Remove and return all waiters, each with its record."""
        waiters, self._waiters = self._waiters, None
        return [(index, waiter) for waiter, index in (waiters or {}).items()]

    def note_abandoned(self, index: int) -> None:
        """Record that this record's outcome will not be observed."""
        if self.abandoned is None:
            self.abandoned = array("i")
        self.abandoned.append(index)

    def take_abandoned(self) -> list[int]:
        """Remove and return the records whose outcome will not be observed."""
        abandoned, self.abandoned = self.abandoned, None
        return [] if abandoned is None else abandoned.tolist()

    # Called by Delivery, implemented by ProduceResult

    def locate(self, index: int) -> tuple[Outcome, int]:
        """The outcome that holds the record now, and its index there."""
        raise NotImplementedError  # ProduceResult does it, above this layer

    def abandon(self, index: int) -> None:
        """Record that this record's outcome will not be observed, or report it if it is a failure."""
        raise NotImplementedError  # ProduceResult does it, above this layer

    def wait(self, index: int, waiter: asyncio.Future[None]) -> None:
        """Wake a future when the outcome of a record is known, if it may be awaited in the future's event loop."""
        raise NotImplementedError  # ProduceResult does it, above this layer

    def listen(self, delivery: Delivery, callback: Callable[[Delivery], object]) -> None:
        """Call ``callback`` soon after the outcome of a record is known."""
        raise NotImplementedError  # ProduceResult does it, above this layer


class Delivery:
    """The pending acknowledgement of one accepted record.

    Await it for the `RecordMetadata` or the `DeliveryError`, as often and from as many tasks as you like. Cancelling the
    await does not cancel the delivery. Awaiting it is optional: an unobserved failure goes to the producer's
    ``on_delivery_error``.
    """

    __slots__ = ("_error", "_index", "_key_size", "_observed", "_result", "_timestamp_ms", "_value_size")

    def __init__(self, result: Outcome, index: int, timestamp_ms: int, key_size: int, value_size: int) -> None:
        self._result = result
        result.held += 1
        self._index = index
        self._timestamp_ms = timestamp_ms
        self._key_size = key_size
        self._value_size = value_size
        self._observed = False
        self._error: weakref.ref[DeliveryError] | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        """The record's topic and partition, known since it was accepted."""
        return self._result.partition

    @property
    def index(self) -> int:
        """The record's index in ``located()``."""
        return self._index

    @property
    def serialized_size(self) -> int:
        """The size of key and value in bytes."""
        return max(0, self._key_size) + max(0, self._value_size)

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self.located().done

    def result(self) -> RecordMetadata:
        """The metadata of the acknowledged record.

        Raises the `DeliveryError` of a failed one, and `asyncio.InvalidStateError` if the outcome is not known yet.
        """
        outcome = self._result
        if not outcome.succeeded:
            error = self.exception()
            if error is not None:
                raise error
            outcome = self._result
        base_offset, timestamp_ms = outcome.base_offset, outcome.log_append_time_ms
        return RecordMetadata(
            outcome._topic,
            outcome._number,
            base_offset + self._index if base_offset >= 0 else -1,
            self._timestamp_ms if timestamp_ms < 0 else timestamp_ms,
            self._key_size,
            self._value_size,
            _CREATE_TIME if timestamp_ms < 0 else _LOG_APPEND_TIME,
        )

    def exception(self) -> DeliveryError | None:
        """The error of a failed record, None for an acknowledged one.

        Raises `asyncio.InvalidStateError` if the outcome is not known yet.
        """
        error = self._look()
        if error is not None:
            self.mark_observed()
        return error

    def _look(self) -> DeliveryError | None:
        result = self.located()
        if result.succeeded:
            return None
        if result.failure is None:
            raise asyncio.InvalidStateError(f"The outcome of this record for {result.partition} is not known yet.")
        error = None if self._error is None else self._error()
        if error is None:
            error = result.failure.error_for(self._index)
            self._error = weakref.ref(error)  # as in the native twin, which the garbage collector does not track
        return error

    def add_done_callback(self, callback: Callable[[Delivery], object]) -> None:
        """Call ``callback(delivery)`` soon after the outcome is known, in the producer's event loop.

        An exception that the callback raises is logged. With a callback the record counts as observed. Raises TypeError if
        ``callback`` is not callable.
        """
        if not callable(callback):
            raise TypeError(f"add_done_callback() needs a callable, not {callback!r}.")
        self.mark_observed()
        self.watch(callback)

    def mark_observed(self) -> None:
        """Count as observed: a failure no longer goes to ``on_delivery_error``."""
        if not self._observed:
            self._observed = True
            self._result.held -= 1

    def peek(self) -> tuple[RecordMetadata | None, DeliveryError | None]:
        """The outcome as (metadata, error), without counting as observed, for interceptors and other observers."""
        error = self._look()
        return (self.result() if error is None else None), error

    def watch(self, callback: Callable[[Delivery], object]) -> None:
        """Like `add_done_callback`, but a failure still counts as unobserved."""
        self.located().listen(self, callback)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        result = self._result
        if not result.succeeded and not (result := self.located()).done:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            result.wait(self._index, waiter)
            # Checked again: all of this creates objects, so the garbage collector may have run.
            if (now := self.located()) is not result:
                now.wait(self._index, waiter)
            if now.done:
                now.wake()
            try:
                yield from waiter
            except BaseException:
                self.located().forget(waiter)
                raise
        return self.result()

    def located(self) -> Outcome:
        """The result that currently holds this record, after any splits."""
        whole = self._result
        if whole.is_split:
            self._result, self._index = whole.locate(self._index)
            if not self._observed:
                whole.held -= 1
                self._result.held += 1
        return self._result

    def __del__(self) -> None:
        if self._observed:
            return
        self.mark_observed()
        if not self._result.succeeded:
            self.located().abandon(self._index)

    def __repr__(self) -> str:
        result = self.located()
        state = "delivered" if result.succeeded else "failed" if result.failure is not None else "pending"
        return f"<Delivery to {result.partition} [{state}]>"
