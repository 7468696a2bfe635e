"""Counts the attempts at the work of a transaction, and says after each failure how to go on."""

from __future__ import annotations

import logging
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

__all__ = ["Attempts", "Next", "what_next"]

logger = logging.getLogger("aioproducer")


class Next(Enum):
    """What to do after a transaction that failed."""

    REDO = auto()
    REOPEN = auto()  # and then do it again
    GIVE_UP = auto()


#: The first class that an error belongs to decides (KIP-1050).
_NEXT: Mapping[type[KafkaError], Next] = {
    CommitFailed: Next.GIVE_UP,  # its consumer has to rejoin first
    TransactionAbortable: Next.REDO,
    ReopenRequired: Next.REOPEN,
    TransactionError: Next.GIVE_UP,
    DeliveryError: Next.REDO,  # the records are aborted, whatever became of them
}


def what_next(error: KafkaError) -> Next:
    """What to do after this error of a transaction, or of a record in it.

    A record that failed says why: where that ended more than its transaction, it counts. One that can never be sent as it
    is would fail the next attempt, too.
    """
    if isinstance(error, SendManyError):
        error = error.error
    if any(isinstance(each, InvalidRecord) for each in _reasons(error)):
        return Next.GIVE_UP
    cause = error.__cause__ if isinstance(error, DeliveryError) else None
    told = cause if isinstance(cause, TransactionError) else error
    return next((way_on for kind, way_on in _NEXT.items() if isinstance(told, kind)), Next.GIVE_UP)


def _reasons(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


class Attempts:
    """Counts how often the work of a transaction was tried, and says how to go on."""

    def __init__(self, most: int, config: ProducerConfig, random: Callable[[], float]) -> None:
        """Raises `ConfigError` unless ``most`` is a whole number from 1."""
        if type(most) is not int or most < 1:
            raise ConfigError(f"attempts={most!r}: that is a whole number from 1.")
        self._most = most
        self._made = 0
        self._transactional_id = config.transactional_id
        self._backoff = retry_backoff(config)
        self._random = random

    def after(self, error: KafkaError) -> Next:
        """What to do after an attempt that failed."""
        self._made += 1
        if self._made >= self._most:
            return Next.GIVE_UP
        logger.info("Attempt %d at a transaction of %r failed: %s", self._made, self._transactional_id, error)
        return what_next(error)

    def pause(self) -> float:
        """The seconds to wait before the next one."""
        return self._backoff.delay(self._made - 1, self._random())
