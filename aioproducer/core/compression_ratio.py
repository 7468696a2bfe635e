"""Estimates how well each topic compresses, so that batches fill up to ``batch_size`` on the wire, not before it.

Follows Java's CompressionRatioEstimator: the estimate falls slowly when batches turn out smaller and rises at once when
they turn out larger, because an optimistic estimate creates batches that the broker refuses.
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
        """Return the expected ratio of the topic's next batch."""
        return self._ratios.get(topic, 1.0)

    def uncompressed_limit(self, topic: str, batch_size: int) -> int:
        """Return the number of uncompressed bytes expected to compress to ``batch_size``."""
        return int(batch_size / (self.estimate(topic) * _SAFETY_FACTOR))

    def on_the_wire(self, topic: str) -> float:
        """Return the expected ratio of the topic's next records; too high rather than too low."""
        return self.estimate(topic) * _SAFETY_FACTOR

    def observe(self, topic: str, ratio: float) -> None:
        """Learn from a compressed batch."""
        current = self.estimate(topic)
        if ratio > current:
            self._ratios[topic] = max(current + _DETERIORATE_STEP, ratio)
        elif ratio < current:
            self._ratios[topic] = max(current - _IMPROVING_STEP, ratio)

    def reset(self, topic: str, ratio: float) -> None:
        """Expect the ratio of a batch that the broker refused as too large.

        Java expects at least 1.0 because it does not learn the topic's limit. Here `BatchLimits` learns it, and batches
        that compress well would become too small.
        """
        self._ratios[topic] = ratio

    def forget(self, topic: str) -> None:
        """Forget the topic; if it is used again, learning starts over."""
        self._ratios.pop(topic, None)
