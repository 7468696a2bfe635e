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

    ``query`` and ``batch`` of a stream say whose rows these are; ``offsets`` are the first and the last one that each
    partition got, ``retries`` the records that were sent more than once, ``dead_letters`` those that are not among the rows,
    as they went to a topic of their own, ``seconds`` how long it took. The rest is of a job that is written exactly once:
    the transaction, and what was ``written`` to each partition. ``skipped``: the marker says that an earlier run has
    committed these rows.
    """

    rows: int = 0
    size: int = 0
    handle: TransactionHandle | None = None
    written: Mapping[TopicPartition, Written] = field(default_factory=dict[TopicPartition, Written])
    query: str = ""
    batch: int = 0
    skipped: bool = False
    offsets: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict[TopicPartition, tuple[int, int]])
    retries: int = 0
    dead_letters: int = 0
    seconds: float = field(default=0.0, compare=False)
