"""Declares each metric: its name, which is Java's where Java has it, its kind, its unit and its meaning."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from aioproducer.metrics.rates import BROKER_RATES, PRODUCER_RATES, TOPIC_RATES

__all__ = [
    "BROKER_METRICS",
    "HISTOGRAMS",
    "METRICS",
    "TOPIC_METRICS",
    "Kind",
    "Metric",
]


class Kind(StrEnum):
    """The kind of a metric's number."""

    TOTAL = "total"  # it only grows
    NOW = "now"  # it goes up and down
    RATE = "rate"  # how fast a total grows, over the last 30 s
    SUMMARY = "summary"  # an average, a maximum or a percentile of all measurements


class Metric(NamedTuple):
    """One metric. ``unit`` is empty for a plain number."""

    name: str
    kind: Kind
    unit: str
    meaning: str


def _summaries(name: str, unit: str, meaning: str, *of: str) -> tuple[Metric, ...]:
    words = {
        "avg": "average",
        "max": "maximum",
        "p50": "median",
        "p99": "99th percentile",
        "p99.9": "99.9th percentile",
    }
    return tuple(Metric(f"{name}-{each}", Kind.SUMMARY, unit, f"{meaning}: {words[each]}") for each in of)


def _growth(metrics: Iterable[Metric], rates: Mapping[str, tuple[str, float]]) -> Iterator[Metric]:
    """The rates of these totals."""
    units = {metric.name: metric.unit for metric in metrics}
    for name, (total, _) in rates.items():
        if name.endswith("-ratio"):
            yield Metric(name, Kind.RATE, "", f"The growth of `{total}`, as a share of the time")
        else:
            yield Metric(name, Kind.RATE, f"{units[total]}/s", f"The growth of `{total}`")


_SPREAD: Final = ("avg", "max", "p50", "p99", "p99.9")

_OF_CONNECTIONS: Final = (
    Metric("request-total", Kind.TOTAL, "requests", "Requests sent, of all kinds"),
    Metric("response-total", Kind.TOTAL, "responses", "Responses received"),
    Metric("outgoing-byte-total", Kind.TOTAL, "bytes", "Bytes sent, before encryption"),
    Metric("incoming-byte-total", Kind.TOTAL, "bytes", "Bytes received, after decryption"),
    Metric("connection-creation-total", Kind.TOTAL, "connections", "Connections opened"),
    Metric("connection-close-total", Kind.TOTAL, "connections", "Connections that have ended"),
)
_REQUESTS: Final = _summaries("request-size", "bytes", "The size of a request, of any kind", "avg", "max")
_LATENCY: Final = _summaries("request-latency", "ms", "The time from a Produce request to its response", *_SPREAD)

