"""Counts what the producer does, and returns the metrics under the names of Java's producer-metrics.

All that other code touches is a plain number or a `Distribution`; names, averages and rates are computed only when they are
requested. The event loop's thread counts; any thread may read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from aioproducer.metrics.distribution import Distribution, Histogram
from aioproducer.metrics.rates import BROKER_RATES, PRODUCER_RATES, TOPIC_RATES, Rates, Totals

if TYPE_CHECKING:
    from aioproducer.metrics.application import ApplicationMetric

__all__ = ["BrokerMetrics", "ProducerMetrics", "TopicMetrics"]


#: Powers of two, up to which the counts of a `Distribution` are exact: 122 us to 64 s, 64 bytes to 1 MiB, and plain numbers.
_SECONDS: Final = tuple(2.0**power for power in range(-13, 7))
_BYTES: Final = tuple(2.0**power for power in range(6, 21))
_NUMBERS: Final = tuple(2.0**power for power in range(13))


#: With more topics than this there are no rates of topics: a sample of 10,000 took 18 ms, and ten of them 23 MB.
_MOST_TOPICS_WITH_RATES: Final = 1_000

#: The calls about transactions, and the beginning of their metric's name.
_TRANSACTION_CALLS: Final = {
    "init_transactions": "txn-init",
    "begin_transaction": "txn-begin",
    "send_offsets_to_transaction": "txn-send-offsets",
    "commit_transaction": "txn-commit",
    "abort_transaction": "txn-abort",
}


def _in_ms(name: str, measured: Distribution) -> dict[str, float]:
    spread = measured.snapshot()
    return {
        f"{name}-avg": spread.average * 1e3,
        f"{name}-max": spread.maximum * 1e3,
        f"{name}-p50": spread.percentile(0.50) * 1e3,
        f"{name}-p99": spread.percentile(0.99) * 1e3,
        f"{name}-p99.9": spread.percentile(0.999) * 1e3,
    }


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

    def totals(self) -> dict[str, float]:
        """The numbers that only grow, under Java's names."""
        return {
            "record-send-total": self.record_send_total,
            "record-error-total": self.record_error_total,
            "record-retry-total": self.record_retry_total,
            "byte-total": self.byte_total,
        }


class BrokerMetrics:
    """The metrics of all connections to one broker, or to one bootstrap server (Java's producer-node-metrics).

    Sizes are in bytes, before encryption.
    """

    __slots__ = (
        "_full",
        "_full_shown",
        "bytes_in",
        "bytes_out",
        "connections_closed",
        "connections_created",
        "full_since",
        "largest_request",
        "parts",
        "request_latency",
        "requests",
        "responses",
    )

    def __init__(self) -> None:
        self.parts: Sequence[BrokerMetrics] = ()  # those whose counts it has taken over
        self.requests = 0
        self.responses = 0
        self.largest_request = 0  # in bytes
        self.full_since: float | None = None  # the time since when no further request is allowed in flight
        #: The sum of such times that are over, and the same time; replaced as one, for readers in other threads.
        self._full: tuple[float, float | None] = (0.0, None)
        self._full_shown = 0.0
        self.bytes_out = 0
        self.bytes_in = 0
        self.connections_created = 0
        self.connections_closed = 0
        self.request_latency = Distribution()  # of Produce requests

    @classmethod
    def of_all(cls, parts: Sequence[BrokerMetrics]) -> BrokerMetrics:
        """The sums of these."""
        whole = cls()
        for part in parts:
            whole.requests += part.requests
            whole.responses += part.responses
            whole.largest_request = max(whole.largest_request, part.largest_request)
            whole.full_since = whole.full_since or part.full_since
            whole._full = whole._full[0] + part._full[0], whole.full_since
            whole.bytes_out += part.bytes_out
            whole.bytes_in += part.bytes_in
            whole.connections_created += part.connections_created
            whole.connections_closed += part.connections_closed
        whole.request_latency = Distribution.of_all([part.request_latency for part in parts])
        return whole

    def begin_full(self, now: float) -> None:
        """No further request is allowed in flight."""
        if self.full_since is None:
            self.full_since = now
            self._full = self._full[0], now

    def end_full(self, now: float) -> None:
        """Further requests are allowed again."""
        if self.full_since is not None:
            self._full = self._full[0] + now - self.full_since, None
            self.full_since = None

    def totals(self, now: float | None) -> dict[str, float]:
        """The numbers that only grow, under Java's names."""
        full_s, since = self._full
        full_s += 0.0 if since is None or now is None else max(0.0, now - since)
        full_s = self._full_shown = max(self._full_shown, full_s)  # `now` may be a moment older than the rest
        return {
            "request-total": self.requests,
            "response-total": self.responses,
            "outgoing-byte-total": self.bytes_out,
            "incoming-byte-total": self.bytes_in,
            "connection-creation-total": self.connections_created,
            "connection-close-total": self.connections_closed,
            "in-flight-full-time-ns-total": full_s * 1e9,
        }

    def summaries(self) -> dict[str, float]:
        """Averages, maxima and percentiles, under Java's names."""
        return {
            "request-size-avg": self.bytes_out / self.requests if self.requests else 0.0,
            "request-size-max": self.largest_request,
            **_in_ms("request-latency", self.request_latency),
        }


