"""Fixtures of the tests on real Kafka: a load that records what it sent, and the broker's log."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from types import TracebackType
from typing import TYPE_CHECKING, Self

from aioproducer import Delivery, Producer
from aioproducer.record.reader import read_batches
from tests.conftest import until

if TYPE_CHECKING:
    from aioproducer.testing.kafka import Kafka


class Load:
    """Sends numbered records to each partition of a topic in turn while its block runs; leaving it awaits them all."""

    def __init__(self, producer: Producer, topic: str, partitions: int, per_second: int = 2000) -> None:
        self.sent: dict[int, list[bytes]] = defaultdict(list)
        self.offsets: dict[int, list[int]] = {}
        self._deliveries: dict[int, list[Delivery]] = defaultdict(list)
        self._producer = producer
        self._topic = topic
        self._partitions = partitions
        self._pause = 10 * partitions / per_second
        self.acknowledged = 0
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def wait_progress(self, records: int = 500) -> None:
        """Wait until so many more records have been sent and acknowledged."""
        goal = sum(map(len, self.sent.values())) + records
        await until(lambda: self.acknowledged >= goal, 120)

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._send())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._stopping.set()
        if kind is not None:
            self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=kind is not None)
        if kind is None:
            for partition, deliveries in self._deliveries.items():
                self.offsets[partition] = [(await delivery).offset for delivery in deliveries]

    async def _send(self) -> None:
        while not self._stopping.is_set():
            for _ in range(10):
                for partition in range(self._partitions):
                    value = b"%d" % len(self.sent[partition])
                    delivery = await self._producer.enqueue(
                        self._topic, value, partition=partition, on_delivery=self._delivered
                    )
                    self.sent[partition].append(value)
                    self._deliveries[partition].append(delivery)
            await asyncio.sleep(self._pause)

    def _delivered(self, delivery: Delivery) -> None:
        self.acknowledged += delivery.exception() is None

    def check(self, log: dict[int, list[bytes]]) -> None:
        """Fail unless the log holds exactly what was sent, in order, where the producer said it is."""
        for partition, sent in self.sent.items():
            found = log.get(partition, [])
            lost, doubled = len(set(sent) - set(found)), len(found) - len(set(found))
            what = f"partition {partition}: {len(sent)} sent, {len(found)} found, {lost} lost, {doubled} doubled"
            assert (lost, doubled) == (0, 0), what
            assert found == sent, f"{what}; some are out of order"
            reported = self.offsets[partition]
            assert [at for at in reported if at >= 0] == [at for at, _ in enumerate(sent) if reported[at] >= 0], what


def read_log(kafka: Kafka, topic: str) -> dict[int, list[bytes]]:
    """The values of each partition in order; every batch is read strictly, its CRC too."""
    return {
        partition: [record.value or b"" for raw in batches for batch in read_batches(raw) for record in batch.records]
        for partition, batches in kafka.admin.fetch_all(topic).items()
    }
