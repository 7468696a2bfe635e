"""A clock for an event loop, which a test puts forward: time-outs are tested without waiting for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

__all__ = ["VirtualClock"]

#: Turns of the event loop after each step of `VirtualClock.run`: a timer's callback runs in the first, the task that it
#: wakes in the second, and a task that waits for that one in the third; the others are for tasks of the caller.
_TURNS: Final = 10


class VirtualClock:
    """The clock of the running event loop, with the time that a test has added.

    ``loop.time()`` is what it would be, plus everything that `advance` and `run` have added, so ``asyncio.timeout``,
    ``asyncio.sleep`` and each time-out of a producer end as if that time had passed. Nothing else changes: real time
    passes as well, and the wall clock, which gives records their timestamps, stays as it is. It takes effect in the event
    loop that runs when it is created, or when it is first called; `restore`, or the end of a ``with`` block, gives that
    loop its clock back.

    uvloop's clock cannot be replaced: run such a test in asyncio's event loop.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._real: Callable[[], float] = float
        self._added = 0.0
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        self._replace_clock_of(loop)

    @property
    def added(self) -> float:
        """The seconds that were added to the clock of the current event loop."""
        return self._added

    def advance(self, seconds: float) -> None:
        """Let so much time be over at once. What is due then runs as soon as the caller awaits something.

        All timers that are due run in one turn of the event loop, in their order. Raises ValueError for a negative time, and
        RuntimeError without a running event loop, or if that is uvloop's.
        """
        if not seconds >= 0:
            raise ValueError(f"A clock only moves forward: advance() needs 0 or more seconds, not {seconds!r}.")
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._replace_clock_of(loop)
        self._added += seconds

    async def run(self, seconds: float, *, step_s: float = 1.0) -> None:
        """Let time pass in steps, so that what happens again and again (retries, pings) happens as often as it would.

        After each step the event loop turns ten times. A broker behind a socket may need longer: await the outcome of what
        it does. Cancellation: the clock stays where it is.
        """
        if not step_s > 0:
            raise ValueError(f"run() needs steps longer than 0 seconds, not {step_s!r}.")
        if not seconds >= 0:
            raise ValueError(f"A clock only moves forward: run() needs 0 or more seconds, not {seconds!r}.")
        left = seconds
        while left > 0:
            step = min(step_s, left)
            left -= step
            self.advance(step)
            for _ in range(_TURNS):
                await asyncio.sleep(0)

    def restore(self) -> None:
        """Give the event loop its clock back, which does not know the added time.

        Close producers first: timers keep their times, which the clock then reaches late.
        """
        loop, self._loop, self._added = self._loop, None, 0.0
        if loop is not None:
            setattr(loop, "time", self._real)  # noqa: B010 - type checkers refuse an assignment

    def _replace_clock_of(self, loop: asyncio.AbstractEventLoop) -> None:
        self.restore()
        if isinstance(getattr(loop.time, "__self__", None), VirtualClock):
            raise RuntimeError("The clock of this event loop is replaced already: use one VirtualClock at a time.")
        if not isinstance(loop, asyncio.BaseEventLoop):  # another loop's timers may not ask `time`
            raise RuntimeError(
                f"The clock of {type(loop).__module__}'s event loop cannot be replaced: run this test in asyncio's own "
                "event loop (asyncio.new_event_loop)."
            )
        self._loop, self._real = loop, loop.time
        setattr(loop, "time", self._time)  # noqa: B010 - as above

    def _time(self) -> float:
        return self._real() + self._added

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.restore()

    def __repr__(self) -> str:
        return f"<VirtualClock: {self._added:g} s added>"
