"""A program whose transactions are written by several attached producers, and ended by a TransactionCoordinatorClient."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from aioproducer import Producer
from aioproducer.core.transactions.handle import TransactionHandle
from aioproducer.errors import CommitUnknown, KafkaError
from aioproducer.transactions.client import TransactionCoordinatorClient
from tests.simulation.ledger import End, Transaction
from tests.simulation.workload import Program

__all__ = ["SharedTransactions"]

_COMMITS = 3


class SharedTransactions(Program):
    """One transaction after the other; each topic has a writer, because each partition must have only one."""

    async def run(
        self,
        client: TransactionCoordinatorClient,
        attach: Callable[[TransactionHandle, int], Producer],
        name: str,
        count: int,
    ) -> None:
        """Run this number of transactions."""
        for number in range(count):
            transaction = Transaction(f"{name} transaction {number}")
            self._ledger.transactions.append(transaction)
            try:
                handle = await client.init(name, timeout=30.0)
            except KafkaError as error:
                transaction.end = End.ABORTED  # nothing was written
                self._story.add(self._loop.time(), f"{transaction.name}: no handle ({type(error).__name__})")
                continue
            await self._one(client, attach, handle, transaction)
            self._story.add(self._loop.time(), f"{transaction.name}: {transaction.end.value}")

    async def _one(
        self,
        client: TransactionCoordinatorClient,
        attach: Callable[[TransactionHandle, int], Producer],
        handle: TransactionHandle,
        transaction: Transaction,
    ) -> None:
        writers = [self._write(attach(handle, number), topic, transaction) for number, topic in enumerate(self._topics)]
        reports = await asyncio.gather(*writers)
        is_whole = all(report is not None for report in reports)
        if is_whole and self._dice.random.random() < 0.8:
            if await self._commit(client, handle, [report for report in reports if report is not None]):
                transaction.end = End.COMMITTED
            return
        try:
            await client.abort(handle, timeout=60.0)
            transaction.end = End.ABORTED
        except KafkaError as error:
            self._story.add(self._loop.time(), f"{transaction.name}: the abort failed ({type(error).__name__})")

    async def _write(self, producer: Producer, topic: str, transaction: Transaction) -> Mapping[Any, Any] | None:
        """The writer's report; None if the transaction must not be committed."""
        try:
            async with producer:
                for _ in range(int(self._dice.random.random() * 5)):
                    if self._dice.random.random() < 0.3:
                        await asyncio.sleep(self._dice.seconds(0.0, self._pause_s))
                    entry = self._entry(f"writer of {topic}", topic)
                    transaction.entries.append(entry)
                    delivery = await producer.enqueue(topic, entry.value, **self._arguments(entry))
                    delivery.add_done_callback(self._watched(entry))
        except KafkaError as error:
            self._settle(transaction, error)
            return None
        return producer.written

    async def _commit(
        self, client: TransactionCoordinatorClient, handle: TransactionHandle, reports: list[Mapping[Any, Any]]
    ) -> bool:
        for _ in range(_COMMITS):
            try:
                await client.commit(handle, written=reports, timeout=30.0)
            except CommitUnknown:
                continue
            except KafkaError:
                return False
            return True
        return False
