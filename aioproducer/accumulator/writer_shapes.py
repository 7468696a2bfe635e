"""Gives the first batches of each partition the shape by which a broker can tell who wrote them.

Only a producer that is attached to the transaction of another process needs it; see `core.transactions.writer_shape`.
"""

from __future__ import annotations

from collections.abc import Sequence

from aioproducer.accumulator.outcomes import Outcomes
from aioproducer.accumulator.queues import PartitionQueue
from aioproducer.core.batches import ProducerBatch
from aioproducer.core.division import divided_by_count
from aioproducer.core.transactions.writer_shape import FirstBatches
from aioproducer.types import TopicPartition

__all__ = ["WriterShapes"]


class WriterShapes:
    """Knows how many of each partition's first batches have left, and cuts those that follow."""

    def __init__(self, shape: Sequence[int], outcomes: Outcomes) -> None:
        """``shape`` is how many records the first batches of each partition have at most."""
        self._shape = shape
        self._outcomes = outcomes
        self._first_batches: dict[str, FirstBatches] = {}
        self._left: dict[TopicPartition, int] = {}

    def limit(self, topic: str, row_size: int, limit: int) -> int:
        """How many bytes are to go into the topic's next batch, at most ``limit``; see `FirstBatches`."""
        first = self._first_batches_of(topic)
        return limit if first.are_over else min(limit, first.limit(row_size))

    def encoded(self, partition: TopicPartition, records: int, size: int) -> None:
        """Note a batch that was encoded elsewhere."""
        self._first_batches_of(partition.topic).take(partition.partition, records, size)

    def cut(self, queue: PartitionQueue) -> None:
        """Divide the queue's first batch if it is one of those that have a shape, and too large for it."""
        shape = self._shape[self._left.get(queue.partition, 0) :]
        head = queue.batches[0]
        if not shape or head.base_sequence >= 0 or head.is_sealing:  # it has left in its shape, or a worker has it
            return
        if head.count > shape[0]:
            if head.builder is not None:
                head.close()
            queue.batches.popleft()
            self._outcomes.substitute(queue, head, divided_by_count(head, shape))

    def drained(self, batch: ProducerBatch) -> None:
        """Note a batch that leaves; those that leave again count once."""
        if batch.attempts == 0:
            self._left[batch.partition] = self._left.get(batch.partition, 0) + 1

    def forget(self, partition: TopicPartition) -> None:
        """Begin anew with the partition, if it ever comes again."""
        self._left.pop(partition, None)

    def _first_batches_of(self, topic: str) -> FirstBatches:
        found = self._first_batches.get(topic)
        if found is None:
            found = self._first_batches[topic] = FirstBatches(self._shape)
        return found
