"""Counts what the producer does, and returns the metrics under the names of Java's producer-metrics.

All that other code touches is a plain number or a `Distribution`; names, averages and rates are computed only when they are
requested.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

__all__ = ["Distribution", "ProducerMetrics", "TopicMetrics", "Traffic"]

# Upper bounds: zero, and then each a fifth larger. Percentiles are right to about 10 %, over eleven decades.
_BOUNDS: tuple[float, ...] = (0.0, *(1e-6 * 1.2**step for step in range(140)))
_MOST_RECENT = 100


class Distribution:
    """The distribution of a measured number: count, sum, extremes, and percentiles to about 10 %.

    Measurements are stored first and counted a hundred at a time: a lone ``send()`` takes four, when the processor's caches
    are cold, and counting each of them at once took 3 us of its 65.
    """

    __slots__ = ("_buckets", "_count", "_maximum", "_recent", "_total")

    def __init__(self) -> None:
        self._count = 0
        self._total = 0.0
        self._maximum = 0.0
        self._buckets = [0] * (len(_BOUNDS) + 1)
        self._recent: list[float] = []  # not counted yet

    def observe(self, value: float) -> None:
        """Take one measurement."""
        recent = self._recent
        recent.append(value)
        if len(recent) >= _MOST_RECENT:
            self._settle()

    @property
    def count(self) -> int:
        """The number of measurements."""
        return self._count + len(self._recent)

    @property
    def total(self) -> float:
        """Their sum."""
        self._settle()
        return self._total

    @property
    def maximum(self) -> float:
        """The largest one; 0.0 if nothing was measured."""
        self._settle()
        return self._maximum

    @property
    def average(self) -> float:
        """The mean; 0.0 if nothing was measured."""
        return self.total / self.count if self.count else 0.0

    def percentile(self, fraction: float) -> float:
        """The value that this fraction of the measurements does not exceed, to about 10 %."""
        self._settle()
        rank = fraction * self._count
        seen = 0
        for bound, count in zip(_BOUNDS, self._buckets, strict=False):  # the last one has no upper bound
            seen += count
            if count and seen >= rank:
                return min(bound, self._maximum)
        return self._maximum

    def among(self, total: int) -> Distribution:
        """A copy in which these measurements are some of ``total``, and the others are zero."""
        self._settle()
        whole = Distribution()
        whole._count, whole._total, whole._maximum = total, self._total, self._maximum
        whole._buckets = [total - self._count + self._buckets[0], *self._buckets[1:]]
        return whole

    def _settle(self) -> None:
        """Count the stored measurements."""
        recent, self._recent = self._recent, []
        if not recent:
            return
        self._count += len(recent)
        self._total += sum(recent)
        self._maximum = max(self._maximum, *recent)
        for value in recent:
            self._buckets[bisect_left(_BOUNDS, value)] += 1


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
        topics = (*self.topics.values(), self._forgotten)
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
