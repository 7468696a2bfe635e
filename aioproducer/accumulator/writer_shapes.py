"""Gives the first batches of each partition a shape that lets a broker identify their writer.

Only a producer that is attached to the transaction of another process needs it; see `core.transactions.writer_shape`.
"""

from __future__ import annotations

from collections.abc import Sequence

from aioproducer.accumulator.outcomes import Outcomes
from aioproducer.accumulator.partition_queue import PartitionQueue
from aioproducer.core.batches import ProducerBatch
from aioproducer.core.division import divided_by_count
from aioproducer.core.transactions.writer_shape import FirstBatches
from aioproducer.types import TopicPartition

__all__ = ["WriterShapes"]


class WriterShapes:
    """Counts the first batches of each partition that were sent, and divides the next ones."""

    def __init__(self, shape: Sequence[int], outcomes: Outcomes) -> None:
        """``shape`` gives the maximum number of records in the first batches of each partition."""
        self._shape = shape
        self._outcomes = outcomes
        self._first_batches: dict[str, FirstBatches] = {}
        self._left: dict[TopicPartition, int] = {}

    def limit(self, topic: str, row_size: int, limit: int) -> int:
        """Return how many bytes may go into the topic's next batch, at most ``limit``; see `FirstBatches`."""
        first = self._first_batches_of(topic)
        return limit if first.are_over else min(limit, first.limit(row_size))

    def encoded(self, partition: TopicPartition, records: int, size: int) -> None:
        """Note a batch that was encoded elsewhere."""
        self._first_batches_of(partition.topic).take(partition.partition, records, size)

    def cut(self, queue: PartitionQueue) -> None:
        """Divide the queue's first batch if it must have a shape and is too large for it."""
        shape = self._shape[self._left.get(queue.partition, 0) :]
        head = queue.batches[0]
        if not shape or head.base_sequence >= 0 or head.is_sealing:  # sent in its shape, or with a worker
            return
        if head.count > shape[0]:
            if head.builder is not None:
                head.close()
            queue.batches.popleft()
            self._outcomes.substitute(queue, head, divided_by_count(head, shape))

    def drained(self, batch: ProducerBatch) -> None:
        """Note a batch that is sent; retries of a batch count once."""
        if batch.attempts == 0:
            self._left[batch.partition] = self._left.get(batch.partition, 0) + 1

    def forget(self, partition: TopicPartition) -> None:
        """Forget the partition's counts, which start again if it is used again."""
        self._left.pop(partition, None)

    def _first_batches_of(self, topic: str) -> FirstBatches:
        found = self._first_batches.get(topic)
        if found is None:
            found = self._first_batches[topic] = FirstBatches(self._shape)
        return found
