"""Shares ``buffer_memory`` among the senders, strictly in the order of their requests.

The invariant: at every await, ``free`` plus the bytes handed out equal ``total``, even after cancellations and timeouts.
There is no overtaking: while a sender waits, or was granted memory and has not run yet, a newcomer waits too. (Java's pool
lets a newcomer take memory for which a waiter is about to wake up.)

Memory is counted, not held: Python allocates it. The count only guarantees the bound.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from aioproducer.hot import Budget

__all__ = ["BufferPool", "PoolClosed", "Ticket"]

#: At least this many abandoned tickets may stay in the queue.
_SPARE_TICKETS = 64

#: In a closed pool every newcomer has this many bytes in line ahead, forever.
_CLOSED = 1 << 32


class PoolClosed(Exception):
    """The pool was closed while a sender waited for its memory."""


class Ticket:
    """A place in the queue for ``size`` bytes; ``waits_since`` is None if they were free at once."""

    __slots__ = ("granted", "size", "waits_since")

    waits_since: float | None

    def __init__(self, size: int, granted: asyncio.Future[None]) -> None:
        self.size = size
        self.granted = granted
        self.waits_since = None

    @property
    def is_granted(self) -> bool:
        """Whether the holder owns the bytes now."""
        return self.granted.done() and not self.granted.cancelled() and self.granted.exception() is None


PressureCallback: TypeAlias = Callable[[], object]


class BufferPool(Budget):
    """An awaitable, first-come-first-served share of a number of bytes (Java's BufferPool).

    ``on_pressure`` is called when the first sender begins to wait, ``on_waited`` with the seconds that each one has waited.
    """

    def __init__(
        self,
        total: int,
        on_pressure: PressureCallback = lambda: None,
        on_waited: Callable[[float], object] = lambda seconds: None,
    ) -> None:
        super().__init__(total)
        self.total = total
        self.grants = 0
        self._on_pressure = on_pressure
        self._on_waited = on_waited
        self._queue: deque[Ticket] = deque()  # may hold abandoned tickets; `line` does not count them
        self._closed = False

    @property
    def waiting(self) -> int:
        """The number of senders that wait for memory."""
        return self.line - _CLOSED if self._closed else self.line

    @property
    def used(self) -> int:
        """The number of bytes that are handed out."""
        return self.total - self.free

    def try_acquire(self, size: int) -> bool:
        """Take the bytes if they are free and no sender waits for memory."""
        if size > self.free or self.line:
            return False
        self.free -= size
        return True

    def join(self, size: int) -> Ticket:
        """Take a place in the queue now. Follow it with `wait`, or with `leave`."""
        ticket = Ticket(size, asyncio.get_running_loop().create_future())
        if self._closed:
            ticket.granted.set_exception(PoolClosed())
            self.line += 1
            return ticket
        self.line += 1
        self._queue.append(ticket)
        self._grant()
        if not ticket.granted.done():
            ticket.waits_since = ticket.granted.get_loop().time()
        if self._queue and self._queue[0] is ticket:
            self._on_pressure()
        return ticket

    async def wait(self, ticket: Ticket) -> None:
        """Wait until the bytes are granted; there is no await between the grant taking effect and the return.

        Raises PoolClosed. Cancellation: gives back the place in the queue, or the bytes if they were granted already.
        """
        try:
            await ticket.granted
            if self._closed:  # after the grant: a record that is appended now would never be sent
                raise PoolClosed
        except BaseException:
            self.leave(ticket)
            raise
        self._note_wait(ticket)
        self.line -= 1

    def _note_wait(self, ticket: Ticket) -> None:
        if ticket.waits_since is not None:
            self._on_waited(ticket.granted.get_loop().time() - ticket.waits_since)

    def leave(self, ticket: Ticket) -> None:
        """Give up a place in the queue, or the bytes that were granted for it."""
        self._note_wait(ticket)
        self.line -= 1
        if ticket.is_granted:
            self.release(ticket.size)
        else:
            ticket.granted.cancel()
            if len(self._queue) > 2 * self.line + _SPARE_TICKETS:
                self._queue = deque(each for each in self._queue if not each.granted.done())
        self._grant()

    def release(self, size: int) -> None:
        """Give bytes back; wakes exactly those waiters at the head of the queue whose bytes are now available."""
        self.free += size
        if self._queue:
            self._grant()

    def close(self) -> None:
        """Fail every sender that waits or has not used its grant yet, and every newcomer, with PoolClosed."""
        if not self._closed:
            self._closed = True
            self.line += _CLOSED
        for ticket in self._queue:
            if not ticket.granted.done():
                ticket.granted.set_exception(PoolClosed())
        self._queue.clear()

    def _grant(self) -> None:
        queue = self._queue
        while queue:
            ticket = queue[0]
            if not ticket.granted.done():
                if ticket.size > self.free:
                    return
                self.free -= ticket.size
                self.grants += 1
                ticket.granted.set_result(None)
            queue.popleft()
