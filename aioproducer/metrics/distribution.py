"""The distribution of a measured number: count, sum, extremes, percentiles, and a histogram.

A distribution is written in one thread, that of the event loop, and may be read in any.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, NamedTuple

__all__ = ["Distribution", "Histogram"]

#: The upper bounds of the buckets: zero, and the powers of the fourth root of two from 2^-20 to 2^21. So percentiles
#: are right to about 10 %, and counts up to a power of two are exact.
_BOUNDS: Final[tuple[float, ...]] = (0.0, *(2.0 ** (step / 4) for step in range(-80, 85)))
_MOST_RECENT: Final = 100


@dataclass(frozen=True, slots=True)
class Histogram:
    """A distribution as counts: ``counts[i]`` of the ``count`` measurements were at most ``bounds[i]``.

    ``total`` is the sum of the measurements.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    count: int
    total: float


class _Counted(NamedTuple):
    """The measurements that are counted."""

    number: int = 0
    total: float = 0.0
    maximum: float = 0.0
    buckets: tuple[int, ...] = (0,) * (len(_BOUNDS) + 1)

    def with_more(self, values: Sequence[float]) -> _Counted:
        """These and the given measurements."""
        if not values:
            return self
        buckets = list(self.buckets)
        for value in values:
            buckets[bisect_left(_BOUNDS, value)] += 1
        return _Counted(self.number + len(values), self.total + sum(values), max(self.maximum, *values), tuple(buckets))


class Distribution:
    """The distribution of a measured number.

    Measurements are stored first and counted a hundred at a time: a lone ``send()`` takes four, when the processor's caches
    are cold, and counting each of them at once took 3 us of its 65.
    """

    __slots__ = ("_state",)

    def __init__(self) -> None:
        #: Counted measurements, and those that are not yet; replaced as one, so that other threads read each of them once.
        self._state: tuple[_Counted, list[float]] = (_Counted(), [])

    def observe(self, value: float) -> None:
        """Take one measurement."""
        recent = self._state[1]
        recent.append(value)
        if len(recent) >= _MOST_RECENT:
            self._state = (self._state[0].with_more(recent), [])

    def _counted(self) -> _Counted:
        counted, recent = self._state
        return counted.with_more(recent.copy())

    def snapshot(self) -> Distribution:
        """A copy that counts all measurements so far, so that each further question to it is cheap."""
        copy = Distribution()
        copy._state = (self._counted(), [])
        return copy

    @property
    def count(self) -> int:
        """The number of measurements."""
        return self._counted().number

    @property
    def total(self) -> float:
        """Their sum."""
        return self._counted().total

    @property
    def maximum(self) -> float:
        """The largest one; 0.0 if nothing was measured."""
        return self._counted().maximum

    @property
    def average(self) -> float:
        """The mean; 0.0 if nothing was measured."""
        counted = self._counted()
        return counted.total / counted.number if counted.number else 0.0

    def percentile(self, fraction: float) -> float:
        """The value that this fraction of the measurements does not exceed, to about 10 %."""
        counted = self._counted()
        rank = fraction * counted.number
        seen = 0
        for bound, count in zip(_BOUNDS, counted.buckets, strict=False):  # the last one has no upper bound
            seen += count
            if count and seen >= rank:
                return min(bound, counted.maximum)
        return counted.maximum

    def histogram(self, bounds: tuple[float, ...]) -> Histogram:
        """The number of measurements up to each of these bounds: exact for 0 and the powers of two from 2^-20 to 2^21."""
        counted = self._counted()
        below = list(accumulate(counted.buckets))
        counts = tuple(below[bisect_left(_BOUNDS, bound)] for bound in bounds)
        return Histogram(bounds, counts, counted.number, counted.total)

    @classmethod
    def of_all(cls, parts: Iterable[Distribution]) -> Distribution:
        """The measurements of all these distributions together."""
        counted = [part._counted() for part in parts]
        whole = cls()
        if counted:
            buckets = tuple(map(sum, zip(*(each.buckets for each in counted), strict=True)))
            whole._state = (
                _Counted(
                    sum(each.number for each in counted),
                    sum(each.total for each in counted),
                    max(each.maximum for each in counted),
                    buckets,
                ),
                [],
            )
        return whole

    def among(self, total: int) -> Distribution:
        """A copy in which these measurements are some of ``total``, and the others are zero."""
        counted = self._counted()
        zeros = total - counted.number + counted.buckets[0]
        whole = Distribution()
        whole._state = (counted._replace(number=total, buckets=(zeros, *counted.buckets[1:])), [])
        return whole
