"""Why a task failed to write its rows, as the task reports it to the driver.

In a transaction shared by all tasks Spark cannot retry a single task: brokers cannot distinguish the rows of two attempts.
Retries also hide the reason, because Spark reports the last attempt only. So a task that cannot write returns its failure as
if it had succeeded, Spark does not retry, and the driver refuses to commit and reports the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

from aioproducer.errors import BrokerError, ReopenRequired
from aioproducer.protocol.error_codes import ErrorCode
from aioproducer.spark.exactly_once.commit_marker import CommitMarkerError

__all__ = ["TaskFailure"]

#: A broker's error codes after the transaction has ended.
_ENDED = frozenset(
    {
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTION_ABORTABLE,  # for records of a partition that is not in an open transaction (KIP-890)
    }
)


class TaskFailure(NamedTuple):
    """The error that ended a task.

    ``is_of_end``: the transaction had ended, because of its timeout or because another task failed. ``refusal``: the task
    did not start, because the commit marker forbids it.
    """

    reason: str
    is_of_end: bool = False
    refusal: CommitMarkerError | None = None

    @classmethod
    def of(cls, error: BaseException) -> Self:
        """The failure for an exception of the task."""
        text = str(error) or type(error).__name__
        refusal = error if isinstance(error, CommitMarkerError) else None
        return cls(text, any(map(_is_of_end, _chain(error))), refusal)

    @property
    def sentence(self) -> str:
        """The reason, with a full stop, which brokers' own messages lack."""
        return self.reason if self.reason.endswith((".", "!", "?", ")")) else f"{self.reason}."

    @staticmethod
    def first_cause(failures: Sequence[TaskFailure]) -> TaskFailure:
        """The failure that caused the others: when one task fails, the end of the transaction ends the others."""
        return next((each for each in failures if not each.is_of_end), failures[0])


def _is_of_end(error: BaseException) -> bool:
    return isinstance(error, ReopenRequired) or (isinstance(error, BrokerError) and error.code in _ENDED)


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__
