"""The batches of one partition that are not done: those that wait, in order, and those in flight."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from uuid import UUID

from aioproducer.core.batches import ProducerBatch
from aioproducer.types import TopicPartition

__all__ = ["PartitionQueue"]


class PartitionQueue:
    """The batches of one partition: the waiting ones, in order, and those in flight."""

    __slots__ = ("batches", "expiry_armed", "in_flight", "lock", "partition", "place", "timer", "topic_id", "waiting")

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.batches: deque[ProducerBatch] = deque()
        self.in_flight: list[ProducerBatch] = []
        self.topic_id: UUID | None = None  # of the topic that the batches in flight were sent to
        self.lock: asyncio.Lock | None = None  # created when a record must wait for memory
        self.waiting = 0  # how many hold the lock or wait for it; between two of them it is not locked
        self.place: OrderedDict[PartitionQueue, None] | None = None  # where `Queues` has put it
        self.expiry_armed = False  # one entry in the expiries at most, due no later than the oldest batch expires
        self.timer = 0.0  # when the pending entry in the timers is due; later entries are stale

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in it, in flight, or waiting to get in."""
        return not self.batches and not self.in_flight and not self.waiting

    @property
    def oldest(self) -> ProducerBatch | None:
        """The batch that will expire first, of those without an outcome."""
        open_ended = [batch for batch in self.in_flight if not batch.given_up]
        in_flight = min(open_ended, key=lambda batch: batch.created_at) if open_ended else None  # retried ones are last
        if not self.batches or (in_flight is not None and in_flight.created_at <= self.batches[0].created_at):
            return in_flight
        return self.batches[0]

    def insert(self, batch: ProducerBatch) -> None:
        """Return a batch to its place among the waiting ones."""
        at = 0
        for waiting in self.batches:
            if waiting.ordinal > batch.ordinal:
                break
            at += 1
        self.batches.insert(at, batch)

    def remove_from_flight(self, batch: ProducerBatch) -> None:
        """The batch is no longer in flight."""
        batch.is_in_flight = False
        if batch in self.in_flight:
            self.in_flight.remove(batch)
