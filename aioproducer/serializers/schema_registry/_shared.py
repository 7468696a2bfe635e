"""Results that several tasks of an event loop share: requests in flight, and a bounded cache of their outcomes."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar, cast

from aioproducer.serializers.schema_registry._api import SchemaRegistryError

__all__ = ["CLOSED", "RecentlyUsed", "SingleFlight"]

_CANCELLED = "The request to the schema registry was cancelled."
CLOSED = "The SchemaRegistryClient is closed: create a new one, and close it after the producers that use it."

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
T = TypeVar("T")


class RecentlyUsed(Generic[K, V]):
    """A cache of at most ``capacity`` entries; the least recently used one is dropped."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._entries: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        """The entry, None if there is none."""
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    def put(self, key: K, value: V) -> None:
        """Add or replace an entry."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._capacity:
            self._entries.popitem(last=False)

    def __len__(self) -> int:
        return len(self._entries)


class _Flight:
    """A task, and the number of callers that wait for it."""

    __slots__ = ("task", "waiters")

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task = task
        self.waiters = 0


class SingleFlight:
    """Runs one task for all concurrent calls with the same key.

    A cancelled call does not cancel the task while another call waits for it. The last one cancels it.
    """

    def __init__(self) -> None:
        self._flights: dict[Hashable, _Flight] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_closed = False

    async def run(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of ``work()``, or of the call with this key that is running.

        Raises the error of the work, and `SchemaRegistryError` if `close` ended it. Cancellation: see the class.
        """
        if self._is_closed:
            raise SchemaRegistryError(CLOSED)
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = self._start(key, work)
        flight.waiters += 1
        try:
            await asyncio.wait((flight.task,))
        finally:
            flight.waiters -= 1
            if not flight.waiters and not flight.task.done():
                self._forget(key, flight)
                flight.task.cancel()
        if flight.task.cancelled():
            raise SchemaRegistryError(CLOSED if self._is_closed else _CANCELLED)
        return cast("T", flight.task.result())

    async def close(self) -> None:
        """Cancel all tasks and wait for their end. Cancellation: they are cancelled, and end without being waited for."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, Any]]) -> _Flight:
        task = asyncio.get_running_loop().create_task(work(), name="aioproducer schema registry request")
        flight = _Flight(task)
        self._tasks.add(task)

        def ended(task: asyncio.Task[Any]) -> None:
            self._tasks.discard(task)
            self._forget(key, flight)
            if not task.cancelled():
                task.exception()  # marks it as retrieved: the last waiter may have been cancelled in the same turn

        task.add_done_callback(ended)
        return flight

    def _forget(self, key: Hashable, flight: _Flight) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]
