"""Limits a task to a number of rows per second, in slices small enough not to be bursts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

__all__ = ["RateLimit", "paced"]

_SLICES_PER_SECOND: Final = 10


class RateLimit:
    """Computes when the next rows may be sent. Idle time is not made up for.

    Rows wait for their own time, not only for that of the rows before them: otherwise the first rows of each task, which
    are all rows of a small task, would not be limited.
    """

    def __init__(self, rows_per_second: float) -> None:
        self._rate = rows_per_second
        self._free_at = float("-inf")
        self.slice: Final = max(1, int(rows_per_second / _SLICES_PER_SECOND))  # rows that may be sent at once

    def wait(self, rows: int, now: float) -> float:
        """Count ``rows`` more rows, and return the seconds to wait before sending them."""
        self._free_at = max(self._free_at, now) + rows / self._rate
        return self._free_at - now


def paced(
    batches: Iterable[Any],
    rows_per_second: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> Iterator[Any]:
    """The rows of Arrow batches, in smaller batches, each at its time; blocks until then."""
    limit = RateLimit(rows_per_second)
    for batch in batches:
        for begin in range(0, batch.num_rows, limit.slice):
            part = batch.slice(begin, limit.slice)
            sleep(limit.wait(part.num_rows, clock()))
            yield part
