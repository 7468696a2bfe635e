"""Runs a function in a separate thread, for which nothing has to wait: not the service's executor, and not its end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

__all__ = ["in_thread"]

_T = TypeVar("_T")


def in_thread(work: Callable[[], _T]) -> asyncio.Future[_T]:
    """Start ``work`` in a daemon thread; the future gets its result.

    An executor has a few threads, which the service uses as well; one that is blocked would be missing, and the end of the
    process would wait for it. Cancellation of the future: the thread goes on, and its result is dropped.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_T] = loop.create_future()

    def succeed(result: _T) -> None:
        if not future.done():
            future.set_result(result)

    def fail(error: Exception) -> None:
        if not future.done():
            future.set_exception(error)
            future.exception()  # seen: perhaps nothing waits any more

    def run() -> None:
        with suppress(RuntimeError):  # the event loop has ended
            try:
                result = work()
            except Exception as error:  # for the caller
                loop.call_soon_threadsafe(fail, error)
            else:
                loop.call_soon_threadsafe(succeed, result)

    threading.Thread(target=run, name="aioproducer status", daemon=True).start()
    return future
