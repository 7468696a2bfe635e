"""Decides the rates at which ``aioproducer perf --target-latency`` probes; has no clock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

__all__ = ["FIRST_RATE", "MOST_PROBES", "Probe", "best_of", "next_rate"]

#: Records per second of the first probe.
FIRST_RATE: Final = 1000.0
MOST_PROBES: Final = 16

#: The search ends if the best rate and the lowest one that misses are this close, and below the lowest rate.
_PRECISION: Final = 1.05
_LOWEST_RATE: Final = 10.0
#: A probe that reaches less of its rate says how fast the producer is, and nothing about that rate.
_REACHED: Final = 0.9


class Probe(NamedTuple):
    """The outcome at one rate, in records per second; latencies in seconds."""

    rate: float
    reached: float
    p99: float
    target: float
    failed: int = 0

    @property
    def verdict(self) -> str:
        """``ok``, or the reason why this rate is above the limit."""
        if self.failed:
            return f"{self.failed} records failed"
        if self.p99 > self.target:
            return "latency missed"
        return "ok" if self.reached >= self.rate * _REACHED else "rate not reached"

    @property
    def is_good(self) -> bool:
        """Whether the rate can be kept at the latency."""
        return self.verdict == "ok"


def next_rate(probes: Sequence[Probe], first: float = FIRST_RATE, most: int = MOST_PROBES) -> float | None:
    """The rate of the next probe; None if the search is over.

    Doubles until a probe misses, then bisects in the logarithm. If the first one misses, it divides by four, down to 10.
    """
    if not probes:
        return first
    if len(probes) >= most:
        return None
    bad = min((each.rate for each in probes if not each.is_good), default=math.inf)
    good = _highest(probes, bad)
    if good is None:
        return max(bad / 4, _LOWEST_RATE) if bad > _LOWEST_RATE else None
    if math.isinf(bad):
        return good.rate * 2
    return None if bad / good.rate <= _PRECISION else math.sqrt(bad * good.rate)


def best_of(probes: Sequence[Probe]) -> Probe | None:
    """The highest good rate below all that miss: a good one above such a rate was luck."""
    return _highest(probes, min((each.rate for each in probes if not each.is_good), default=math.inf))


def _highest(probes: Sequence[Probe], bad: float) -> Probe | None:
    return max((each for each in probes if each.is_good and each.rate < bad), key=lambda each: each.rate, default=None)
