"""The listener that a `TransactionManager` notifies of its decisions."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from aioproducer.errors import KafkaError
from aioproducer.types import TopicPartition

__all__ = ["TransactionListener"]


class TransactionListener(Protocol):
    """Carries out the decisions of a `TransactionManager`. All methods are called in the middle of a decision."""

    def wake(self) -> None:
        """There may be a next request now."""
        ...

    def partitions_added(self, partitions: Collection[TopicPartition]) -> None:
        """Batches for these may be drained now."""
        ...

    def producer_id_changed(self, producer_id: int, epoch: int) -> None:
        """All sequences restart at 0, under this id and epoch."""
        ...

    def drop_undrained(self, error: KafkaError) -> None:
        """Unsent batches must fail; sent ones continue until their outcome is known."""
        ...

    def fail_all(self, error: KafkaError) -> None:
        """Nothing will be sent any more."""
        ...
