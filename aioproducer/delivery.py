"""Tells the outcome of a batch to everybody who waits for one of its records, and to nobody twice.

Nobody's failure is lost. A `Delivery` that is thrown away before anybody looked at it leaves its index with the result;
if the batch then fails, these records go to the producer's error sink. A `Delivery` that is thrown away after its batch
failed reports itself. Looking means: awaiting to the end, ``result()``, ``exception()``, or a callback.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from aioproducer.failure import BatchFailure
from aioproducer.hot import Delivery, Outcome
from aioproducer.types import TopicPartition

__all__ = ["BatchFailure", "Delivery", "DeliveryCallback", "ProduceResult", "UnobservedSink"]

logger = logging.getLogger("aioproducer")

DeliveryCallback: TypeAlias = Callable[[Delivery], object]


class UnobservedSink(Protocol):
    """Where the failures go that nobody looks at, and how callbacks are run."""

    def check_waiter(self, loop: asyncio.AbstractEventLoop) -> None:
        """Raise where nobody would ever wake who waits for an outcome in this event loop."""
        ...

    def call_soon(self, callback: Callable[..., object], *args: Any) -> object:
        """Run the callback soon, outside the code that completes batches; a coroutine that it returns is run, too."""
        ...

    def unobserved(self, failure: BatchFailure, indexes: Sequence[int]) -> None:
        """Take the failures of these records of a batch; may be called from any thread, and from a finalizer."""
        ...


class ProduceResult(Outcome):
    """The outcome of one batch, shared by its records (Java's ProduceRequestResult).

    Moves once from pending to succeeded or failed. A batch that is split forwards to the results of its parts, whose
    records are the same in the same order (KAFKA-9312: the whole is done only when all parts are).
    """

    __slots__ = ("_callbacks", "_parts", "_sink", "_starts")

    failure: BatchFailure | None

    def __init__(self, partition: TopicPartition, sink: UnobservedSink) -> None:
        super().__init__(partition)
        self._sink = sink
        self._callbacks: list[tuple[int, Delivery, DeliveryCallback]] | None = None
        self._parts: Sequence[ProduceResult] = ()
        self._starts: Sequence[int] = ()

    def succeed(self, base_offset: int, log_append_time_ms: int) -> None:
        """Tell every record that it is in the log; ``base_offset`` -1 where the broker did not tell it."""
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.succeeded = True
        self._notify()

    def fail(self, failure: BatchFailure) -> None:
        """Tell every record why it was given up; those that nobody looks at go to the sink."""
        self.failure = failure
        self._notify()
        abandoned = self.take_abandoned()
        if abandoned:
            self._sink.unobserved(failure, abandoned)

    def split(self, parts: Sequence[ProduceResult], starts: Sequence[int]) -> None:
        """Hand all records over to ``parts``, of which part i begins with record ``starts[i]`` of this one."""
        self._parts, self._starts = parts, starts
        self.is_split = True
        for index, waiter in self.take_waiters():
            part, index_there = self.locate(index)
            part.wait(index_there, waiter)
        callbacks, self._callbacks = self._callbacks, None
        for index, delivery, callback in callbacks or ():  # which may be asked in another thread meanwhile
            part, index_there = self.locate(index)
            part._listen(index_there, delivery, callback)
        for index in self.take_abandoned():
            part, index_there = self.locate(index)
            part.abandon(index_there)

    def locate(self, index: int) -> tuple[ProduceResult, int]:
        """Which result holds the record now, and as which one."""
        result = self
        while result.is_split:
            at = bisect_right(result._starts, index) - 1
            result, index = result._parts[at], index - result._starts[at]
        return result, index

    def wait(self, index: int, waiter: asyncio.Future[None]) -> None:
        """Wake a future when the outcome is known. Raises `WrongEventLoop` for one of another loop than the producer's."""
        self._sink.check_waiter(waiter.get_loop())
        self.keep(index, waiter)

    def listen(self, delivery: Delivery, callback: DeliveryCallback) -> None:
        """Call back soon after the outcome is known, and as often as was asked for."""
        self._listen(delivery.index, delivery, callback)

    def _listen(self, index: int, delivery: Delivery, callback: DeliveryCallback) -> None:
        if self.done:
            self._call_soon(delivery, callback)
        elif self._callbacks is None:
            self._callbacks = [(index, delivery, callback)]
        else:
            self._callbacks.append((index, delivery, callback))

    def abandon(self, index: int) -> None:
        """Note that nobody will look at this record's outcome."""
        if self.succeeded:
            return
        abandoned: Sequence[int] = (index,)
        if self.failure is None:
            self.note_abandoned(index)
            if not self.done:
                return
            abandoned = self.take_abandoned()  # it failed since then: this may run in another thread
        if self.failure is not None and abandoned:
            self._sink.unobserved(self.failure, abandoned)

    def _notify(self) -> None:
        callbacks, self._callbacks = self._callbacks, None
        for _, delivery, callback in callbacks or ():
            self._call_soon(delivery, callback)
        self.wake()  # behind the callbacks: who awaited it finds its record's callback done

    def _call_soon(self, delivery: Delivery, callback: DeliveryCallback) -> None:
        self._sink.call_soon(_run_callback, callback, delivery)


def _run_callback(callback: DeliveryCallback, delivery: Delivery) -> object:
    try:
        return callback(delivery)
    except Exception:  # foreign code: one bad callback must not cost the others theirs
        logger.exception("The delivery callback %r raised for a record of %s", callback, delivery.topic_partition)
        return None
