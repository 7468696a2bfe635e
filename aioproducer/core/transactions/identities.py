"""The identities in the requests of a transaction: coordinators, and the producer id and epoch."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

__all__ = ["CoordinatorKey", "CoordinatorType", "ProducerIdAndEpoch"]


class CoordinatorType(Enum):
    """The kinds of coordinators; the value is FindCoordinator's ``key_type``."""

    GROUP = 0
    TRANSACTION = 1


class CoordinatorKey(NamedTuple):
    """The group or the transactional id that a broker coordinates."""

    type: CoordinatorType
    key: str

    def __str__(self) -> str:
        return f"{'group' if self.type is CoordinatorType.GROUP else 'transactional_id'} {self.key!r}"


class ProducerIdAndEpoch(NamedTuple):
    """The producer id and epoch under which a producer writes."""

    producer_id: int
    epoch: int
