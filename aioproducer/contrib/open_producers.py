"""Remembers the producers that an exporter of metrics reads, without keeping them alive."""

from __future__ import annotations

import threading
import weakref
from typing import TypeAlias

from aioproducer.producer import Producer
from aioproducer.sync import SyncProducer
from aioproducer.types import HealthStatus

__all__ = ["AnyProducer", "OpenProducers"]

AnyProducer: TypeAlias = Producer | SyncProducer


class OpenProducers:
    """Producers with different client ids; may be used in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._producers: list[weakref.ref[AnyProducer]] = []

    def add(self, producer: AnyProducer) -> None:
        """Add a producer, once. Raises ValueError if another one with its ``client_id`` is not closed."""
        for other in self.current():
            if other.client_id == producer.client_id and other is not producer:
                raise ValueError(
                    f"Another producer with client_id={producer.client_id!r} is registered and not closed. Give each "
                    "producer its own client_id, so that their samples differ, or close the other one first."
                )
        with self._lock:
            if all(each() is not producer for each in self._producers):
                self._producers.append(weakref.ref(producer))

    def remove(self, producer: AnyProducer) -> None:
        """Remove a producer, if it was added."""
        with self._lock:
            self._producers = [each for each in self._producers if each() not in (None, producer)]

    def current(self) -> list[AnyProducer]:
        """Those that are not closed."""
        with self._lock:
            alive = [producer for each in self._producers if (producer := each()) is not None]
            self._producers = [weakref.ref(producer) for producer in alive]
        return [producer for producer in alive if producer.health().status is not HealthStatus.CLOSED]
