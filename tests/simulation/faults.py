"""The dice of a simulation: every fault is drawn here, numbered, and can be left out when the same seed runs again."""

from __future__ import annotations

from collections.abc import Sequence, Set
from hashlib import sha256
from random import Random
from typing import TypeVar

__all__ = ["Dice", "Story"]

_T = TypeVar("_T")


class Story:
    """The events of a simulation, in words and as a digest."""

    def __init__(self, *, keeps: bool) -> None:
        self._hash = sha256()
        self._lines: list[str] | None = [] if keeps else None
        self.events = 0

    def add(self, at: float, event: str) -> None:
        """Add an event; only text that is the same on every machine."""
        self.events += 1
        line = f"{at:12.6f}  {event}"
        self._hash.update(line.encode())
        if self._lines is not None:
            self._lines.append(line)

    @property
    def digest(self) -> str:
        """The same for the same events."""
        return self._hash.hexdigest()

    @property
    def lines(self) -> Sequence[str]:
        """The events, if they are kept."""
        return self._lines or ()


class Dice:
    """The only source of chance. ``left_out``: the numbers of faults that do not happen."""

    def __init__(self, seed: int, left_out: Set[int] = frozenset()) -> None:
        self.random = Random(seed)
        self.is_calm = False
        self.drawn = 0
        self.happened: list[int] = []
        self._left_out = left_out

    def fault(self, probability: float) -> bool:
        """Whether a fault happens here. The dice are thrown in any case, so that the rest stays the same."""
        hit = self.random.random() < probability
        if not hit or self.is_calm:
            return False
        self.drawn += 1
        if self.drawn in self._left_out:
            return False
        self.happened.append(self.drawn)
        return True

    def choice(self, of: Sequence[_T]) -> _T:
        """One of these."""
        return of[int(self.random.random() * len(of))]

    def seconds(self, low: float, high: float) -> float:
        """A time between these, in whole microseconds."""
        return round(low + (high - low) * self.random.random(), 6)
