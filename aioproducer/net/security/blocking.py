"""Runs blocking work in separate threads, so that neither the event loop nor the program's threads wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from threading import Thread
from typing import Any, TypeVar, cast

__all__ = ["Blocking", "in_thread"]

_T = TypeVar("_T")


class Blocking:
    """One kind of work, with a limit on how many run at a time.

    Abandoned work counts until its thread has ended: otherwise each attempt to reach a silent peer would leave one more
    thread behind. An `anyio.CapacityLimiter` forgets such threads.
    """

    def __init__(self, most: int) -> None:
        self._free = asyncio.Semaphore(most)

    async def run(self, function: Callable[..., _T], *args: Any) -> _T:
        """Call the function and return its result. Cancellation: the thread continues; its result is discarded."""
        await self._free.acquire()
        return await in_thread(function, *args, _ended=self._free.release)


async def in_thread(function: Callable[..., _T], *args: Any, _ended: Callable[[], object] | None = None) -> _T:
    """Call the function in a new thread that does not keep the interpreter alive.

    Raises what the function raises. Cancellation: the thread continues; its result is discarded.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[BaseException | None, Any]] = loop.create_future()
    context = copy_context()

    def finish(outcome: tuple[BaseException | None, Any]) -> None:
        if _ended is not None:
            _ended()
        if not done.done():
            done.set_result(outcome)

    def work() -> None:
        try:
            outcome: tuple[BaseException | None, Any] = (None, context.run(function, *args))
        except BaseException as error:  # every error goes to the waiter
            outcome = (error, None)
        with suppress(RuntimeError):  # the loop is closed: nothing waits any more
            loop.call_soon_threadsafe(finish, outcome)

    try:
        Thread(target=work, name="aioproducer-login", daemon=True).start()
    except BaseException:
        if _ended is not None:
            _ended()
        raise
    error, result = await done
    if error is not None:
        try:
            raise error
        finally:
            del error  # avoids a cycle of frame and exception
    return cast("_T", result)
