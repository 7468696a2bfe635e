"""Counts the attempts at a transaction's work, and decides after each failure how to continue."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum, auto

from aioproducer.config import ProducerConfig
from aioproducer.core.backoff import retry_backoff
from aioproducer.errors import (
    CommitFailed,
    ConfigError,
    DeliveryError,
    InvalidRecord,
    KafkaError,
    ReopenRequired,
    SendManyError,
    TransactionAbortable,
    TransactionError,
)
from aioproducer.runtime.log import ClientLog

__all__ = ["Attempts", "Next", "what_next"]


class Next(Enum):
    """The next step after a transaction that failed."""

    REDO = auto()
    REOPEN = auto()  # and then retry
    GIVE_UP = auto()


#: The first class that an error belongs to decides (KIP-1050).
_NEXT: Mapping[type[KafkaError], Next] = {
    CommitFailed: Next.GIVE_UP,  # its consumer has to rejoin first
    TransactionAbortable: Next.REDO,
    ReopenRequired: Next.REOPEN,
    TransactionError: Next.GIVE_UP,
    DeliveryError: Next.REDO,  # the records are aborted, written or not
}


def what_next(error: KafkaError) -> Next:
    """Return the next step after this error of a transaction, or of a record in it.

    The cause of a failed record counts if it ended more than the transaction. A record that can never be sent would fail
    the next attempt as well.
    """
    if isinstance(error, SendManyError):
        error = error.error
    if any(isinstance(each, InvalidRecord) for each in _reasons(error)):
        return Next.GIVE_UP
    cause = error.__cause__ if isinstance(error, DeliveryError) else None
    decisive = cause if isinstance(cause, TransactionError) else error
    return next((step for kind, step in _NEXT.items() if isinstance(decisive, kind)), Next.GIVE_UP)


def _reasons(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


class Attempts:
    """Counts the attempts at a transaction's work, and decides how to continue."""

    def __init__(self, most: int, config: ProducerConfig, random: Callable[[], float], log: ClientLog) -> None:
        """Raises `ConfigError` unless ``most`` is an integer >= 1."""
        if type(most) is not int or most < 1:
            raise ConfigError(f"Invalid attempts={most!r}: must be an integer >= 1.")
        self._most = most
        self._log = log
        self._made = 0
        self._transactional_id = config.transactional_id
        self._backoff = retry_backoff(config)
        self._random = random

    def after(self, error: KafkaError) -> Next:
        """Return the next step after an attempt that failed."""
        self._made += 1
        if self._made >= self._most:
            return Next.GIVE_UP
        self._log.info("Attempt %d at a transaction of %r failed: %s", self._made, self._transactional_id, error)
        return what_next(error)

    def pause(self) -> float:
        """The seconds to wait before the next one."""
        return self._backoff.delay(self._made - 1, self._random())
