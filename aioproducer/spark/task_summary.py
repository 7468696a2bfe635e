"""What a task tells the driver of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from aioproducer.core.transaction_handle import TransactionHandle
from aioproducer.types import TopicPartition, Written

__all__ = ["TaskSummary"]


@dataclass(frozen=True, slots=True)
class TaskSummary:
    """Rows and bytes (of keys and values) that Kafka has acknowledged to one task.

    The rest is of a job that is written exactly once: the transaction, what was ``written`` to each partition, and whose
    rows these are: ``query`` and ``batch`` of a stream. ``skipped``: the marker says that an earlier run has committed them.
    """

    rows: int = 0
    size: int = 0
    handle: TransactionHandle | None = None
    written: Mapping[TopicPartition, Written] = field(default_factory=dict[TopicPartition, Written])
    query: str = ""
    batch: int = 0
    skipped: bool = False
