"""Why a task wrote nothing that counts, as the task reports it to the driver.

In a transaction that all tasks share Spark's retries of one task are of no use: brokers cannot tell the rows of two attempts
apart. They also hide the reason, because Spark tells the user of the last attempt only. So a task that cannot write returns
its failure as if it had succeeded, Spark tries nothing again, and the driver, which refuses to commit, says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

from aioproducer.errors import BrokerError, ReopenRequired
from aioproducer.protocol.error_codes import ErrorCode
from aioproducer.spark.exactly_once.commit_marker import CommitMarkerError

__all__ = ["TaskFailure"]

#: What a broker answers when the transaction has ended meanwhile.
_ENDED = frozenset(
    {
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTION_ABORTABLE,  # for records of a partition that is in no open transaction (KIP-890)
    }
)


class TaskFailure(NamedTuple):
    """What ended a task.

    ``is_of_end``: the transaction had ended, because time ran out or another task had failed. ``refusal``: the task did not
    begin, as the commit marker does not let it.
    """

    reason: str
    is_of_end: bool = False
    refusal: CommitMarkerError | None = None

    @classmethod
    def of(cls, error: BaseException) -> Self:
        """Of what the task raised."""
        text = str(error) or type(error).__name__
        refusal = error if isinstance(error, CommitMarkerError) else None
        return cls(text, any(map(_is_of_end, _chain(error))), refusal)

    @property
    def sentence(self) -> str:
        """The reason, with a full stop; brokers' own words have none."""
        return self.reason if self.reason.endswith((".", "!", "?", ")")) else f"{self.reason}."

    @staticmethod
    def first_cause(failures: Sequence[TaskFailure]) -> TaskFailure:
        """The failure that explains the others: when one task fails, the end of the transaction ends the others."""
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
