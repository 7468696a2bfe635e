"""Tells what nobody would hear of otherwise: failures that nobody looks at, and successes that come too late.

Failures go to ``on_delivery_error``, or else, summed up, to the log; late successes to the log.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, cast

from aioproducer.delivery import BatchFailure
from aioproducer.engine.foreign import ForeignTasks
from aioproducer.errors import DeliveryError, ForkedProcess, TransactionAborted, WrongEventLoop
from aioproducer.types import TopicPartition

__all__ = ["UnobservedFailures"]

logger = logging.getLogger("aioproducer")


class _Fate(NamedTuple):
    """What became of records of a topic, and how bad that is."""

    topic: str
    what: str
    level: int


#: While an outage lasts, each topic is reported once in this time, in seconds.
_PAUSE_S = 1.0


class UnobservedFailures:
    """The sink of all batches of a producer.

    Without ``on_delivery_error``, the first failure of a topic is logged at once, and those behind it are counted and
    logged together a second later: an outage fails batches by the thousand.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_delivery_error: Callable[[DeliveryError], object] | None,
        foreign: ForeignTasks,
    ) -> None:
        self._loop = loop
        self._foreign = foreign
        self._callback = on_delivery_error
        self._counted: dict[_Fate, int] = {}
        self._causes: dict[_Fate, str] = {}
        self._timers: dict[_Fate, asyncio.TimerHandle] = {}
        self._closed = False
        self._pid = os.getpid()

    def check_waiter(self, loop: asyncio.AbstractEventLoop) -> None:
        """Refuse to wait for an outcome where it will never be told: in another event loop, or in a fork."""
        if os.getpid() != self._pid:
            raise ForkedProcess(
                f"This record was accepted in process {self._pid}; its fork {os.getpid()} will not hear of its outcome. "
                "Await the delivery where it was made."
            )
        if loop is not self._loop:
            raise WrongEventLoop(
                "This record was accepted in another event loop. Await the delivery there, or take SyncProducer to send "
                "from threads."
            )

    def call_soon(self, callback: Callable[..., object], *args: Any) -> object:
        """Run a callback of the user's outside our own code, and what it returns as a task where it is async."""
        return self._loop.call_soon(self._call, callback, *args)

    def _call(self, callback: Callable[..., object], *args: Any) -> None:
        work = callback(*args)
        if work is not None and isinstance(work, Coroutine):
            self._foreign.spawn(cast("Coroutine[Any, Any, object]", work), "aioproducer delivery callback")

    def unobserved(self, failure: BatchFailure, indexes: Sequence[int]) -> None:
        """Report failed records that nobody looks at; may be called by a finalizer, in any thread."""
        try:
            self._loop.call_soon_threadsafe(self._report, failure, tuple(indexes))
        except RuntimeError:  # the loop is closed: there is only the log left
            _log(_fate(failure), len(indexes), str(failure.cause))

    def acknowledged_late(self, partition: TopicPartition, records: int) -> None:
        """Report records that are in the log, although they were given up when their time was over."""
        what = "that were given up as Unknown were acknowledged later: they are in the log"
        self._count(_Fate(partition.topic, what, logging.WARNING), records, "")

    def close(self) -> None:
        """Log what is counted by now; what comes later is logged at once."""
        self._closed = True
        for fate in list(self._timers):
            self._sum_up(fate)

    def _report(self, failure: BatchFailure, indexes: Sequence[int]) -> None:
        if self._callback is None:
            self._count(_fate(failure), len(indexes), str(failure.cause))
            return
        for index in indexes:
            try:
                work = self._callback(failure.error_for(index))
            except Exception:  # foreign code
                logger.exception("on_delivery_error raised for a record of %s", failure.partition)
                continue
            if isinstance(work, Coroutine):
                self._foreign.spawn(cast("Coroutine[Any, Any, object]", work), "aioproducer on_delivery_error")

    def _count(self, fate: _Fate, records: int, cause: str) -> None:
        if self._closed:
            _log(fate, records, cause)
        elif fate in self._timers:
            self._counted[fate] = self._counted.get(fate, 0) + records
            self._causes[fate] = cause
        else:
            _log(fate, records, cause)
            self._timers[fate] = self._loop.call_later(_PAUSE_S, self._sum_up, fate)

    def _sum_up(self, fate: _Fate) -> None:
        self._timers.pop(fate).cancel()
        records, cause = self._counted.pop(fate, 0), self._causes.pop(fate, "")
        if records:
            _log(fate, records, cause)
            if not self._closed:
                self._timers[fate] = self._loop.call_later(_PAUSE_S, self._sum_up, fate)


def _fate(failure: BatchFailure) -> _Fate:
    fate = "may or may not be in the log" if failure.possibly_written else "are not in the log"
    # The caller who aborted the transaction knows that already.
    level = logging.DEBUG if isinstance(failure.cause, TransactionAborted) else logging.ERROR
    return _Fate(failure.partition.topic, f"that nobody waited for {fate}", level)


def _log(fate: _Fate, records: int, cause: str) -> None:
    logger.log(
        fate.level, "%d record(s) for topic %r %s%s", records, fate.topic, fate.what, f": {cause}" if cause else ""
    )
