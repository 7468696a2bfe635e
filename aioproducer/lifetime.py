"""What runs in one event loop and one process, from its start until it is stopped or dies.

If the task that runs it ends without being asked to - a bug, a foreign ``task.cancel()`` - it *dies*: every wait ends, and
every later call fails with the cause. Nothing is ever left waiting for a task that is gone.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

from aioproducer.errors import ForkedProcess, ProducerClosed, ProducerDied, ProducerStateError, WrongEventLoop

__all__ = ["Lifetime", "Refusals"]

logger = logging.getLogger("aioproducer")

_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


class Refusals(NamedTuple):
    """The sentences that say why it cannot be used."""

    dead: str  # {what} is put in: what happened to its task
    cancelled: str
    forked: str  # {here} and {there} are put in: the ids of the fork and of the process that started it
    closed: str
    elsewhere: str


class Lifetime:
    """To be created in a running event loop. Subclasses say what runs, and what else ends when it dies."""

    refusals: ClassVar[Refusals]

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
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
        """A task that is cancelled before its first step runs nothing, not even its clean-up."""
        self._die(None if task.cancelled() else task.exception())

    def _die(self, cause: BaseException | None) -> None:
        """End every wait, and refuse every later call; nothing happens if it is being stopped."""
        if self._stopping or self.died is not None:
            return
        is_cancelled = cause is None or isinstance(cause, asyncio.CancelledError)
        refusals = self.refusals
        self.died = ProducerDied(refusals.cancelled if is_cancelled else refusals.dead.format(what=f"raised {cause!r}"))
        self.died.__cause__ = cause
        logger.error("%s", self.died, exc_info=cause)
        try:
            self._give_up(self.died)
        finally:
            self._interrupt()

    def _give_up(self, error: ProducerDied) -> None:
        """Fail with this error whatever waits for an outcome."""

    @contextmanager
    def interrupting(self, limit: asyncio.Timeout) -> Generator[None]:
        """Let the end of this end the wait: its timeout then expires at once, and `refusal` says why."""
        self._waiting.add(limit)
        try:
            yield
        finally:
            self._waiting.discard(limit)

    def _interrupt(self) -> None:
        for limit in list(self._waiting):
            if not limit.expired():  # one that has just run out, and whose task has not run yet, cannot be moved
                limit.reschedule(self.loop.time())
        self._waiting.clear()

    @property
    def is_usable(self) -> bool:
        """Whether it can be used, from here and now."""
        return (
            not self.closing
            and self.died is None
            and self._forks == _forks
            and asyncio._get_running_loop() is self.loop
        )

    @property
    def is_forked(self) -> bool:
        """Whether this process is a fork of the one that started it."""
        return self._forks != _forks

    def refusal(self) -> ProducerStateError:
        """Why it is not usable."""
        if self.is_forked:
            return ForkedProcess(self.refusals.forked.format(there=self._pid, here=os.getpid()))
        if self.died is not None:
            fresh = ProducerDied(str(self.died))
            fresh.__cause__ = self.died.__cause__
            return fresh
        return ProducerClosed(self.refusals.closed) if self.closing else WrongEventLoop(self.refusals.elsewhere)
