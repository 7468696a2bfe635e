"""Counts what the producer does, and returns the metrics under the names of Java's producer-metrics.

All that other code touches is a plain number or a `Distribution`; names, averages and rates are computed only when they are
requested. The event loop's thread counts; any thread may read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aioproducer.metrics.distribution import Distribution, Histogram

__all__ = ["ProducerMetrics", "TopicMetrics", "Traffic"]


#: Powers of two, up to which the counts of a `Distribution` are exact: 122 us to 64 s, 64 bytes to 1 MiB, and plain numbers.
_SECONDS: Final = tuple(2.0**power for power in range(-13, 7))
_BYTES: Final = tuple(2.0**power for power in range(6, 21))
_NUMBERS: Final = tuple(2.0**power for power in range(13))


class TopicMetrics:
    """The metrics of one topic (Java's producer-topic-metrics)."""

    __slots__ = (
        "byte_total",
        "has_log_append_time",
        "largest_batch",
        "record_error_total",
        "record_retry_total",
        "record_send_total",
    )

    def __init__(self) -> None:
        self.largest_batch = 0  # that was acknowledged, in bytes on the wire
        self.has_log_append_time = False  # according to the last acknowledgement
        self.record_send_total = 0
        self.record_error_total = 0
        self.record_retry_total = 0
        self.byte_total = 0

    def as_mapping(self) -> Mapping[str, float]:
        """The metrics under Java's names."""
        return {
            "record-send-total": self.record_send_total,
            "record-error-total": self.record_error_total,
            "record-retry-total": self.record_retry_total,
            "byte-total": self.byte_total,
        }


class Traffic:
    """Counts of what all connections of a client have sent."""

    __slots__ = ("requests",)

    def __init__(self) -> None:
        self.requests = 0


class ProducerMetrics:
    """The metrics of one producer. Times are in seconds here, and in Java's units under Java's names."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicMetrics] = {}
        self._forgotten = TopicMetrics()  # the sums of removed topics
        self.records_delivered = 0
        self.records_refused = 0  # never accepted
        self.records_failed = 0  # accepted, and certainly not written
        self.records_unknown = 0
        self.record_retry_total = 0
        self.batch_split_total = 0
        self.buffer_exhausted_total = 0
        self.flush_time_s = 0.0
        self.pool_wait_s = 0.0
        self.produce_requests = 0
        self.traffic = Traffic()
        self.batch_size = Distribution()
        self.records_per_request = Distribution()
        self.compression_rate = Distribution()
        self.record_queue_time = Distribution()
        self.request_latency = Distribution()
        self.throttle_time = Distribution()  # of the answered requests that were throttled at all

    def waited_for_memory(self, seconds: float) -> None:
        """Add the time that a sender has waited for memory of the BufferPool."""
        self.pool_wait_s += seconds

    def topic(self, name: str) -> TopicMetrics:
        """The metrics of one topic; created at the first call."""
        found = self.topics.get(name)
        if found is None:
            found = self.topics[name] = TopicMetrics()
        return found

    def forget(self, topic: str) -> None:
        """Drop the metrics of a topic that is no longer used; the producer's totals do not change."""
        gone = self.topics.pop(topic, None)
        if gone is not None:
            self._forgotten.record_send_total += gone.record_send_total
            self._forgotten.byte_total += gone.byte_total

    def as_mapping(self) -> dict[str, float]:
        """All metrics, under the names of Java's producer-metrics, with `-p50`, `-p99` and `-p99.9` added."""
        topics = (*list(self.topics.values()), self._forgotten)
        out: dict[str, float] = {
            "record-send-total": sum(topic.record_send_total for topic in topics),
            "record-error-total": self.records_refused + self.records_failed + self.records_unknown,
            "record-delivered-total": self.records_delivered,
            "record-not-written-total": self.records_failed,
            "record-unknown-total": self.records_unknown,
            "record-retry-total": self.record_retry_total,
            "byte-total": sum(topic.byte_total for topic in topics),
            "batch-split-total": self.batch_split_total,
            "buffer-exhausted-total": self.buffer_exhausted_total,
            "bufferpool-wait-time-ns-total": self.pool_wait_s * 1e9,
            "flush-time-ns-total": self.flush_time_s * 1e9,
            "request-total": self.traffic.requests,
            "produce-request-total": self.produce_requests,
            "batch-size-avg": self.batch_size.average,
            "batch-size-max": self.batch_size.maximum,
            "records-per-request-avg": self.records_per_request.average,
            "compression-rate-avg": self.compression_rate.average,
        }
        for name, spread in (
            ("record-queue-time", self.record_queue_time),
            ("request-latency", self.request_latency),
            ("produce-throttle-time", self.throttle_time.among(self.request_latency.count)),
        ):
            out[f"{name}-avg"] = spread.average * 1e3
            out[f"{name}-max"] = spread.maximum * 1e3
            out[f"{name}-p50"] = spread.percentile(0.50) * 1e3
            out[f"{name}-p99"] = spread.percentile(0.99) * 1e3
            out[f"{name}-p99.9"] = spread.percentile(0.999) * 1e3
        return out

    def by_topic(self) -> dict[str, Mapping[str, float]]:
        """The metrics of each topic that has any."""
        return {name: topic.as_mapping() for name, topic in list(self.topics.items())}

    def histograms(self) -> dict[str, Histogram]:
        """The distributions behind averages and percentiles, with times in seconds; see `names.HISTOGRAMS`."""
        return {
            "request-latency": self.request_latency.histogram(_SECONDS),
            "record-queue-time": self.record_queue_time.histogram(_SECONDS),
            "batch-size": self.batch_size.histogram(_BYTES),
            "records-per-request": self.records_per_request.histogram(_NUMBERS),
        }
