"""Reports the outcome of a batch to every waiter of one of its records, once.

No failure is lost. A `Delivery` that is dropped unobserved first registers its index with its batch's result; if the
batch then fails, these records go to the producer's error sink. A `Delivery` that is dropped after its batch failed reports
itself, and what is held when the producer is closed is counted in the log. Observing means: awaiting to the end,
``result()``, ``exception()``, or a callback.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from aioproducer.errors import (
    DeliveryError,
    KafkaError,
    LastError,
    NotWritten,
    NotWrittenTimeout,
    RecordTooLarge,
    Unknown,
    UnknownTimeout,
)
from aioproducer.hot import Delivery, Outcome
from aioproducer.runtime.detached import detached
from aioproducer.runtime.log import ClientLog
from aioproducer.types import ProducerRecord, TopicPartition

__all__ = ["BatchFailure", "Delivery", "DeliveryCallback", "PendingCall", "ProduceResult", "UnobservedSink"]

DeliveryCallback: TypeAlias = Callable[[Delivery], object]

#: The index of a record in its `ProduceResult`, its handle, and what to call with it.
PendingCall: TypeAlias = tuple[int, Delivery, DeliveryCallback]

#: Which error a record gets: (may it be written?, did time run out?).
_ERRORS: Mapping[tuple[bool, bool], type[DeliveryError]] = {
    (False, False): NotWritten,
    (False, True): NotWrittenTimeout,
    (True, False): Unknown,
    (True, True): UnknownTimeout,
}


@dataclass(slots=True)
class BatchFailure:
    """Why a batch was given up, and whether its records may still be in the log.

    ``record_errors`` holds the broker's errors of single records (KIP-467); the others were refused with them.
    ``read_records`` returns the records, with serialized keys and values. ``last_error`` is that of the last attempt, or of
    the connections to brokers.
    """

    partition: TopicPartition
    cause: KafkaError
    possibly_written: bool
    timed_out: bool
    read_records: Callable[[], Sequence[ProducerRecord]]
    record_errors: Mapping[int, str] = field(default_factory=dict[int, str])
    last_error: LastError | None = None
    _records: Sequence[ProducerRecord] | None = None

    def __post_init__(self) -> None:
        self.cause = detached(self.cause)

    @property
    def records(self) -> Sequence[ProducerRecord]:
        """The records of the batch in order; decoded at the first call."""
        if self._records is None:
            self._records = self.read_records()
        return self._records

    def error_for(self, index: int) -> DeliveryError:
        """The exception for one record, with its own reason if the broker gave one."""
        fate = "may or may not have been written" if self.possibly_written else "was not written"
        error = _ERRORS[self.possibly_written, self.timed_out](
            f"The record for {self.partition} was not acknowledged and {fate}: {self._reason(index)}"
        )
        error.topic, error.partition = self.partition
        error.record = self.records[index]
        error.last_error = self.last_error
        error.retriable = self.cause.retriable and not self.possibly_written
        error.__cause__ = detached(self.cause)
        return error

    def _reason(self, index: int) -> str:
        own = self.record_errors.get(index)
        if own is not None:
            return own or str(self.cause)
        if self.record_errors:
            return f"it shared a batch with {len(self.record_errors)} record(s) that the broker refused ({self.cause})"
        return str(self.cause)

    @property
    def too_large(self) -> bool:
        """Whether the size was the reason."""
        return isinstance(self.cause, RecordTooLarge)


class UnobservedSink(Protocol):
    """Takes failures that are never observed, and runs callbacks."""

    @property
    def log(self) -> ClientLog:
        """The producer's log."""
        ...

    def check_waiter(self, loop: asyncio.AbstractEventLoop) -> None:
        """Raise if a waiter for an outcome in this event loop would never be woken."""
        ...

    def call_soon(self, calls: Sequence[PendingCall]) -> object:
        """Call these soon, in order, outside the code that completes batches; coroutines that they return are run as well.

        What one of them raises is logged and does not prevent the others.
        """
        ...

    def unobserved(self, failure: BatchFailure, indexes: Sequence[int]) -> None:
        """Take the failures of these records of a batch; may be called from any thread, and from a finalizer."""
        ...

    def remember(self, result: ProduceResult) -> None:
        """Look at this outcome again when the producer is closed, if a delivery still refers to it; records of it failed."""
        ...


