"""A Signal wakes all its waiters; they do not depend on each other."""

from __future__ import annotations

import asyncio

__all__ = ["Signal"]


class Signal:
    """Something may have changed. Like a condition variable: each waiter checks its own condition again."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiters: dict[asyncio.Future[bool], None] = {}

    def notify_all(self) -> None:
        """Wake all current waiters. Costs nothing if there are none."""
        if self._waiters:
            waiters, self._waiters = self._waiters, {}
            for waiter in waiters:
                _settle(waiter, True)

    async def wait(self, until: float | None) -> bool:
        """Wait for `notify_all`; returns False if ``until`` (the event loop's time) comes first.

        Cancellation: nothing is left behind.
        """
        waiter: asyncio.Future[bool] = self._loop.create_future()
        self._waiters[waiter] = None
        timer = None if until is None else self._loop.call_at(until, _settle, waiter, False)
        try:
            return await waiter
        finally:
            self._waiters.pop(waiter, None)
            if timer is not None:
                timer.cancel()


def _settle(waiter: asyncio.Future[bool], notified: bool) -> None:
    if not waiter.done():
        waiter.set_result(notified)
