"""A thread with an event loop, for code without its own.

anyio's `start_blocking_portal` does the same as a generator, which waits for the thread when it ends. The interpreter ends
forgotten generators after the threads are gone, or in a fork that never had them. That would wait forever.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio
from anyio.from_thread import BlockingPortal

from aioproducer.runtime.log import ClientLog

__all__ = ["LoopThread"]


class LoopThread:
    """A daemon thread that runs an event loop. It is started at once; calls enter the loop through ``portal``."""

    def __init__(self, name: str, log: ClientLog) -> None:
        self._log = log
        self._opened: concurrent.futures.Future[BlockingPortal] = concurrent.futures.Future()
        self._last_task: asyncio.Task[None] | None = None
        self._last_is_done = threading.Event()
        self._last_is_done.set()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self.portal = self._opened.result()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this thread."""
        return threading.current_thread() is self._thread

    def end(self, timeout: float, *, cancel: bool = False) -> bool:
        """Wait for calls through the portal, or cancel them, and for the thread; returns whether it has ended."""
        with suppress(RuntimeError):  # it has ended
            self.portal.start_task_soon(self.portal.stop, cancel)
        return self.join(timeout)

    def end_after(self, last: Callable[[], Awaitable[object]]) -> None:
        """Run this, then end the thread, without waiting for it; may be called in any thread."""
        self._last_is_done.clear()
        try:
            self._loop.call_soon_threadsafe(self._begin_to_end, last)
        except RuntimeError:  # it has ended
            self._last_is_done.set()

    def join(self, timeout: float) -> bool:
        """Wait for the end of the thread, ``timeout`` seconds after its last work; returns whether it has ended.

        The timeout limits the wait for tasks that are left in the event loop and ignore their cancellation.
        """
        self._last_is_done.wait()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            anyio.run(self._serve)
        except BaseException as error:
            if self._opened.done():
                self._log.exception("The event loop thread ended unexpectedly")
            else:
                self._opened.set_exception(error)
        finally:
            self._last_is_done.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with BlockingPortal() as portal:
            self._opened.set_result(portal)
            await portal.sleep_until_stopped()

    def _begin_to_end(self, last: Callable[[], Awaitable[object]]) -> None:
        self._last_task = self._loop.create_task(self._end_after(last))

    async def _end_after(self, last: Callable[[], Awaitable[object]]) -> None:
        try:
            await last()
        except Exception:
            self._log.exception("The closing call in the event loop thread failed")
        finally:
            self._last_is_done.set()
            await self.portal.stop(True)