_METRICS: Final = (
    Metric("record-send-total", Kind.TOTAL, "records", "Records written to the log, according to a broker"),
    Metric("record-delivered-total", Kind.TOTAL, "records", "The same, as the deliveries count them"),
    Metric("record-error-total", Kind.TOTAL, "records", "Records that failed, or were never accepted"),
    Metric("record-not-written-total", Kind.TOTAL, "records", "Accepted records that are certainly not in the log"),
    Metric("record-unknown-total", Kind.TOTAL, "records", "Accepted records that may be in the log or not"),
    Metric("record-retry-total", Kind.TOTAL, "records", "Records sent again, each time that they are"),
    Metric("byte-total", Kind.TOTAL, "bytes", "The size of the acknowledged batches on the wire"),
    Metric("batch-split-total", Kind.TOTAL, "batches", "Batches split because a broker found them too large"),
    Metric("buffer-exhausted-total", Kind.TOTAL, "records", "Records that found no room in `buffer_memory` in time"),
    Metric("bufferpool-wait-time-ns-total", Kind.TOTAL, "ns", "The time that calls have waited for room"),
    Metric("metadata-wait-time-ns-total", Kind.TOTAL, "ns", "The time that calls have waited for a topic's partitions"),
    Metric("flush-time-ns-total", Kind.TOTAL, "ns", "The time that calls of `flush()` have taken"),
    Metric("txn-init-time-ns-total", Kind.TOTAL, "ns", "The time of successful calls of `init_transactions()`"),
    Metric("txn-begin-time-ns-total", Kind.TOTAL, "ns", "The same of `begin_transaction()`"),
    Metric("txn-send-offsets-time-ns-total", Kind.TOTAL, "ns", "The same of `send_offsets_to_transaction()`"),
    Metric("txn-commit-time-ns-total", Kind.TOTAL, "ns", "The same of `commit_transaction()`"),
    Metric("txn-abort-time-ns-total", Kind.TOTAL, "ns", "The same of `abort_transaction()`"),
    *_OF_CONNECTIONS,
    Metric("produce-request-total", Kind.TOTAL, "requests", "Produce requests sent"),
    *_summaries("batch-size", "bytes", "The size of a batch on the wire", "avg", "max"),
    *_summaries("record-size", "bytes", "The size of a record before compression", "avg", "max"),
    *_summaries("records-per-request", "records", "Records in a Produce request", "avg"),
    *_summaries("compression-rate", "", "The size of a compressed batch, divided by its size before", "avg"),
    *_summaries("record-queue-time", "ms", "The time from a batch's first record until it is sent", *_SPREAD),
    *_REQUESTS,
    *_LATENCY,
    *_summaries("produce-throttle-time", "ms", "The time by which a broker has delayed requests", *_SPREAD),
    *_summaries(
        "event-loop-lag", "ms", "How late the event loop runs a timer, while records are on their way", *_SPREAD
    ),
    Metric("buffer-total-bytes", Kind.NOW, "bytes", "`buffer_memory`"),
    Metric("buffer-available-bytes", Kind.NOW, "bytes", "The free part of it"),
    Metric("waiting-threads", Kind.NOW, "calls", "Calls that wait for room in `buffer_memory`"),
    Metric("records-pending", Kind.NOW, "records", "Accepted records without an outcome"),
    Metric("oldest-record-age", Kind.NOW, "s", "The age of the oldest batch among them; 0 if there is none"),
    Metric(
        "stopped-partitions",
        Kind.NOW,
        "partitions",
        'Partitions that a lost record has stopped, with on_data_loss="stop"',
    ),
    Metric("connection-count", Kind.NOW, "connections", "Brokers that are connected"),
    Metric("requests-in-flight", Kind.NOW, "requests", "Requests without a response"),
    Metric("metadata-age", Kind.NOW, "s", "The time since the metadata was refreshed"),
    Metric("producer-epoch", Kind.NOW, "", "The epoch of the producer id; -1 before there is one"),
)

METRICS: Final = (*_METRICS, *_growth(_METRICS, PRODUCER_RATES))

_TOPIC_METRICS: Final = (
    Metric("record-send-total", Kind.TOTAL, "records", "Records written to the topic, according to a broker"),
    Metric("record-error-total", Kind.TOTAL, "records", "Accepted records for the topic that failed"),
    Metric("record-retry-total", Kind.TOTAL, "records", "Records sent again, each time that they are"),
    Metric("byte-total", Kind.TOTAL, "bytes", "The size of the acknowledged batches on the wire"),
)

TOPIC_METRICS: Final = (*_TOPIC_METRICS, *_growth(_TOPIC_METRICS, TOPIC_RATES))

_BROKER_METRICS: Final = (
    *_OF_CONNECTIONS,
    Metric(
        "in-flight-full-time-ns-total",
        Kind.TOTAL,
        "ns",
        "The time with all of `max_in_flight_requests_per_connection` in flight",
    ),
    *_REQUESTS,
    *_LATENCY,
    Metric("requests-in-flight", Kind.NOW, "requests", "Requests without a response"),
    Metric("oldest-request-age", Kind.NOW, "s", "The time since the oldest of them was sent, without announced delays"),
)

BROKER_METRICS: Final = (*_BROKER_METRICS, *_growth(_BROKER_METRICS, BROKER_RATES))

HISTOGRAMS: Final = (
    Metric("request-latency", Kind.SUMMARY, "s", "The time from a Produce request to its response"),
    Metric("record-queue-time", Kind.SUMMARY, "s", "The time from a batch's first record until it is sent"),
    Metric("event-loop-lag", Kind.SUMMARY, "s", "How late the event loop runs a timer, while records are on their way"),
    Metric("batch-size", Kind.SUMMARY, "bytes", "The size of a batch on the wire"),
    Metric("records-per-request", Kind.SUMMARY, "records", "Records in a Produce request"),
)
