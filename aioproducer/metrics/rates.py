"""Remembers totals of the last half minute, so that a rate says how fast they grow now.

Java's `Rate` keeps windows for each sensor; here one sample holds all totals, and nothing is done for a record.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Final, NamedTuple

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


class Totals(NamedTuple):
    """All numbers that only grow: of the producer, by topic, and by broker."""

    producer: Mapping[str, float]
    topics: Mapping[str, Mapping[str, float]]
    brokers: Mapping[int, Mapping[str, float]]


_NONE: Final = Totals({}, {}, {})


class Growth(NamedTuple):
    """Totals, and how long ago they were reached, in seconds."""

    seconds: float
    before: Totals

    def rates(
        self, names: Mapping[str, tuple[str, float]], now: Mapping[str, float], before: Mapping[str, float]
    ) -> dict[str, float]:
        """The rates of one producer, topic or broker: of each name the total, times a factor, by the second."""
        return {
            name: (now[total] - before.get(total, 0.0)) * factor / self.seconds
            for name, (total, factor) in names.items()
        }


class Rates:
    """The samples. One thread takes them, any may read."""

    def __init__(self) -> None:
        #: Each with its time; replaced as one, for readers in other threads.
        self._samples: tuple[tuple[float, Totals], ...] = ()

    def take(self, now: float, totals: Totals) -> None:
        """Add a sample, and drop those that no window needs any more."""
        samples = self._samples
        needed = 0
        while needed + 1 < len(samples) and samples[needed + 1][0] <= now - WINDOW_S:
            needed += 1
        self._samples = (*samples[needed:], (now, totals))

    def growth(self, now: float | None) -> Growth:
        """The totals at the beginning of the window that ends now, or since the first sample if that is later.

        ``now`` None: nothing runs, so nothing grows.
        """
        samples = self._samples
        if now is None or not samples:
            return Growth(inf, _NONE)
        earlier = [sample for sample in samples if sample[0] <= now - WINDOW_S]
        began, before = earlier[-1] if earlier else samples[0]
        return Growth(max(now - began, _SHORTEST_S), before)
