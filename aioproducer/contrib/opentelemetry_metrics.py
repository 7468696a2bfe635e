"""Exports the metrics of producers as OpenTelemetry's observable instruments (``aioproducer[opentelemetry]``).

Names begin with ``aioproducer.``, times are in seconds, sizes in bytes. Each measurement has the client id; those of a topic
or a broker, whose names begin with ``aioproducer.topic.`` and ``aioproducer.broker.``, have that as well.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, TypeAlias

from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation, get_meter

from aioproducer._version import __version__
from aioproducer.contrib.open_producers import AnyProducer, OpenProducers
from aioproducer.metrics.names import BROKER_METRICS, METRICS, TOPIC_METRICS, Kind, Metric

__all__ = ["instrument_name", "observe", "stop_observing"]

#: The unit in OpenTelemetry (UCUM), and the factor to it.
_UNITS: Final[Mapping[str, tuple[str, float]]] = {
    "ns": ("s", 1e-9),
    "ms": ("s", 1e-3),
    "s": ("s", 1.0),
    "bytes": ("By", 1.0),
    "": ("1", 1.0),
}

#: Samples of one kind: attributes, and the metrics by name.
_Samples: TypeAlias = list[tuple[Mapping[str, str], Mapping[str, float]]]


def observe(producer: AnyProducer, meter_provider: MeterProvider | None = None) -> None:
    """Export the producer's metrics until it is closed, and again whenever it is started again.

    The provider is OpenTelemetry's global one unless it is given; it reads the numbers when it exports, in a thread of its
    own, and does not keep the producer alive. Averages, maxima and percentiles are gauges; rates are left out, since the
    backend computes them. Raises ValueError if another producer with the same ``client_id`` is not closed.
    """
    _instruments_of(meter_provider).producers.add(producer)


def stop_observing(producer: AnyProducer, meter_provider: MeterProvider | None = None) -> None:
    """Export the producer's metrics no longer; does nothing if they were not exported."""
    _instruments_of(meter_provider).producers.remove(producer)


def instrument_name(metric: Metric, of: str = "") -> str:
    """The name of a metric in OpenTelemetry; ``of`` is "topic" or "broker" for those that each topic or broker has."""
    name = metric.name.removesuffix("-total").removesuffix("-ns").replace("-", "_")
    return ".".join(["aioproducer", *([of] if of else []), name])


class _Instruments:
    """The instruments of one provider, and the producers that they measure."""

    def __init__(self, meter: Meter) -> None:
        self.producers = OpenProducers()
        for of, metrics, read in (
            ("", METRICS, self._of_producers),
            ("topic", TOPIC_METRICS, self._of_topics),
            ("broker", BROKER_METRICS, self._of_brokers),
        ):
            source = _OncePerCollection(read)
            for metric in metrics:
                if metric.kind is not Kind.RATE:
                    _create(meter, metric, of, source)

    def _of_producers(self) -> _Samples:
        return [(_of(each), each.metrics()) for each in self.producers.current()]

    def _of_topics(self) -> _Samples:
        return [
            ({**_of(each), "messaging.destination.name": topic}, numbers)
            for each in self.producers.current()
            for topic, numbers in each.metrics_by_topic().items()
        ]

    def _of_brokers(self) -> _Samples:
        return [
            ({**_of(each), "aioproducer.broker.id": str(broker)}, numbers)
            for each in self.producers.current()
            for broker, numbers in each.metrics_by_broker().items()
        ]


class _OncePerCollection:
    """Reads samples for all instruments of a kind at once; the next time when an instrument asks again."""

    def __init__(self, read: Callable[[], _Samples]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._samples: _Samples = []
        self._asked: set[str] | None = None

    def get(self, metric: str) -> _Samples:
        with self._lock:
            if self._asked is None or metric in self._asked:
                self._samples, self._asked = self._read(), set()
            self._asked.add(metric)
            return self._samples


def _create(meter: Meter, metric: Metric, of: str, source: _OncePerCollection) -> None:
    counted = metric.unit.removesuffix("es") if metric.unit == "batches" else metric.unit.removesuffix("s")
    unit, factor = _UNITS.get(metric.unit, (f"{{{counted}}}", 1.0))
    create = meter.create_observable_counter if metric.kind is Kind.TOTAL else meter.create_observable_gauge
    create(instrument_name(metric, of), [partial(_observations, source, metric.name, factor)], unit, metric.meaning)


def _observations(source: _OncePerCollection, name: str, factor: float, _: CallbackOptions) -> Iterator[Observation]:
    for attributes, numbers in source.get(name):
        if name in numbers:  # some exist only while the producer is started
            yield Observation(numbers[name] * factor, attributes)


def _of(producer: AnyProducer) -> dict[str, str]:
    return {"messaging.system": "kafka", "messaging.client.id": producer.client_id}


_known: weakref.WeakKeyDictionary[MeterProvider, _Instruments] = weakref.WeakKeyDictionary()
#: Those of the global provider, which may be set after they were created: the API passes them on to it then.
_global: list[_Instruments] = []
_creating = threading.Lock()


def _instruments_of(meter_provider: MeterProvider | None) -> _Instruments:
    with _creating:
        if meter_provider is None:
            if not _global:
                _global.append(_Instruments(get_meter("aioproducer", __version__)))
            return _global[0]
        instruments = _known.get(meter_provider)
        if instruments is None:
            instruments = _known[meter_provider] = _Instruments(meter_provider.get_meter("aioproducer", __version__))
        return instruments
