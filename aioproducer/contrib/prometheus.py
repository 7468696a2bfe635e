"""Exports the metrics of producers to Prometheus, through the official client (``aioproducer[prometheus]``).

Names and units follow Prometheus' rules: the prefix ``aioproducer_``, seconds and bytes, ``_total`` for a number that only
grows. Each sample has the label ``client_id``; those of a topic or a broker have ``topic`` or ``broker`` as well.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from aioproducer.contrib.open_producers import AnyProducer, OpenProducers
from aioproducer.metrics.distribution import Histogram
from aioproducer.metrics.names import BROKER_METRICS, HISTOGRAMS, METRICS, TOPIC_METRICS, Kind, Metric
from aioproducer.types import Health

__all__ = ["family_name", "register", "unregister"]

#: The unit in Prometheus, and the factor to it.
_UNITS: Final[Mapping[str, tuple[str, float]]] = {
    "ns": ("seconds", 1e-9),
    "ms": ("seconds", 1e-3),
    "s": ("seconds", 1.0),
    "bytes": ("bytes", 1.0),
}
_WITH_HISTOGRAM: Final = tuple(histogram.name for histogram in HISTOGRAMS)
_READY: Final = "aioproducer_ready", "Whether the producer is started, and connected to a broker"
_OLDEST: Final = "aioproducer_oldest_pending_seconds", "The age of the oldest accepted record without an outcome"


def register(producer: AnyProducer, registry: CollectorRegistry = REGISTRY) -> None:
    """Export the producer's metrics through this registry until it is closed, and again whenever it is started again.

    The registry may be read in any thread, such as that of ``prometheus_client.start_http_server``, and does not keep the
    producer alive. Many producers may share it. Raises ValueError if another one with the same ``client_id`` is not closed.
    """
    _collector_of(registry).producers.add(producer)


def unregister(producer: AnyProducer, registry: CollectorRegistry = REGISTRY) -> None:
    """Export the producer's metrics no longer; does nothing if they were not exported."""
    _collector_of(registry).producers.remove(producer)


def family_name(metric: Metric, of: str = "") -> str:
    """The name of a metric in Prometheus, without the suffix ``_total`` that totals get.

    ``of`` is "topic" or "broker" for those that each topic or broker has.
    """
    name = metric.name.removesuffix("-total").removesuffix("-ns").replace(".", "-")
    parts = ["bytes" if word == "byte" else word for word in name.split("-")]
    unit = _UNITS[metric.unit][0] if metric.unit in _UNITS else None
    if unit is not None and unit not in parts:
        parts.append(unit)
    return "_".join(["aioproducer", *([of] if of else []), *parts])


class _ProducerCollector(Collector):
    """The producers of one registry."""

    def __init__(self) -> None:
        self.producers = OpenProducers()

    def describe(self) -> Iterable[Family]:
        """All families without samples, so that the registry notices names that are used twice."""
        return _families([])

    def collect(self) -> Iterable[Family]:
        """All families with the current samples."""
        return _families(self.producers.current())


_collectors: weakref.WeakKeyDictionary[CollectorRegistry, _ProducerCollector] = weakref.WeakKeyDictionary()
_creating = threading.Lock()


def _collector_of(registry: CollectorRegistry) -> _ProducerCollector:
    with _creating:
        collector = _collectors.get(registry)
        if collector is None:
            collector = _ProducerCollector()
            registry.register(collector)
            _collectors[registry] = collector
        return collector


def _families(producers: list[AnyProducer]) -> Iterator[Family]:
    by_client = {producer.client_id: producer for producer in producers}  # a name used twice would spoil all samples
    healths = {client: producer.health() for client, producer in by_client.items()}
    yield from _health_families(healths)
    clients = by_client.items()
    yield from _number_families(METRICS, "", [([client], producer.metrics()) for client, producer in clients])
    of_topics = [
        ([client, topic], numbers)
        for client, producer in clients
        for topic, numbers in producer.metrics_by_topic().items()
    ]
    yield from _number_families(TOPIC_METRICS, "topic", of_topics)
    of_brokers = [
        ([client, str(broker)], numbers)
        for client, producer in clients
        for broker, numbers in producer.metrics_by_broker().items()
    ]
    yield from _number_families(BROKER_METRICS, "broker", of_brokers)
    histograms = {client: producer.metric_histograms() for client, producer in by_client.items()}
    for metric in HISTOGRAMS:
        family = HistogramMetricFamily(family_name(metric), metric.meaning, labels=["client_id"])
        for client, of_client in histograms.items():
            found = of_client[metric.name]
            family.add_metric([client], _buckets(found), found.total)
        yield family


def _health_families(healths: Mapping[str, Health]) -> Iterator[Family]:
    ready = GaugeMetricFamily(*_READY, labels=["client_id"])
    oldest = GaugeMetricFamily(*_OLDEST, labels=["client_id"])
    for client, health in healths.items():
        ready.add_metric([client], float(health.ready))
        oldest.add_metric([client], health.oldest_pending_s)
    yield from (ready, oldest)


def _number_families(
    metrics: Iterable[Metric], of: str, samples: list[tuple[list[str], Mapping[str, float]]]
) -> Iterator[Family]:
    labels = ["client_id", of] if of else ["client_id"]
    for metric in metrics:
        if metric.kind is Kind.RATE:
            continue  # Prometheus computes rates itself
        if metric.kind is Kind.SUMMARY and not of and metric.name.startswith(_WITH_HISTOGRAM):
            continue  # a histogram has it
        name, factor = family_name(metric, of), _UNITS.get(metric.unit, ("", 1.0))[1]
        kind = CounterMetricFamily if metric.kind is Kind.TOTAL else GaugeMetricFamily
        family = kind(name, metric.meaning, labels=labels)
        for values, numbers in samples:
            if metric.name in numbers:  # some exist only while the producer is started
                family.add_metric(values, numbers[metric.name] * factor)
        yield family


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    bounds = [repr(bound) for bound in histogram.bounds]
    return [*zip(bounds, map(float, histogram.counts), strict=True), ("+Inf", float(histogram.count))]
