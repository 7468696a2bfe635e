"""The events that wait for a call of ``poll()`` or ``flush()``, and the thread with the producer's event loop."""

from __future__ import annotations

import concurrent.futures
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from aioproducer.producer import Producer
from aioproducer.sync import SyncProducer

__all__ = ["Events", "LoopedProducer"]

_T = TypeVar("_T")


class Events:
    """Callbacks that were caused in the event loop, to be called by the thread that polls."""

    def __init__(self) -> None:
        self._calls: deque[Callable[[], object]] = deque()
        self._changed = threading.Condition()

    def put(self, call: Callable[[], object]) -> None:
        """Add a callback; wakes the threads that wait."""
        with self._changed:
            self._calls.append(call)
            self._changed.notify_all()

    def wake(self) -> None:
        """Wake the threads that wait."""
        with self._changed:
            self._changed.notify_all()

    def wait(self, seconds: float | None, done: Callable[[], bool] = bool) -> bool:
        """Wait for an event, or until ``done()``; returns False after the given time (None: no limit)."""
        with self._changed:
            return self._changed.wait_for(lambda: bool(self._calls) or done(), seconds)

    def serve(self) -> int:
        """Call what is there now; returns how many. The first exception is raised after all of them were called."""
        first: BaseException | None = None
        count = len(self._calls)
        for at in range(count):
            try:
                call = self._calls.popleft()
            except IndexError:  # another thread polls as well
                count = at
                break
            try:
                call()
            except BaseException as error:
                first = first or error
        if first is not None:
            raise first
        return count


class LoopedProducer(SyncProducer):
    """A `SyncProducer` in whose event loop other coroutines run as well."""

    @property
    def producer(self) -> Producer:
        """The producer in the event loop."""
        return self._producer

    def post(self, call: Callable[[], object]) -> None:
        """Schedule a call in the event loop; without effect if it has ended."""
        if self._hand_over is not None:
            self._running()  # raises in a fork, and after the end
            self._hand_over.post(call)

    def begin(self, function: Callable[..., Awaitable[_T]], *args: Any) -> concurrent.futures.Future[_T]:
        """Begin a coroutine function in the event loop."""
        return self._running().start_task_soon(function, *args)