class ProduceResult(Outcome):
    """The outcome of one batch, shared by its records (Java's ProduceRequestResult).

    Moves once from pending to succeeded or failed. A batch that is split forwards to the results of its parts, whose
    records are the same in the same order (KAFKA-9312: the whole is done only when all parts are).
    """

    __slots__ = ("__weakref__", "_callbacks", "_parts", "_sink", "_starts")

    failure: BatchFailure | None

    def __init__(self, partition: TopicPartition, sink: UnobservedSink) -> None:
        super().__init__(partition)
        self._sink = sink
        self._callbacks: list[PendingCall] | None = None
        self._parts: Sequence[ProduceResult] = ()
        self._starts: Sequence[int] = ()

    def succeed(self, base_offset: int, log_append_time_ms: int) -> None:
        """The records are in the log; ``base_offset`` is -1 if the broker did not return it."""
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.succeeded = True
        if self._callbacks:
            self._notify()
        else:
            self.wake()

    def fail(self, failure: BatchFailure) -> None:
        """The records have failed; those that are never observed go to the sink."""
        self.failure = failure
        self._sink.remember(self)
        self._notify()
        abandoned = self.take_abandoned()
        if abandoned:
            self._sink.unobserved(failure, abandoned)

    def forsake(self, failure: BatchFailure) -> None:
        """Fail every record when the event loop is closed: those who wait in it, and callbacks, will never run."""
        self.take_waiters()
        self._callbacks = None
        self.fail(failure)

    def split(self, parts: Sequence[ProduceResult], starts: Sequence[int]) -> None:
        """Hand all records over to ``parts``, of which part i begins with record ``starts[i]`` of this one."""
        self._parts, self._starts = parts, starts
        self.is_split = True
        self._sink.remember(self)
        for index, waiter in self.take_waiters():
            part, index_there = self.locate(index)
            part.wait(index_there, waiter)
        callbacks, self._callbacks = self._callbacks, None
        for index, delivery, callback in callbacks or ():  # which another thread may call at the same time
            part, index_there = self.locate(index)
            part._listen(index_there, delivery, callback)
        for index in self.take_abandoned():
            part, index_there = self.locate(index)
            part.abandon(index_there)

    @property
    def failure_of_all(self) -> BatchFailure | None:
        """Why these records failed: None if they did not, or if some of a split batch were acknowledged.

        If the parts of a batch failed differently, that of one that may have been written.
        """
        if not self.is_split:
            return self.failure
        failures = [failure for part in self._parts if (failure := part.failure_of_all) is not None]
        return max(failures, key=lambda each: each.possibly_written) if len(failures) == len(self._parts) else None

    def locate(self, index: int) -> tuple[ProduceResult, int]:
        """The result that holds the record now, and the record's index in it."""
        result = self
        while result.is_split:
            at = bisect_right(result._starts, index) - 1
            result, index = result._parts[at], index - result._starts[at]
        return result, index

    def wait(self, index: int, waiter: asyncio.Future[None]) -> None:
        """Wake a future when the outcome is known. Raises `WrongEventLoop` if it belongs to another event loop."""
        self._sink.check_waiter(waiter.get_loop())
        self.keep(index, waiter)

    def listen(self, delivery: Delivery, callback: DeliveryCallback) -> None:
        """Call back soon after the outcome is known; a callback added twice is called twice."""
        self._listen(delivery.index, delivery, callback)

    def _listen(self, index: int, delivery: Delivery, callback: DeliveryCallback) -> None:
        if self.done:
            self._sink.call_soon([(index, delivery, callback)])
        elif self._callbacks is None:
            self._callbacks = [(index, delivery, callback)]
        else:
            self._callbacks.append((index, delivery, callback))

    def abandon(self, index: int) -> None:
        """Note that this record's outcome will never be observed."""
        if self.succeeded:
            return
        abandoned: Sequence[int] = (index,)
        if self.failure is None:
            self.note_abandoned(index)
            if not self.done:
                return
            abandoned = self.take_abandoned()  # it has just failed: this may run in another thread
        if self.failure is not None and abandoned:
            self._sink.unobserved(self.failure, abandoned)

    def _notify(self) -> None:
        callbacks, self._callbacks = self._callbacks, None
        if callbacks:
            self._sink.call_soon(callbacks)
        self.wake()  # after the callbacks: a waiter finds its record's callback done
