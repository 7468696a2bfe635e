"""Decides how long a batch waits for more records.

A batch lingers only while an earlier batch of its partition is in flight: a lone record is sent at once, and under load
batches fill while the previous one is in flight, or while the Sender pauses because there are too many to send
(`Pause`). ``linger_ms`` limits the wait. It ends early when the batch is full, when memory is exhausted, and when a
flush or close waits.
"""

from __future__ import annotations

from aioproducer.accumulator.buffer_pool import BufferPool
from aioproducer.accumulator.partition_queue import PartitionQueue
from aioproducer.core.batches import ProducerBatch

__all__ = ["Linger"]


class Linger:
    """The policy for the batches of all partitions."""

    def __init__(self, linger_s: float, pool: BufferPool) -> None:
        self._linger_s = linger_s
        self._pool = pool
        self._suspensions = 0

    def suspend(self) -> None:
        """Let nothing linger until `resume`: a flush or close waits. Each call needs its `resume`."""
        self._suspensions += 1

    def resume(self) -> None:
        """One flush is over."""
        self._suspensions -= 1

    def may_fill(self, queue: PartitionQueue, head: ProducerBatch) -> bool:
        """Whether ``head``, the first batch of the queue, may wait for more records."""
        return (
            len(queue.batches) == 1
            and not head.is_full
            and not head.retry_at
            and not self._suspensions
            and not self._pool.waiting
        )

    def end(self, queue: PartitionQueue, head: ProducerBatch) -> float:
        """The time when ``head`` stops waiting for more records; 0.0: it does not wait.

        ``head`` is the first batch of a queue that has batches in flight.
        """
        if not self.may_fill(queue, head):
            return 0.0
        return head.created_at + self._linger_s
