"""Counts the acknowledged records of ``aioproducer perf``, and their latencies, in windows; has no clock.

Latencies are in seconds, sizes in bytes, moments in seconds of any clock.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

__all__ = ["Measure", "Result", "Stats", "Tally", "Window"]

#: Latencies are stored first and counted this many at a time: one at a time would take several times as long.
_MOST_RECENT: Final = 512
#: The place of the upper half among the two of a 32-bit float.
_UPPER: Final = 1 if sys.byteorder == "little" else 0
#: A slice is the shortest time that a chart shows; two become one each time there are more than the most.
_SLICE: Final = 0.1
_MOST_SLICES: Final = 480


class Tally:
    """A number of records, their size, and the distribution of their latencies.

    Percentiles are right to 0.4 %: there are 128 buckets for each power of two.
    """

    __slots__ = ("_counts", "_largest", "_recent", "_total", "size")

    def __init__(self) -> None:
        self.size = 0
        self._recent = array("f")
        self._counts: Counter[int] = Counter()
        self._total = self._largest = 0.0

    def add(self, latency: float, size: int) -> None:
        """Count one record."""
        self.size += size
        self._recent.append(latency)
        if len(self._recent) >= _MOST_RECENT:
            self._fold()

    def merge(self, other: Tally) -> None:
        """Count the records of another tally as well."""
        self._fold()
        other._fold()
        self.size += other.size
        self._total += other._total
        self._largest = max(self._largest, other._largest)
        self._counts.update(other._counts)

    @property
    def count(self) -> int:
        """The number of records."""
        self._fold()
        return self._counts.total()

    @property
    def average(self) -> float:
        """The mean latency; NaN without records."""
        count = self.count
        return self._total / count if count else float("nan")

    @property
    def largest(self) -> float:
        """The largest latency; 0 without records."""
        self._fold()
        return self._largest

    def percentile(self, fraction: float) -> float:
        """The latency at this place of the sorted ones, which Java's tool takes; 0 without records."""
        rank = int(fraction * self.count)
        for bucket in sorted(self._counts):
            rank -= self._counts[bucket]
            if rank < 0:
                return min(_middle(bucket), self._largest)
        return self._largest

    def _fold(self) -> None:
        recent = self._recent
        if recent:
            self._total += sum(recent)
            self._largest = max(self._largest, *recent)
            self._counts.update(_buckets(recent))
            self._recent = array("f")


def _buckets(latencies: array[float]) -> Iterable[int]:
    """The bucket of each: the upper half of a 32-bit float, which has its exponent and the first 7 bits of its fraction."""
    halves = memoryview(latencies).cast("B").cast("H")
    return halves[_UPPER::2]


def _middle(bucket: int) -> float:
    (middle,) = struct.unpack("=f", struct.pack("=I", bucket << 16 | 0x8000))
    assert isinstance(middle, float)
    return middle


class Window(NamedTuple):
    """The records that were acknowledged from ``start`` to ``end``, in seconds since the beginning."""

    start: float
    end: float
    tally: Tally

    @property
    def seconds(self) -> float:
        """The length; never 0, since rates are divided by it."""
        return max(self.end - self.start, 1e-6)


class Stats:
    """Counts records in slices, which charts show, and in windows of ``interval`` seconds, each of which is reported."""

    def __init__(self, start: float, interval: float, report: Callable[[Window], object]) -> None:
        self.start = start
        self.total = Tally()
        self.windows: list[Window] = []
        self.slices: list[Window] = []
        self._report = report
        self._interval = interval
        self._slice_length = min(_SLICE, interval)
        self._slice, self._slice_start = Tally(), start
        self._window, self._window_start = Tally(), start

    def record(self, latency: float, size: int, now: float) -> None:
        """Count a record that was acknowledged now."""
        self._slice.add(latency, size)
        if now - self._slice_start >= self._slice_length:
            self._end_slice(now)
            if now - self._window_start >= self._interval:
                self._report(self._end_window(now))

    def finish(self, now: float) -> None:
        """End the last window, which is not reported, as in Java's tool."""
        self._end_slice(now)
        if len(self.slices) > 1 and self.slices[-1].seconds < self._slice_length / 2:  # its rate would be chance
            last = self.slices.pop()
            self.slices[-1] = _joined(self.slices[-1], last)
        if self._window.count:
            self._end_window(now)

    def _end_slice(self, now: float) -> None:
        if self._slice.count:
            self._window.merge(self._slice)
            self.slices.append(Window(self._slice_start - self.start, now - self.start, self._slice))
        self._slice, self._slice_start = Tally(), now
        if len(self.slices) > _MOST_SLICES:
            self._slice_length = min(self._slice_length * 2, self._interval)
            halves = iter(self.slices)
            self.slices = [_joined(each, next(halves, None)) for each in halves]

    def _end_window(self, now: float) -> Window:
        window = Window(self._window_start - self.start, now - self.start, self._window)
        self.total.merge(self._window)
        self.windows.append(window)
        self._window, self._window_start = Tally(), now
        return window


