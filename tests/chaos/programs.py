"""The simulation's programs on real time: they send until they are stopped."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from typing import Final

from aioproducer import Producer
from aioproducer.errors import KafkaError
from tests.simulation.ledger import Transaction
from tests.simulation.workload import Callers, Transactions

__all__ = ["EndlessCallers", "EndlessTransactions", "WallClock"]

#: Seconds before a producer is replaced.
_REOPEN_S: Final = 0.3


class WallClock:
    """Seconds since the run began, and the wall clock."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def time(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000


class EndlessCallers(Callers):
    """Callers that share a producer until ``is_over``."""

    is_over = False

    async def send(self, producer: Producer, count: int) -> None:
        """Run this number of callers until ``is_over``."""
        await self.run(producer, count, 0)

    def _goes_on(self, name: str, records: int) -> bool:
        return not self.is_over


class EndlessTransactions(Transactions):
    """Transactions one after the other until ``is_over``; a producer that cannot go on is replaced."""

    is_over = False
    reopened = 0

    async def send(self, make: Callable[[], Producer], name: str, rest_s: float = 0.0) -> None:
        """Run transactions; before each new producer, which fences a rival, ``rest_s`` seconds pass."""
        numbers = itertools.count()
        while not self.is_over:
            await asyncio.sleep(rest_s)
            try:
                async with make() as producer:
                    await self._with_producer(producer, name, numbers)
            except KafkaError as error:  # the producer did not get an id, or could not abort
                self._story.add(self._loop.time(), f"{name} has to open a producer again ({type(error).__name__})")
            self.reopened += not self.is_over
            await asyncio.sleep(_REOPEN_S)

    async def _with_producer(self, producer: Producer, name: str, numbers: itertools.count[int]) -> None:
        while not self.is_over:
            await asyncio.sleep(self._dice.seconds(0.0, self._pause_s))
            if not await self._transaction(producer, Transaction(f"{name} transaction {next(numbers)}"), name):
                return
