"""Cancels a coroutine at each of the places where it waits, one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import Any

__all__ = ["Steps", "at_every_step"]


class Steps:
    """Drives a coroutine by hand and cancels it where it waits for the ``at``-th time, as Task.cancel() would."""

    def __init__(self, work: Coroutine[Any, Any, object], at: int) -> None:
        self._work = work
        self._at = at
        self.reached = False

    def __await__(self) -> Generator[Any, Any, object]:
        steps = 0
        send: Callable[[], Any] = partial(self._work.send, None)
        while True:
            try:
                waits_for = send()
            except StopIteration as done:
                return done.value
            steps += 1
            if steps == self._at:
                self.reached = True
                if asyncio.isfuture(waits_for):
                    waits_for.cancel()
            try:
                yield waits_for
            except BaseException as error:
                send = _throw(self._work, error)
            else:
                cancelled = steps == self._at and not asyncio.isfuture(waits_for)
                send = _throw(self._work, asyncio.CancelledError()) if cancelled else partial(self._work.send, None)


def _throw(work: Coroutine[Any, Any, object], error: BaseException) -> Callable[[], Any]:
    return lambda: work.throw(error)


async def at_every_step(run: Callable[[int], Awaitable[bool]]) -> int:
    """Run again and again, cancelled one step later each time, until that is too late; returns how many steps there are."""
    for at in range(1, 200):
        if not await run(at):
            return at - 1
    raise AssertionError("it never came to an end")
