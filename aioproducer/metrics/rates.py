"""Remembers totals of the last half minute, so that a rate says how fast they grow now.

Java's `Rate` keeps windows for each sensor; here one sample holds all totals, and nothing is done for a record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Final, NamedTuple, TypeAlias

__all__ = [
    "BROKER_RATES",
    "PRODUCER_RATES",
    "SAMPLE_EVERY_S",
    "TOPIC_RATES",
    "WINDOW_S",
    "Growth",
    "Rates",
    "Totals",
]

#: The time over which rates are taken, in seconds, and the time between two samples.
WINDOW_S: Final = 30.0
SAMPLE_EVERY_S: Final = 3.0
#: A rate over a shorter time, just after the start, would be a number of chance.
_SHORTEST_S: Final = 1.0


def _rates(*totals: str, waits: Mapping[str, str] | None = None) -> dict[str, tuple[str, float]]:
    """The total from which each rate is computed, and a factor; ratios come from times in nanoseconds."""
    return {
        **{f"{name}-rate": (f"{name}-total", 1.0) for name in totals},
        **{f"{name}-ratio": (f"{total}-time-ns-total", 1e-9) for name, total in (waits or {}).items()},
    }


_CONNECTION_RATES: Final = (
    "request",
    "response",
    "outgoing-byte",
    "incoming-byte",
    "connection-creation",
    "connection-close",
)
_TOPIC_RATES: Final = ("record-send", "record-error", "record-retry", "byte")

#: How rates are computed: the total that grows, and a factor.
TOPIC_RATES: Final = _rates(*_TOPIC_RATES)
BROKER_RATES: Final = _rates(*_CONNECTION_RATES, waits={"in-flight-full": "in-flight-full"})
PRODUCER_RATES: Final = _rates(
    *_TOPIC_RATES,
    "batch-split",
    "buffer-exhausted",
    *_CONNECTION_RATES,
    waits={"bufferpool-wait": "bufferpool-wait"},
)


#: The totals of each thing that is counted, such as a topic.
Totals: TypeAlias = Mapping[object, Mapping[str, float]]

_NOTHING: Final[Mapping[str, float]] = {}


class Growth(NamedTuple):
    """The time that a window covers, in seconds, and the samples before and after its beginning.

    ``share``: how much of the way from the one to the other the beginning is.
    """

    seconds: float
    earlier: Totals
    later: Totals
    share: float

    def rates(
        self,
        names: Mapping[str, tuple[str, float]],
        of: object,
        now: Mapping[str, float],
        parts: Sequence[object] = (),
    ) -> dict[str, float]:
        """The rates of one thing: of each name the total, times a factor, by the second.

        ``parts`` are those whose counts it has taken over.
        """
        earlier, later = _find(self.earlier, of, parts), _find(self.later, of, parts)
        found: dict[str, float] = {}
        for name, (total, factor) in names.items():
            before = earlier.get(total, 0.0)
            before += (later.get(total, 0.0) - before) * self.share
            found[name] = (now[total] - before) * factor / self.seconds
        return found


def _find(totals: Totals, of: object, parts: Sequence[object]) -> Mapping[str, float]:
    found = totals.get(of)
    if found is not None or not parts:
        return found or _NOTHING
    sums: dict[str, float] = {}
    for part in parts:
        for name, number in totals.get(part, _NOTHING).items():
            sums[name] = sums.get(name, 0.0) + number
    return sums


class Rates:
    """The samples. One thread takes them, any may read."""

    def __init__(self) -> None:
        #: Each with its time; replaced as one, for readers in other threads.
        self._samples: tuple[tuple[float, Totals], ...] = ()

    def begin(self, now: float, totals: Totals) -> None:
        """Take the first sample: nothing that was before counts."""
        self._samples = ((now, totals),)

    def clear(self) -> None:
        """Drop all samples: nothing grows any more."""
        self._samples = ()

    def take(self, now: float, totals: Totals) -> None:
        """Add a sample, and drop those that no window needs any more."""
        samples = self._samples
        needed = 0
        while needed + 1 < len(samples) and samples[needed + 1][0] <= now - WINDOW_S:
            needed += 1
        self._samples = (*samples[needed:], (now, totals))

    def growth(self, now: float | None) -> Growth:
        """The growth since the beginning of the window that ends now, or since the first sample if that is later.

        ``now`` None: nothing runs, so nothing grows.
        """
        samples = self._samples
        if now is None or not samples:
            return Growth(inf, {}, {}, 0.0)
        begin = now - WINDOW_S
        earlier = later = samples[0]
        for sample in samples:
            later = sample
            if sample[0] > begin:
                break
            earlier = sample
        if earlier[0] > begin:  # the first sample is in the window
            return Growth(max(now - earlier[0], _SHORTEST_S), earlier[1], earlier[1], 0.0)
        between = later[0] - earlier[0]
        return Growth(WINDOW_S, earlier[1], later[1], (begin - earlier[0]) / between if between else 0.0)
