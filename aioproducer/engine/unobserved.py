"""Reports outcomes that would go unnoticed: failures that are never observed, and successes that come too late.

Failures go to ``on_delivery_error``, or else, summed up, to the log; late successes to the log. A failure whose delivery is
held can still be observed, so it is reported only when the delivery is dropped; but the log has its count after a flush that
began later, and when the producer is closed.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextvars import copy_context
from typing import Any, Final, cast
from weakref import WeakSet

from aioproducer.delivery import BatchFailure, Delivery, DeliveryCallback, PendingCall, ProduceResult
from aioproducer.engine.tally import LogKey, Tally
from aioproducer.errors import BrokerError, DeliveryError, ForkedProcess, KafkaError, TransactionAborted, WrongEventLoop
from aioproducer.runtime.foreign import ForeignTasks
from aioproducer.runtime.log import ClientLog
from aioproducer.types import TopicPartition

__all__ = ["UnobservedFailures"]


#: How long after a flush the failures that it found are counted, in seconds.
_TIME_TO_OBSERVE_S: Final = 1.0


class UnobservedFailures:
    """The sink of all batches of a producer.

    Without ``on_delivery_error``, failures are logged: one line for many of the same topic and cause.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_delivery_error: Callable[[DeliveryError], object] | None,
        foreign: ForeignTasks,
        log: ClientLog,
    ) -> None:
        self.log = log
        self._loop = loop
        self._foreign = foreign
        self._callback = on_delivery_error
        self._tally = Tally(loop, log)
        self._failed: WeakSet[ProduceResult] = WeakSet()
        self._to_count: list[ProduceResult] | None = None
        self._counting: asyncio.TimerHandle | None = None
        self._pid = os.getpid()

    def check_waiter(self, loop: asyncio.AbstractEventLoop) -> None:
        """Refuse to wait for an outcome that would never arrive: in another event loop, or in a fork."""
        if os.getpid() != self._pid:
            raise ForkedProcess(
                f"This record was accepted in process {self._pid}; its fork {os.getpid()} will not receive its outcome. "
                "Await the delivery in the process that created it."
            )
        if loop is not self._loop:
            raise WrongEventLoop(
                "This record was accepted in another event loop. Await the delivery there, or use SyncProducer to send "
                "from threads."
            )

    def call_soon(self, calls: Sequence[PendingCall]) -> object:
        """Run users' callbacks outside our own code, and coroutines that they return as tasks.

        All of them in one iteration of the event loop: a handle for each costs as much as the rest.
        """
        if len(calls) == 1:
            return self._loop.call_soon(self._call, *calls[0])
        return self._loop.call_soon(self._call_each, iter(calls))

    def _call_each(self, calls: Iterator[PendingCall]) -> None:
        # The rest is called even if a callback raises SystemExit, or runs the event loop recursively.
        rest = self._loop.call_soon(self._call_each, calls)
        context = copy_context()  # a copy for each, as with a handle for each: none sees variables that another sets
        for call in calls:
            context.copy().run(self._call, *call)
        rest.cancel()

    def _call(self, index: int, delivery: Delivery, callback: DeliveryCallback) -> None:
        try:
            work = callback(delivery)
        except Exception:  # foreign code: a bad callback must not prevent the others
            at = delivery.topic_partition
            text = "The delivery callback %r raised for a record of %s"
            self.log.exception(text, callback, at, extra=at._asdict())
            return
        if work is not None and isinstance(work, Coroutine):
            self._foreign.spawn(cast("Coroutine[Any, Any, object]", work), "aioproducer delivery callback")

    def unobserved(self, failure: BatchFailure, indexes: Sequence[int]) -> None:
        """Report failed records that are never observed; may be called by a finalizer, in any thread."""
        try:
            self._loop.call_soon_threadsafe(self._report, failure, tuple(indexes))
        except RuntimeError:  # the loop is closed: only the log is left
            self._tally.add_without_loop(_log_key(failure), len(indexes), str(failure.cause))

    def remember(self, result: ProduceResult) -> None:
        """Count the records of this outcome later, as far as a delivery of them is held that was not observed."""
        self._failed.add(result)

    def failed_so_far(self) -> Sequence[ProduceResult]:
        """The failed outcomes that the log has no count of yet: when a flush begins, for `count_held` when it ends."""
        return list(self._failed) if self._failed else ()

    def count_held(self, results: Sequence[ProduceResult]) -> None:
        """Log how many records of these outcomes failed and may still be observed, because their `Delivery` is held.

        They are counted a second later: a task or a thread that an outcome has just woken observes it before.
        """
        if results and not self._loop.is_closed():
            if self._to_count is None:
                self._to_count = []
                self._counting = self._loop.call_later(_TIME_TO_OBSERVE_S, self._count_due)
            self._to_count.extend(results)

    def _count_due(self) -> None:
        results, self._to_count = self._to_count, None
        self._count_held(results or ())

    def acknowledged_late(self, partition: TopicPartition, records: int) -> None:
        """Report records that are in the log, although they were given up after their timeout."""
        what = "that had failed with Unknown were acknowledged later: they were written"
        self._tally.add(LogKey(partition.topic, what, logging.WARNING), records, "")

    def close(self) -> None:
        """Log the current counts, and those of failures that may still be observed, because their `Delivery` is held."""
        if self._counting is not None:
            self._counting.cancel()
        self._to_count = None
        self._count_held(list(self._failed))
        self._tally.close()

    def _count_held(self, results: Iterable[ProduceResult]) -> None:
        for result in results:
            failure = result.failure_of_all
            if failure is not None and result.held > 0 and result in self._failed:
                self._failed.discard(result)
                self._tally.add(_held_key(failure), result.held, str(failure.cause))

    def _report(self, failure: BatchFailure, indexes: Sequence[int]) -> None:
        if self._callback is None:
            self._tally.add(_log_key(failure), len(indexes), str(failure.cause))
            return
        for index in indexes:
            try:
                work = self._callback(failure.error_for(index))
            except Exception:  # foreign code
                at = failure.partition
                self.log.exception("on_delivery_error raised for a record of %s", at, extra=at._asdict())
                continue
            if isinstance(work, Coroutine):
                self._foreign.spawn(cast("Coroutine[Any, Any, object]", work), "aioproducer on_delivery_error")


def _held_key(failure: BatchFailure) -> LogKey:
    level = logging.DEBUG if isinstance(failure.cause, TransactionAborted) else logging.WARNING
    what = f"{_fate(failure)}, and the program has not asked their deliveries yet"
    return _log_key(failure)._replace(what=what, level=level)


def _fate(failure: BatchFailure) -> str:
    return "may or may not have been written" if failure.possibly_written else "were not written"


def _log_key(failure: BatchFailure) -> LogKey:
    # The caller has aborted the transaction, and knows it.
    level = logging.DEBUG if isinstance(failure.cause, TransactionAborted) else logging.ERROR
    return LogKey(failure.partition.topic, f"that were not awaited {_fate(failure)}", level, _kind(failure.cause))


def _kind(cause: KafkaError) -> str:
    """The common part of causes of the same kind; their texts may differ in a number or a name."""
    return str(cause.code) if isinstance(cause, BrokerError) else type(cause).__name__