def _joined(first: Window, second: Window | None) -> Window:
    if second is None:
        return first
    tally = Tally()
    tally.merge(first.tally)
    tally.merge(second.tally)
    return Window(first.start, second.end, tally)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a run; ``error`` is the first failure, ``steady`` the part after the warm-up.

    ``seconds`` is until the last outcome, ``sending`` until the last record was in the buffer.
    """

    total: Tally
    seconds: float
    windows: list[Window] = field(default_factory=list[Window])
    slices: list[Window] = field(default_factory=list[Window])
    failed: int = 0
    error: str | None = None
    interrupted: bool = False
    steady: Result | None = None
    sending: float = 0.0

    @property
    def rate(self) -> float:
        """Acknowledged records per second."""
        return self.total.count / max(self.seconds, 1e-6)

    @property
    def is_good(self) -> bool:
        """Whether all records were acknowledged, as far as the run went."""
        return not self.failed and self.error is None

    @classmethod
    def of_all(cls, results: Iterable[Result]) -> Result:
        """The result of several runs together, without their windows."""
        results = list(results)
        total = Tally()
        for each in results:
            total.merge(each.total)
        return cls(
            total,
            sum(each.seconds for each in results),
            failed=sum(each.failed for each in results),
            error=next((each.error for each in results if each.error is not None), None),
            interrupted=any(each.interrupted for each in results),
        )


class Measure:
    """Counts the records of one run; those after the warm-up also separately.

    ``report`` gets each window that has ended, and whether it is the first, and whether it is one of the steady state.
    """

    def __init__(self, start: float, interval: float, report: Callable[[Window, bool, bool], object]) -> None:
        self.failed = 0
        self.error: str | None = None
        self.whole = Stats(start, interval, self._report_whole)
        self.steady: Stats | None = None
        self._interval = interval
        self._report = report
        self._is_open = True

    def _report_whole(self, window: Window) -> None:
        if self.steady is None:
            self._report(window, False, False)

    def _report_steady(self, window: Window) -> None:
        self._report(window, True, self.steady is not None and len(self.steady.windows) == 1)

    def end_warmup(self, now: float) -> None:
        """Count the records that are sent from now on as those of the steady state."""
        self.steady = Stats(now, self._interval, self._report_steady)

    def acknowledge(self, steady: Stats | None, latency: float, size: int, now: float) -> None:
        """Count an acknowledged record; ``steady`` is what the attribute was when it was sent."""
        if self._is_open:
            self.whole.record(latency, size, now)
            if steady is not None:
                steady.record(latency, size, now)

    def fail(self, error: BaseException, *, is_record: bool = True) -> None:
        """Count a record that was not acknowledged; or note an error that ends the run."""
        if self._is_open:
            self.failed += is_record
            self.error = self.error or str(error)

    def result(self, now: float, sent_at: float | None, *, interrupted: bool) -> Result:
        """The result; what ends afterwards is not counted. ``sent_at`` None: not all records were sent."""
        self._is_open = False
        steady = None if self.steady is None else _result_of(self.steady, now)
        whole = _result_of(self.whole, now)
        return replace(
            whole,
            failed=self.failed,
            error=self.error,
            interrupted=interrupted,
            steady=steady,
            sending=(now if sent_at is None else sent_at) - self.whole.start,
        )


def _result_of(stats: Stats, now: float) -> Result:
    stats.finish(now)
    return Result(stats.total, now - stats.start, stats.windows, stats.slices)
