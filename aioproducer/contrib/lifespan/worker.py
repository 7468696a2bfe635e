"""Starts and closes producers with a worker process that has no event loop."""

from __future__ import annotations

import time
from collections.abc import Sequence

from aioproducer.arguments import check_timeout
from aioproducer.contrib.lifespan.running import warn_of_late_start
from aioproducer.errors import ConfigError, KafkaTimeoutError
from aioproducer.sync import SyncProducer

__all__ = ["WorkerProducers"]


class WorkerProducers:
    """Producers that each worker process starts after its fork, and closes before it ends.

    The object may be created before the fork, as may a `SyncProducer` that is not started.
    """

    def __init__(self, producers: Sequence[SyncProducer], topics: Sequence[str], warm_up_timeout: float) -> None:
        """Raises `ConfigError` without a producer, and for an invalid timeout, which is for all producers together."""
        if not producers:
            raise ConfigError("A worker needs at least one producer.")
        self._producers = producers
        self._topics = topics
        self._timeout = check_timeout(warm_up_timeout, ConfigError)

    def start(self) -> None:
        """Start all producers, then warm them up; logs those that are not ready in time.

        Raises what `SyncProducer.warm_up` raises, such as `AuthenticationError`; the producers are started nevertheless.
        """
        for producer in self._producers:
            producer.start()
        until = time.monotonic() + self._timeout
        for producer in self._producers:
            try:
                producer.warm_up(*self._topics, timeout=max(0.0, until - time.monotonic()))
            except KafkaTimeoutError as error:
                warn_of_late_start(producer.client_id, self._timeout, error)

    def close(self) -> None:
        """Deliver what was accepted, and close all producers that this process has started.

        Each waits for up to its ``close_timeout_ms``; what it could not deliver is logged. Does nothing if none is started.
        """
        for producer in self._producers:
            producer.close()
