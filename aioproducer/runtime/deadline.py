"""A deadline that can be moved earlier while others wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

__all__ = ["Deadline"]


class Deadline:
    """A moment on the event loop's clock, ``seconds`` after it was created."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self.seconds = seconds
        self._loop = loop
        self._at = loop.time() + seconds
        self._limits: set[asyncio.Timeout] = set()

    def bring_forward(self, seconds: float) -> None:
        """Move it to ``seconds`` from now, unless it is earlier already; current waiters also end then."""
        at = self._loop.time() + seconds
        if at >= self._at:
            return
        self._at, self.seconds = at, seconds
        for limit in self._limits:
            if not limit.expired():
                limit.reschedule(at)

    @asynccontextmanager
    async def limit(self) -> AsyncGenerator[None]:
        """Raises TimeoutError if the awaits within it have not ended by then."""
        async with asyncio.timeout_at(self._at) as limit:
            self._limits.add(limit)
            try:
                yield
            finally:
                self._limits.discard(limit)
