"""The events that wait for a call of ``poll()`` or ``flush()``, and the thread with the producer's event loop."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, Unpack

from aioproducer.config import ProducerOptions
from aioproducer.contrib.confluent.feed import Feed
from aioproducer.producer import Producer
from aioproducer.sync import SyncProducer
from aioproducer.types import CloseReport

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


class _FedProducer(Producer):
    """A `Producer` that takes the records of its feed before it closes: also at exit, and when it was dropped."""

    feed: Feed | None = None

    async def close(self, timeout: float | None = None) -> CloseReport:
        """Close; see `Producer.close`."""
        if self.feed is None:
            return await super().close(timeout)
        seconds = self.config.close_timeout_ms / 1_000 if timeout is None else timeout
        until = time.monotonic() + seconds
        await self.feed.hand_over(seconds)
        return await super().close(max(0.0, until - time.monotonic()))


class LoopedProducer(SyncProducer):
    """A `SyncProducer` in whose event loop other coroutines run as well."""

    def __init__(self, bootstrap_servers: Sequence[str], **options: Unpack[ProducerOptions]) -> None:
        super().__init__(bootstrap_servers, **options)
        self._producer = self._fed = _FedProducer(self.config)

    @property
    def producer(self) -> Producer:
        """The producer in the event loop."""
        return self._fed

    def feed_from(self, feed: Feed) -> None:
        """Take the records of this feed before closing."""
        self._fed.feed = feed

    def post(self, call: Callable[[], object]) -> None:
        """Schedule a call in the event loop; without effect if it has ended."""
        if self._hand_over is not None:
            self._running()  # raises in a fork, and after the end
            self._hand_over.post(call)

    def begin(self, function: Callable[..., Awaitable[_T]], *args: Any) -> concurrent.futures.Future[_T]:
        """Begin a coroutine function in the event loop."""
        return self._running().start_task_soon(function, *args)
