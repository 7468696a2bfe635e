"""An object that runs in one event loop and one process, from its start until it is stopped or dies.

If its task ends unexpectedly (a bug, or ``task.cancel()`` by other code) it *dies*: every wait ends, and every later call
fails with the cause. Nothing is ever left waiting for a task that has ended.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

from aioproducer.errors import ForkedProcess, ProducerClosed, ProducerDied, ProducerStateError, WrongEventLoop
from aioproducer.runtime.log import ClientLog

__all__ = ["Lifetime", "Refusals", "no_event_loop"]

_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


def no_event_loop() -> WrongEventLoop:
    """The error for a call without a running asyncio event loop, with what runs instead, if known, and what works there."""
    if _is_trio():
        return WrongEventLoop(
            "The producer needs asyncio, and this is trio. Use SyncProducer in a worker thread, "
            "`await trio.to_thread.run_sync(producer.send, topic, value)`. A program that uses anyio can also run on its "
            "asyncio backend, anyio.run(main, backend='asyncio')."
        )
    return WrongEventLoop(
        "The producer needs a running asyncio event loop, but none is running in this thread. Run the program with "
        "asyncio.run(main()), or use SyncProducer, which needs none."
    )


def _is_trio() -> bool:
    """Whether this is called in a task of trio, which is not imported for that."""
    trio = sys.modules.get("trio")
    if trio is None:
        return False
    try:
        trio.lowlevel.current_task()
    except RuntimeError:
        return False
    return True


class Refusals(NamedTuple):
    """The messages that say why it cannot be used."""

    dead: str  # {what}: what happened to its task
    cancelled: str
    forked: str  # {here} and {there}: the ids of the fork and of the process that started it
    closed: str
    elsewhere: str
    ended: str  # its event loop is closed


class Lifetime:
    """Must be created in a running event loop; else raises `WrongEventLoop`.

    Subclasses define what runs, and what else ends when it dies.
    """

    refusals: ClassVar[Refusals]

    def __init__(self, log: ClientLog) -> None:
        self.log = log
        loop = asyncio._get_running_loop()
        if loop is None:
            raise no_event_loop()
        self.loop = loop
        self.died: ProducerDied | None = None
        self.closing = False
        self._stopping = False
        self._task: asyncio.Task[None] | None = None
        self._waiting: set[asyncio.Timeout] = set()
        self._forks = _forks
        self._pid = os.getpid()

    def _run_in_task(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._task = self.loop.create_task(work, name=name)
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A task that is cancelled before its first step runs nothing, not even its cleanup."""
        self._die(None if task.cancelled() else task.exception())

    def _die(self, cause: BaseException | None) -> None:
        """End every wait, and refuse every later call; nothing happens if it is being stopped."""
        if self._stopping or self.died is not None:
            return
        is_cancelled = cause is None or isinstance(cause, asyncio.CancelledError)
        refusals = self.refusals
        self.died = ProducerDied(refusals.cancelled if is_cancelled else refusals.dead.format(what=f"raised {cause!r}"))
        self.died.__cause__ = cause
        self.log.error("%s", self.died, exc_info=None if is_cancelled else cause)  # a cancellation's says nothing more
        try:
            self._give_up(self.died)
        finally:
            self._interrupt()

    def _give_up(self, error: ProducerDied) -> None:
        """Fail everything that waits for an outcome with this error."""

    def forsake(self) -> None:
        """Its event loop has ended, so none of its tasks will ever run again: expect nothing of them any more."""
        self._stopping = self.closing = True

    @contextmanager
    def interrupting(self, limit: asyncio.Timeout) -> Generator[None]:
        """End the wait when this ends: its timeout then expires at once, and `refusal` says why."""
        self._waiting.add(limit)
        try:
            yield
        finally:
            self._waiting.discard(limit)

    def _interrupt(self) -> None:
        for limit in list(self._waiting):
            if not limit.expired():  # an expired timeout whose task has not run yet cannot be rescheduled
                limit.reschedule(self.loop.time())
        self._waiting.clear()

    @property
    def is_usable(self) -> bool:
        """Whether it can be used here and now."""
        return (
            not self.closing
            and self.died is None
            and self._forks == _forks
            and asyncio._get_running_loop() is self.loop
        )

    @property
    def is_over(self) -> bool:
        """Whether it has died, or is being stopped."""
        return self._stopping or self.died is not None

    @property
    def is_forked(self) -> bool:
        """Whether this process is a fork of the one that started it."""
        return self._forks != _forks

    def refusal(self) -> ProducerStateError:
        """Why it is not usable."""
        if self.is_forked:
            return ForkedProcess(self.refusals.forked.format(there=self._pid, here=os.getpid()))
        if self.loop.is_closed():
            ended = WrongEventLoop(self.refusals.ended)
            ended.__cause__ = self.died
            return ended
        if self.died is not None:
            fresh = ProducerDied(str(self.died))
            fresh.__cause__ = self.died.__cause__
            return fresh
        if self.closing:
            return ProducerClosed(self.refusals.closed)
        return no_event_loop() if asyncio._get_running_loop() is None else WrongEventLoop(self.refusals.elsewhere)
