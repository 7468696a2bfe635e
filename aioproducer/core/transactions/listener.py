"""Whom a `TransactionManager` notifies of its decisions."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from aioproducer.errors import KafkaError
from aioproducer.types import TopicPartition

__all__ = ["TransactionListener"]


class TransactionListener(Protocol):
    """What follows from the decisions of a `TransactionManager`. All of it is called in the middle of a decision."""

    def wake(self) -> None:
        """There may be a next request now."""
        ...

    def partitions_added(self, partitions: Collection[TopicPartition]) -> None:
        """Batches for these may be drained now."""
        ...

    def producer_id_changed(self, producer_id: int, epoch: int) -> None:
        """All sequences begin at 0, under this id and epoch."""
        ...

    def drop_undrained(self, error: KafkaError) -> None:
        """Batches that never left are to fail; those that did are to go on until their fate is known."""
        ...

    def fail_all(self, error: KafkaError) -> None:
        """Nothing will be sent any more."""
        ...
