"""Callers that hand records over as the threads of `SyncProducer` do: between two turns of the event loop, here."""

from __future__ import annotations

import asyncio
from typing import Final

from aioproducer import Producer
from aioproducer.errors import KafkaError
from aioproducer.intake.hand_over import HandOver
from aioproducer.intake.sync_delivery import SyncDelivery, SyncDeliveryCallback
from tests.simulation.ledger import Entry
from tests.simulation.workload import Program

__all__ = ["Threads"]

_MOST_IN_BURST: Final = 40
#: Some bursts of such records are more than the event loop takes in one turn; where they have room, in bytes.
_LARGE: Final = 20_000
_MUCH_ROOM: Final = 1_000_000
#: Virtual seconds in which everything that was handed over is in a batch, or waits for memory or metadata.
_SOON_S: Final = 1.0


class Threads(Program):
    """Callers of one producer in other threads; each has its own order."""

    async def run(self, producer: Producer, hand_over: HandOver, count: int, records: int) -> None:
        """Run the callers until each has handed over its records."""
        if producer.config.buffer_memory > _MUCH_ROOM and self._dice.random.random() < 0.3:
            self._padding = _LARGE
        hand_over._thread = -1  # pyright: ignore[reportPrivateUsage]  # no caller runs in the loop's thread
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(self._thread(producer, hand_over, f"thread{number}", records))
        await asyncio.sleep(_SOON_S)
        if not hand_over.is_idle and not hand_over.waiting:
            self.problems.append("forgotten: records from threads wait, and nothing takes them")

    async def _thread(self, producer: Producer, hand_over: HandOver, name: str, records: int) -> None:
        while self._numbers.get(name, -1) + 1 < records:
            await asyncio.sleep(self._dice.seconds(0.0, self._pause_s))
            for _ in range(1 + int(self._dice.random.random() * _MOST_IN_BURST)):
                await self._enqueue(producer, hand_over, self._entry(name))

    async def _enqueue(self, producer: Producer, hand_over: HandOver, entry: Entry) -> None:
        """As `SyncProducer.enqueue`: a record that may be refused takes its turn behind those handed over before."""
        given = self._arguments(entry)
        handed = hand_over.put(
            entry.topic,
            entry.value,
            given["key"],
            given["headers"],
            None,
            given["timestamp_ms"],
            on_delivery=self._handed(entry),
        )
        if handed is not None:
            return
        try:
            await hand_over.settle(entry.topic)
            delivery = await producer.enqueue(entry.topic, entry.value, **given)
        except KafkaError as error:
            self._report(entry, None, error)
            return
        delivery.add_done_callback(self._watched(entry))

    def _handed(self, entry: Entry) -> SyncDeliveryCallback:
        # It may still wait for memory, for up to max_block_ms; so it is not one that must not run out of time.
        def done(delivery: SyncDelivery) -> None:
            error = delivery.exception()
            self._report(entry, None if error else delivery.result(), error)

        return done
