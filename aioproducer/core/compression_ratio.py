"""Estimates how well each topic compresses, so that batches fill up to ``batch_size`` on the wire, not before it.

Follows Java's CompressionRatioEstimator: the estimate falls slowly when batches turn out smaller and rises at once when
they turn out larger, because an estimate that is too good makes batches that the broker refuses.
"""

from __future__ import annotations

__all__ = ["CompressionRatios"]

_IMPROVING_STEP = 0.005
_DETERIORATE_STEP = 0.05
_SAFETY_FACTOR = 1.05


class CompressionRatios:
    """Compressed size over uncompressed size, by topic; 1.0 until a batch was seen."""

    def __init__(self) -> None:
        self._ratios: dict[str, float] = {}

    def estimate(self, topic: str) -> float:
        """The ratio to expect of the topic's next batch."""
        return self._ratios.get(topic, 1.0)

    def uncompressed_limit(self, topic: str, batch_size: int) -> int:
        """How many uncompressed bytes are expected to become ``batch_size`` compressed ones."""
        return int(batch_size / (self.estimate(topic) * _SAFETY_FACTOR))

    def on_the_wire(self, topic: str) -> float:
        """The part of their size that the topic's next records are expected to take; rather too much than too little."""
        return self.estimate(topic) * _SAFETY_FACTOR

    def observe(self, topic: str, ratio: float) -> None:
        """Learn from a batch that was compressed."""
        current = self.estimate(topic)
        if ratio > current:
            self._ratios[topic] = max(current + _DETERIORATE_STEP, ratio)
        elif ratio < current:
            self._ratios[topic] = max(current - _IMPROVING_STEP, ratio)

    def reset(self, topic: str, ratio: float) -> None:
        """Expect this from now on, as the batch had that the broker refused as too large.

        Java expects 1.0 at least, as it does not learn the topic's limit; here `BatchLimits` do, and batches that compress
        well would become too small.
        """
        self._ratios[topic] = ratio

    def forget(self, topic: str) -> None:
        """Begin anew with the topic, if it ever comes again."""
        self._ratios.pop(topic, None)