class ProducerMetrics:
    """The metrics of one producer. Times are in seconds here, and in Java's units under Java's names."""

    def __init__(self) -> None:
        #: By topic; under None the sums of topics that were removed.
        self._topics: dict[str | None, TopicMetrics] = {None: TopicMetrics()}
        self.records_delivered = 0
        self.records_refused = 0  # never accepted
        self.records_failed = 0  # accepted, and certainly not written
        self.records_unknown = 0
        self.record_retry_total = 0
        self.batch_split_total = 0
        self.buffer_exhausted_total = 0
        self.flush_time_s = 0.0
        self.pool_wait_s = 0.0
        self.metadata_wait_s = 0.0
        self.produce_requests = 0
        self.batched_records = 0  # that were sent at least once
        self.batched_bytes = 0  # of these, before compression
        self.largest_record = 0  # in bytes, before compression
        self.brokers: dict[int, BrokerMetrics] = {}  # bootstrap servers have negative ids
        #: The time of successful calls, in seconds, by their name.
        self.transaction_time_s = dict.fromkeys(_TRANSACTION_CALLS, 0.0)
        self.batch_size = Distribution()
        self.records_per_request = Distribution()
        self.compression_rate = Distribution()
        self.record_queue_time = Distribution()
        self.throttle_time = Distribution()  # of the answered requests that were throttled at all
        self.event_loop_lag = Distribution()
        self.application: dict[str, ApplicationMetric] = {}
        self.rates = Rates()

    def waited_for_memory(self, seconds: float) -> None:
        """Add the time that a sender has waited for memory of the BufferPool."""
        self.pool_wait_s += seconds

    def broker(self, node_id: int) -> BrokerMetrics:
        """The metrics of one broker; created at the first call."""
        found = self.brokers.get(node_id)
        if found is None:
            found = self.brokers[node_id] = BrokerMetrics()
        return found

    def adopt(self, bootstrap_id: int, node_id: int) -> BrokerMetrics:
        """A bootstrap server is this broker: its counts become the broker's, which are returned.

        The earlier connection to the broker must have ended.
        """
        brokers = dict(self.brokers)  # replaced as one: in no other thread may a sum go back
        found, before = brokers.get(node_id), brokers.pop(bootstrap_id, None)
        parts = [each for each in (found, before) if each is not None]
        whole = parts[0] if len(parts) == 1 else BrokerMetrics.of_all(parts)
        if len(parts) > 1:
            whole.parts = parts
            for part in parts:
                part.parts = ()  # the samples of a window need no older ones
        brokers[node_id] = whole
        self.brokers = brokers
        return whole

    def waited_for_transaction(self, call: str, seconds: float) -> None:
        """Add the time of a call about transactions that has succeeded."""
        if call in self.transaction_time_s:
            self.transaction_time_s[call] += seconds

    def topic(self, name: str) -> TopicMetrics:
        """The metrics of one topic; created at the first call."""
        found = self._topics.get(name)
        if found is None:
            found = self._topics[name] = TopicMetrics()
        return found

    def forget(self, topic: str) -> None:
        """Drop the metrics of a topic that is no longer used; the producer's totals do not change."""
        topics = dict(self._topics)  # replaced as one: in no other thread may a sum go back
        gone = topics.pop(topic, None)
        if gone is not None:
            before, topics[None] = topics[None], (sums := TopicMetrics())
            sums.record_send_total = before.record_send_total + gone.record_send_total
            sums.byte_total = before.byte_total + gone.byte_total
            self._topics = topics

    # -- under their names --------------------------------------------------------------------------------------------

    def sample(self, now: float) -> Totals:
        """All totals of now, for rates: of the producer, of topics if they are not too many, and of brokers."""
        topics = [] if self._has_too_many_topics else list(self._topics.values())
        return {
            self: self._totals(),
            **{topic: topic.totals() for topic in topics},
            **{broker: broker.totals(now) for broker in list(self.brokers.values())},
        }

    @property
    def _has_too_many_topics(self) -> bool:
        return len(self._topics) > _MOST_TOPICS_WITH_RATES

    def as_mapping(self, now: float | None = None) -> dict[str, float]:
        """All metrics, under the names of Java's producer-metrics, with `-p50`, `-p99` and `-p99.9` added.

        ``now`` is the event loop's time, for the rates; None: there is no event loop, and all rates are 0.
        """
        totals, growth = self._totals(), self.rates.growth(now)
        brokers = BrokerMetrics.of_all(list(self.brokers.values()))
        batch_size = self.batch_size.snapshot()
        return {
            **totals,
            **growth.rates(PRODUCER_RATES, self, totals),
            "batch-size-avg": batch_size.average,
            "batch-size-max": batch_size.maximum,
            "record-size-avg": self.batched_bytes / self.batched_records if self.batched_records else 0.0,
            "record-size-max": self.largest_record,
            "records-per-request-avg": self.records_per_request.average,
            "compression-rate-avg": self.compression_rate.average,
            **brokers.summaries(),
            **_in_ms("record-queue-time", self.record_queue_time),
            **_in_ms("produce-throttle-time", self.throttle_time.among(brokers.request_latency.count)),
            **_in_ms("event-loop-lag", self.event_loop_lag),
        }

    def _totals(self) -> dict[str, float]:
        topics = list(self._topics.values())
        brokers = list(self.brokers.values())
        return {
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
            "metadata-wait-time-ns-total": self.metadata_wait_s * 1e9,
            "flush-time-ns-total": self.flush_time_s * 1e9,
            **{
                f"{name}-time-ns-total": self.transaction_time_s[call] * 1e9
                for call, name in _TRANSACTION_CALLS.items()
            },
            "request-total": sum(broker.requests for broker in brokers),
            "response-total": sum(broker.responses for broker in brokers),
            "outgoing-byte-total": sum(broker.bytes_out for broker in brokers),
            "incoming-byte-total": sum(broker.bytes_in for broker in brokers),
            "connection-creation-total": sum(broker.connections_created for broker in brokers),
            "connection-close-total": sum(broker.connections_closed for broker in brokers),
            "produce-request-total": self.produce_requests,
        }

    def by_topic(self, now: float | None = None, only: str | None = None) -> dict[str, Mapping[str, float]]:
        """The metrics of each topic that has any, or of only one; without rates if the topics are too many."""
        topics = list(self._topics.items()) if only is None else [(only, self._topics.get(only))]
        growth = None if self._has_too_many_topics else self.rates.growth(now)
        found: dict[str, Mapping[str, float]] = {}
        for name, topic in topics:
            if name is not None and topic is not None:
                totals = topic.totals()
                found[name] = totals if growth is None else totals | growth.rates(TOPIC_RATES, topic, totals)
        return found

    def by_broker(self, now: float | None = None) -> dict[int, Mapping[str, float]]:
        """The metrics of each broker that was connected, by its id."""
        growth = self.rates.growth(now)
        found: dict[int, Mapping[str, float]] = {}
        for node_id, broker in list(self.brokers.items()):
            if node_id >= 0:
                totals = broker.totals(now)
                rates = growth.rates(BROKER_RATES, broker, totals, broker.parts)
                found[node_id] = totals | rates | broker.summaries()
        return found

    def histograms(self) -> dict[str, Histogram]:
        """The distributions behind averages and percentiles, with times in seconds; see `names.HISTOGRAMS`."""
        return {
            "request-latency": BrokerMetrics.of_all(list(self.brokers.values())).request_latency.histogram(_SECONDS),
            "record-queue-time": self.record_queue_time.histogram(_SECONDS),
            "event-loop-lag": self.event_loop_lag.histogram(_SECONDS),
            "batch-size": self.batch_size.histogram(_BYTES),
            "records-per-request": self.records_per_request.histogram(_NUMBERS),
        }

    def histograms_by_broker(self) -> dict[int, dict[str, Histogram]]:
        """The distribution of `request-latency`, in seconds, of each broker that was connected, by its id."""
        return {
            node_id: {"request-latency": broker.request_latency.histogram(_SECONDS)}
            for node_id, broker in list(self.brokers.items())
            if node_id >= 0
        }
