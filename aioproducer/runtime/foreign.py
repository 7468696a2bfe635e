"""Runs the user's coroutines (of interceptors and callbacks) in separate tasks, on which nothing else depends.

A foreign task may run for any time, raise anything and swallow its cancellation: its exception is logged. At the end it is
waited for until the deadline, then cancelled, and left running if it ignores that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from aioproducer.runtime.deadline import Deadline
from aioproducer.runtime.log import ClientLog

__all__ = ["ForeignTasks"]

#: How long a cancelled task may take to end, in seconds; it needs no time unless it swallows its cancellation.
_TO_CLEAN_UP_S = 0.1


class ForeignTasks:
    """The tasks of one producer that run foreign code."""

    def __init__(self, loop: asyncio.AbstractEventLoop, log: ClientLog) -> None:
        self._loop = loop
        self._log = log
        self._running: set[asyncio.Task[Any]] = set()  # an event loop holds only weak references to tasks
        self._waited_for: set[asyncio.Task[Any]] = set()
        self._none_left = asyncio.Event()
        self._none_left.set()

    def spawn(self, work: Coroutine[Any, Any, object], name: str) -> None:
        """Run a coroutine in a task called ``name``."""
        task = self._loop.create_task(work, name=name)
        self._running.add(task)
        self._waited_for.add(task)
        self._none_left.clear()
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        self._do_not_wait_for(task)
        if task.cancelled():
            self._log.debug("The task %r was cancelled.", task.get_name())
        elif task.exception() is not None:
            self._log.error("The task %r raised.", task.get_name(), exc_info=task.exception())

    def _do_not_wait_for(self, task: asyncio.Task[Any]) -> None:
        self._waited_for.discard(task)
        if not self._waited_for:
            self._none_left.set()

    def excuse_current(self) -> None:
        """Do not wait for the calling task and do not cancel it: it waits for the end itself."""
        task = asyncio.current_task()
        if task is not None:
            self._do_not_wait_for(task)

    async def wait(self, deadline: Deadline) -> None:
        """Wait until all tasks have ended, or until the deadline. Cancellation: the tasks continue."""
        if not self._waited_for:
            return
        with suppress(TimeoutError):
            async with deadline.limit():
                await self._none_left.wait()

    async def cancel(self) -> None:
        """Cancel the remaining tasks, and abandon those that ignore it. Cancellation: they are cancelled."""
        late = list(self._waited_for)
        if not late:
            return
        for task in late:
            task.cancel()
        self._log.warning(
            "%d task(s) of interceptors or callbacks took longer than close() and were cancelled: %s.",
            len(late),
            _names(late),
        )
        await asyncio.wait(late, timeout=_TO_CLEAN_UP_S)
        stubborn = [task for task in late if not task.done()]
        if stubborn:
            self._log.warning(
                "%d of them swallowed the cancellation and are left running: %s. Let CancelledError pass in async "
                "interceptors and callbacks.",
                len(stubborn),
                _names(stubborn),
            )
            for task in stubborn:
                self._do_not_wait_for(task)


def _names(tasks: list[asyncio.Task[Any]]) -> str:
    return ", ".join(sorted({task.get_name() for task in tasks}))
