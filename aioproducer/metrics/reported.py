"""Remembers the totals that were reported last, so that the next report has only their growth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from aioproducer.metrics.points import Point

__all__ = ["Reported"]

_Key: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]


class Reported:
    """The totals, each with the time of its report, in nanoseconds since 1970.

    A total that was left out of some reports grows since the last one that it was in.
    """

    def __init__(self, began: int) -> None:
        self.began = began  # of what was never reported
        self._totals: dict[_Key, tuple[float, int]] = {}

    def growth(self, points: Iterable[Point]) -> Iterator[Point]:
        """The points, with totals replaced by their growth."""
        for point in points:
            if not point.is_total:
                yield point
                continue
            before, since = self._totals.get((point.name, point.attributes), (0.0, self.began))
            # A smaller number began again from zero, such as that of a topic that was forgotten in between.
            grown = point.number - before if point.number >= before else point.number
            yield point._replace(number=grown, began=since)

    def whole(self, points: Iterable[Point]) -> Iterator[Point]:
        """The points, with totals since the beginning."""
        for point in points:
            yield point._replace(began=self.began) if point.is_total else point

    def note(self, points: Iterable[Point], at: int) -> None:
        """These points, as they were given to `growth`, were reported."""
        for point in points:
            if point.is_total:
                self._totals[point.name, point.attributes] = point.number, at
