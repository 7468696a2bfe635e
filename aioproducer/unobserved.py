"""Tells the failures that nobody looks at: to ``on_delivery_error``, or else, summed up, to the log."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeAlias, cast

from aioproducer.delivery import BatchFailure
from aioproducer.errors import DeliveryError, ForkedProcess, WrongEventLoop
from aioproducer.foreign import ForeignTasks

__all__ = ["UnobservedFailures"]

logger = logging.getLogger("aioproducer")

#: A topic, and whether its records may be in the log.
_Fate: TypeAlias = tuple[str, bool]

#: While an outage lasts, each topic is told once in so many seconds.
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
        self._last: dict[_Fate, BatchFailure] = {}
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
            _log(len(indexes), failure)

    def close(self) -> None:
        """Log what is counted by now; what comes later is logged at once."""
        self._closed = True
        for fate in list(self._timers):
            self._sum_up(fate)

    def _report(self, failure: BatchFailure, indexes: Sequence[int]) -> None:
        if self._callback is None:
            self._count(failure, len(indexes))
            return
        for index in indexes:
            try:
                work = self._callback(failure.error_for(index))
            except Exception:  # foreign code
                logger.exception("on_delivery_error raised for a record of %s", failure.partition)
                continue
            if isinstance(work, Coroutine):
                self._foreign.spawn(cast("Coroutine[Any, Any, object]", work), "aioproducer on_delivery_error")

    def _count(self, failure: BatchFailure, records: int) -> None:
        fate = failure.partition.topic, failure.possibly_written
        if self._closed:
            _log(records, failure)
        elif fate in self._timers:
            self._counted[fate] = self._counted.get(fate, 0) + records
            self._last[fate] = failure
        else:
            _log(records, failure)
            self._timers[fate] = self._loop.call_later(_PAUSE_S, self._sum_up, fate)

    def _sum_up(self, fate: _Fate) -> None:
        self._timers.pop(fate).cancel()
        records, failure = self._counted.pop(fate, 0), self._last.pop(fate, None)
        if failure is not None:
            _log(records, failure)
            if not self._closed:
                self._timers[fate] = self._loop.call_later(_PAUSE_S, self._sum_up, fate)


def _log(records: int, failure: BatchFailure) -> None:
    fate = "may or may not be in the log" if failure.possibly_written else "are not in the log"
    logger.error(
        "%d record(s) for topic %r that nobody waited for %s: %s",
        records,
        failure.partition.topic,
        fate,
        failure.cause,
    )
