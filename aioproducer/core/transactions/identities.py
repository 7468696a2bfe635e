"""What the requests of a transaction call things by: who coordinates what, and under what a producer writes."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

__all__ = ["CoordinatorKey", "CoordinatorType", "ProducerIdAndEpoch"]


class CoordinatorType(Enum):
    """Of what a broker is the coordinator; the value is FindCoordinator's ``key_type``."""

    GROUP = 0
    TRANSACTION = 1


class CoordinatorKey(NamedTuple):
    """The group or the transactional id that a broker is the coordinator of."""

    type: CoordinatorType
    key: str

    def __str__(self) -> str:
        return f"{'group' if self.type is CoordinatorType.GROUP else 'transactional_id'} {self.key!r}"


class ProducerIdAndEpoch(NamedTuple):
    """Under what a producer writes."""

    producer_id: int
    epoch: int
