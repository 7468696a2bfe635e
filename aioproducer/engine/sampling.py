"""Measures the event loop's lag and samples a producer's totals, as long as something waits for a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from aioproducer.metrics.producer import ProducerMetrics
from aioproducer.metrics.rates import SAMPLE_EVERY_S
from aioproducer.runtime.log import ClientLog
from aioproducer.runtime.pulse import BEAT_S, Pulse

__all__ = ["Sampling"]

_BEATS_PER_SAMPLE: Final = round(SAMPLE_EVERY_S / BEAT_S)


class Sampling:
    """Acts at each beat of its `Pulse`. ``is_waiting`` says whether records or calls wait now."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, log: ClientLog, metrics: ProducerMetrics, is_waiting: Callable[[], bool]
    ) -> None:
        self.pulse = Pulse(loop, log, self._is_needed, self._beat, self._take_sample)
        self._loop = loop
        self._metrics = metrics
        self._is_waiting = is_waiting
        self._beats = 0
        self._requests = 0  # sent before the last beat

    def start(self) -> None:
        """Begin with a sample, from which the first rates count."""
        now = self._loop.time()
        self._metrics.rates.begin(now, self._metrics.sample(now))
        self.pulse.start()

    def stop(self) -> None:
        """Nothing grows any more."""
        self.pulse.stop()
        self._metrics.rates.clear()

    def _is_needed(self) -> bool:
        before, self._requests = self._requests, self._metrics.produce_requests
        return self._requests != before or self._is_waiting()

    def _beat(self, lag: float) -> None:
        self._metrics.event_loop_lag.observe(lag)
        self._beats += 1
        if self._beats % _BEATS_PER_SAMPLE == 0:
            self._take_sample()

    def _take_sample(self) -> None:
        now = self._loop.time()
        self._metrics.rates.take(now, self._metrics.sample(now))
