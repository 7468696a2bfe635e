"""Gives a producer's metrics the names under which clients push them to brokers (KIP-714)."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from aioproducer.metrics.application import ApplicationMetric
from aioproducer.metrics.names import BROKER_METRICS, METRICS, TOPIC_METRICS, Kind, Metric

__all__ = ["Point", "broker_points", "objection", "point_name", "producer_points", "topic_points"]

_PREFIX: Final = "org.apache.kafka.producer"


class Point(NamedTuple):
    """The current number of one metric. A total only grows, and covers the time since ``began`` (ns since 1970)."""

    name: str
    number: float
    is_total: bool
    unit: str
    meaning: str
    attributes: tuple[tuple[str, str], ...] = ()
    began: int = 0


def point_name(metric: Metric, of: str = "") -> str:
    """The name of a metric; ``of`` is "topic" or "node" for those that each topic or broker has.

    As Java's: ``record-send-total`` of a topic is ``org.apache.kafka.producer.topic.record.send.total``.
    """
    return ".".join([_PREFIX, *([of] if of else []), metric.name.replace("-", ".")])


def objection(metric: ApplicationMetric, taken: Container[str]) -> str | None:
    """The reason why a metric of the application cannot be pushed; None if it can."""
    name = metric.name
    texts = (name, metric.unit, metric.meaning, *metric.attributes, *metric.attributes.values())
    if not all(map(_is_text, texts)):
        return f"Invalid metric {name!r}: its name, unit, meaning and attributes must be texts that UTF-8 can encode."
    if not name:
        return "A metric needs a name."
    if name.startswith(_PREFIX):
        return (
            f"Invalid name {name!r} of a metric: {_PREFIX} is the beginning of the producer's own. Choose another one."
        )
    if name in taken:
        return f"A metric called {name!r} is registered already. Unregister it first, or choose another name."
    return None


def _is_text(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(value.encode() or True)
    except UnicodeEncodeError:
        return False


def producer_points(numbers: Mapping[str, float]) -> Iterator[Point]:
    """The points of the whole producer's metrics."""
    return _points(METRICS, "", numbers, ())


def topic_points(numbers: Mapping[str, Mapping[str, float]]) -> Iterator[Point]:
    """The points of all topics' metrics."""
    for topic, of_topic in numbers.items():
        yield from _points(TOPIC_METRICS, "topic", of_topic, (("topic", topic),))


def broker_points(numbers: Mapping[int, Mapping[str, float]]) -> Iterator[Point]:
    """The points of all brokers' metrics."""
    for broker, of_broker in numbers.items():
        yield from _points(BROKER_METRICS, "node", of_broker, (("node_id", f"node-{broker}"),))


def _points(
    metrics: Iterable[Metric], of: str, numbers: Mapping[str, float], attributes: tuple[tuple[str, str], ...]
) -> Iterator[Point]:
    for metric in metrics:
        if metric.name in numbers:  # some exist only while the producer is started
            is_total = metric.kind is Kind.TOTAL
            name = point_name(metric, of)
            yield Point(name, numbers[metric.name], is_total, metric.unit, metric.meaning, attributes)
