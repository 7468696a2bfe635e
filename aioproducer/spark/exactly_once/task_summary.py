"""A task's report about its rows to the driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from aioproducer.core.transactions.handle import TransactionHandle
from aioproducer.spark.exactly_once.earlier_commit import EarlierCommit
from aioproducer.spark.exactly_once.fingerprint import Fingerprint
from aioproducer.spark.exactly_once.job_transaction import JobTransaction
from aioproducer.spark.exactly_once.task_failure import TaskFailure
from aioproducer.types import TopicPartition, Written

__all__ = ["TaskSummary"]


@dataclass(frozen=True, slots=True)
class TaskSummary:
    """Rows and bytes (of keys and values) that Kafka has acknowledged to one task.

    ``dead_letters`` went to their own topic; they are counted neither in the rows nor in ``size``. ``query`` and ``batch``
    identify a stream's rows. ``offsets`` are the first and the last one in each partition, ``retries`` counts the records
    that were sent more than once, ``seconds`` is the duration. The rest belongs to exactly-once jobs: the transaction, what
    was ``written`` to each partition, the ``contents`` of the rows that the task got, and the ``failure`` that kept it from
    writing them all. With an ``earlier`` commit of this batch the task has written nothing.
    """

    rows: int = 0
    size: int = 0
    transaction: JobTransaction | None = None
    written: Mapping[TopicPartition, Written] = field(default_factory=dict[TopicPartition, Written])
    query: str = ""
    batch: int = 0
    offsets: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict[TopicPartition, tuple[int, int]])
    retries: int = 0
    dead_letters: int = 0
    seconds: float = field(default=0.0, compare=False)
    contents: Fingerprint = field(default_factory=Fingerprint)
    earlier: EarlierCommit | None = None
    failure: TaskFailure | None = None

    @property
    def skipped(self) -> bool:
        """Whether nothing was written, because an earlier run has committed this batch."""
        return self.earlier is not None

    @property
    def handle(self) -> TransactionHandle | None:
        """The handle of the transaction."""
        return None if self.transaction is None else self.transaction.handle

    @classmethod
    def together(cls, summaries: Sequence[TaskSummary]) -> TaskSummary:
        """The sum over the tasks of one batch; ``seconds`` is that of the slowest one.

        Between the first and the last offset of a partition there may be records of other producers.
        """
        if not summaries:
            return cls()
        offsets: dict[TopicPartition, tuple[int, int]] = {}
        for summary in summaries:
            for partition, (first, last) in summary.offsets.items():
                lowest, highest = offsets.get(partition, (first, last))
                offsets[partition] = (min(lowest, first), max(highest, last))
        one = summaries[0]
        return cls(
            sum(each.rows for each in summaries),
            sum(each.size for each in summaries),
            one.transaction,
            {partition: what for each in summaries for partition, what in each.written.items()},
            one.query,
            one.batch,
            offsets,
            sum(each.retries for each in summaries),
            sum(each.dead_letters for each in summaries),
            max(each.seconds for each in summaries),
            Fingerprint.together(each.contents for each in summaries),
            one.earlier if all(each.skipped for each in summaries) else None,
            next((each.failure for each in summaries if each.failure is not None), None),
        )
