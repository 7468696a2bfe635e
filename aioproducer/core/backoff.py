"""The pauses before retries: longer each time, with jitter so that clients do not retry in step (KIP-580)."""

from __future__ import annotations

from typing import NamedTuple

from aioproducer.config import ProducerConfig

__all__ = ["ExponentialBackoff", "retry_backoff"]

_MAX_EXPONENT = 62  # beyond it every pause is the maximum


class ExponentialBackoff(NamedTuple):
    """Pauses that grow from ``initial_s`` to ``max_s`` seconds, varied by the fraction ``jitter``."""

    initial_s: float
    max_s: float
    multiplier: float = 2.0
    jitter: float = 0.2

    def delay(self, attempts: int, random: float) -> float:
        """The pause after ``attempts`` failures beyond the first; ``random`` is from 0 to 1."""
        pause = min(self.max_s, self.initial_s * self.multiplier ** min(max(attempts, 0), _MAX_EXPONENT))
        return pause * (1 - self.jitter + 2 * self.jitter * random)


def retry_backoff(config: ProducerConfig) -> ExponentialBackoff:
    """Return the configured pauses between retries."""
    return ExponentialBackoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000)
