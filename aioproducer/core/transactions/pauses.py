"""The pauses between requests to a coordinator."""

from __future__ import annotations

from enum import Enum, auto

from aioproducer.core.backoff import ExponentialBackoff

__all__ = ["FIRST_PARTITIONS_BACKOFF", "RequestPause"]

#: The pauses before adding the first partitions of a transaction is retried: the previous one is about to be complete, which
#: takes some milliseconds. Java always waits for 20 ms (TransactionManager.ADD_PARTITIONS_RETRY_BACKOFF_MS), which is most
#: of the time of consecutive transactions.
FIRST_PARTITIONS_BACKOFF = ExponentialBackoff(0.002, 0.020)


class RequestPause(Enum):
    """The pause before the next request."""

    NONE = auto()
    SHORT = auto()  # that of FIRST_PARTITIONS_BACKOFF, or the usual one if that is shorter
    BACKOFF = auto()  # the usual one, after `TransactionManager.attempts` failures
