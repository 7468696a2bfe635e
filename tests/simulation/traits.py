"""Traits that only some seeds have; they are drawn apart, so that every other seed stays the same."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

__all__ = ["Traits"]

_SALT = 0x5EED


class Traits(NamedTuple):
    """The unusual things in the life of one producer."""

    #: Its sequences continue with 0 soon, as after two billion records.
    is_worn: bool = False
    #: Some of its callers hand their records over, as the threads of `SyncProducer` do.
    has_threads: bool = False
    #: Its own work takes time, so that the Sender pauses for other tasks.
    is_busy: bool = False
    #: Nodes that crash may lose what they appended last, although it was acknowledged.
    loses_appends: bool = False
    #: Brokers forget its producer id, and say so.
    is_forgotten: bool = False

    @classmethod
    def of(cls, seed: int, kind: str) -> Traits:
        """The traits of a seed."""
        chance = Random(seed ^ _SALT)
        drawn = [chance.random() for _ in cls._fields]
        if kind not in ("idempotent", "plain"):
            return cls(is_busy=drawn[2] < 0.2)
        is_idempotent = kind == "idempotent"
        is_worn = is_idempotent and drawn[0] < 0.2
        is_young = (
            is_idempotent and not is_worn
        )  # otherwise a broker without its state would accept the 0 after the end
        return cls(
            is_worn=is_worn,
            has_threads=drawn[1] < 0.25,
            is_busy=drawn[2] < 0.2,
            loses_appends=is_young and drawn[3] < 0.1,
            is_forgotten=is_young and drawn[4] < 0.1,
        )
