"""Holds the rows of a task back to so many a second, in slices so small that none of them is a burst."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

__all__ = ["RateLimit", "paced"]

_SLICES_PER_SECOND: Final = 10


class RateLimit:
    """Says when the next rows may go. Time in which none came is not made up for.

    Rows wait for their own time, and not only for that of those before them: else the first ones of each task would be free,
    and these are all of them where tasks are small.
    """

    def __init__(self, rows_per_second: float) -> None:
        self._rate = rows_per_second
        self._free_at = float("-inf")
        self.slice: Final = max(1, int(rows_per_second / _SLICES_PER_SECOND))  # how many rows may go at once

    def wait(self, rows: int, now: float) -> float:
        """The seconds to wait before so many rows go, which are counted."""
        self._free_at = max(self._free_at, now) + rows / self._rate
        return self._free_at - now


def paced(
    batches: Iterable[Any],
    rows_per_second: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> Iterator[Any]:
    """The rows of Arrow batches, in smaller batches, each when its time has come; blocks until then."""
    limit = RateLimit(rows_per_second)
    for batch in batches:
        for begin in range(0, batch.num_rows, limit.slice):
            part = batch.slice(begin, limit.slice)
            sleep(limit.wait(part.num_rows, clock()))
            yield part
