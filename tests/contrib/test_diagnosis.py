"""Each finding of the diagnosis, from two snapshots that differ in what it is about."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from aioproducer import BrokerConnectionError
from aioproducer.contrib.diagnosis import Finding, Latency, Options, Snapshot, Window, diagnose
from aioproducer.metrics.distribution import Distribution, Histogram
from aioproducer.types import Health, HealthStatus

SECONDS = tuple(2.0**power for power in range(-13, 7))
BYTES = tuple(2.0**power for power in range(6, 21))


def histogram(*values: float, bounds: tuple[float, ...] = SECONDS) -> Histogram:
    """The histogram of these measurements."""
    measured = Distribution()
    for value in values:
        measured.observe(value)
    return measured.histogram(bounds)


def ready(**numbers: Any) -> Health:
    return Health(HealthStatus.READY, connected_brokers=(1, 2, 3), **numbers)


def snapshot(**parts: Any) -> Snapshot:
    return Snapshot(**{"time": 103.0, "health": ready(), **parts})


BEFORE = Snapshot(100.0, ready(), options=Options())


def only(after: Snapshot, before: Snapshot | None = BEFORE) -> Finding:
    (finding,) = diagnose(before, after)
    return finding


def test_a_healthy_producer_has_one_sentence() -> None:
    after = snapshot(
        metrics={"record-send-total": 3600.0},
        histograms={"request-latency": histogram(*[0.003] * 100)},
        by_broker={1: {"oldest-request-age": 0.01, "requests-in-flight": 1.0, "in-flight-full-time-ns-total": 1e8}},
    )

    assert only(after) == Finding("ok", "All is well: 1,200 records a second, and brokers answer in 3 ms.")


def test_an_idle_producer_has_its_own_sentence() -> None:
    assert only(snapshot()) == Finding("ok", "The producer is idle: no record waits, and nothing is wrong.")


def test_one_snapshot_has_no_rates() -> None:
    after = snapshot(metrics={"record-send-total": 3600.0, "record-unknown-total": 1.0, "event-loop-lag-max": 900.0})

    assert only(after, None) == Finding("ok", "The producer is connected, and nothing is wrong.")


@pytest.mark.parametrize(
    ("status", "level", "beginning"),
    [
        (HealthStatus.CREATED, "note", "The producer is not started."),
        (HealthStatus.STARTING, "note", "The producer is starting"),
        (HealthStatus.CLOSING, "note", "The producer is closing"),
        (HealthStatus.CLOSED, "note", "The producer is closed."),
        (HealthStatus.DEGRADED, "problem", "No broker is connected."),
        (HealthStatus.FAILED, "problem", "The producer has failed"),
    ],
)
def test_each_state_that_is_not_ready_is_named(status: HealthStatus, level: str, beginning: str) -> None:
    found = only(snapshot(health=Health(status)))

    assert found.level == level
    assert found.text.startswith(beginning)


def test_a_producer_that_never_reached_a_broker_is_a_problem() -> None:
    found = only(snapshot(health=Health(HealthStatus.STARTING, error=BrokerConnectionError("Connection refused."))))

    assert (found.level, found.text) == ("problem", "No broker has answered yet: Connection refused.")


def test_a_stalled_broker_needs_no_larger_batches() -> None:
    numbers = {"in-flight-full-time-ns-total": 3e9, "oldest-request-age": 5.0, "requests-in-flight": 5.0}

    assert only(snapshot(by_broker={1: numbers})).level == "problem"


def test_the_last_error_is_the_reason() -> None:
    health = Health(HealthStatus.DEGRADED, error=BrokerConnectionError("Could not connect to broker 1\n(kafka:9092)"))

    assert only(snapshot(health=health)).text == "No broker is connected: Could not connect to broker 1 (kafka:9092)."


def test_a_thread_that_does_not_respond_is_a_problem() -> None:
    assert only(snapshot(silent_s=3.2)).text == "The producer's thread has not responded for 3.2 s."


def test_a_stalled_broker_is_a_problem_even_with_one_snapshot() -> None:
    brokers = {2: {"oldest-request-age": 2.5, "requests-in-flight": 3.0}, 1: {"oldest-request-age": 1.9}}

    found = only(snapshot(by_broker=brokers), None)

    assert (found.level, found.text) == ("problem", "Broker 2 has not answered for 2.5 s: 3 requests wait for it.")


def test_a_slow_broker_is_compared_with_the_others() -> None:
    earlier = histogram(*[0.003] * 100)
    before = replace(BEFORE, latency_by_broker={1: earlier, 2: earlier, 3: earlier})
    usual, slow = histogram(*[0.003] * 200), histogram(*[0.003] * 100, *[0.48] * 5)
    after = snapshot(
        latency_by_broker={1: usual, 2: slow, 3: usual},
        by_broker={1: {}, 2: {}, 3: {}},
        metrics={"record-send-total": 1},
    )

    found = only(after, before)

    assert (found.level, found.text) == ("warning", "Broker 2 answers in 480 ms, the others in 3 ms.")


def test_brokers_that_are_equally_slow_are_not_compared() -> None:
    slow = histogram(*[0.48] * 5)

    assert only(snapshot(latency_by_broker={1: slow, 2: slow}, by_broker={1: {}, 2: {}})).level == "ok"


def test_all_requests_in_flight_most_of_the_time() -> None:
    brokers = {1: {"in-flight-full-time-ns-total": 2.7e9}, 2: {"in-flight-full-time-ns-total": 1.2e9}}

    text = only(snapshot(by_broker=brokers)).text

    assert text == "Broker 1 had all of its 5 requests in flight for 90% of the time: batches wait for it."


def test_a_blocked_event_loop_is_named_with_its_time() -> None:
    assert only(snapshot(metrics={"event-loop-lag-max": 120.0})) == Finding(
        "warning",
        "Your event loop was blocked for 120 ms: responses were read so late.",
        "Run long calls in a thread: `await asyncio.to_thread(...)`.",
    )


def test_a_block_that_is_not_the_longest_ever_is_that_of_the_window() -> None:
    before = replace(BEFORE, metrics={"event-loop-lag-max": 900.0}, histograms={"event-loop-lag": histogram(0.9)})
    quiet = snapshot(metrics=before.metrics, histograms={"event-loop-lag": histogram(0.9, *[0.001] * 30)})
    blocked = snapshot(metrics=before.metrics, histograms={"event-loop-lag": histogram(0.9, 0.12)})

    assert only(quiet, before).level == "ok", "the long one was before"
    assert "blocked for up to 120 ms" in only(blocked, before).text


@pytest.mark.parametrize(("waiting", "text"), [(14, "14 callers wait"), (1, "1 caller waits")])
def test_a_full_buffer_is_a_problem(waiting: int, text: str) -> None:
    found = only(snapshot(health=ready(waiting_senders=waiting, pressure=1.0)))

    assert (found.level, found.text) == ("problem", f"The buffer is full: {text}.")


def test_a_buffer_that_is_nearly_full_is_a_warning() -> None:
    found = only(snapshot(health=ready(pressure=0.85)))

    assert (found.level, found.text) == ("warning", "The buffer is 85% full, of 32 MiB.")
    assert only(snapshot(health=ready(pressure=0.79))).level == "ok"


def test_records_that_failed_are_counted_by_their_outcome() -> None:
    metrics = {"record-not-written-total": 3.0, "record-unknown-total": 1.0, "buffer-exhausted-total": 2.0}
    after = snapshot(metrics=metrics, by_topic={"orders": {"record-error-total": 4.0}, "clicks": {}})

    assert [(found.level, found.text) for found in diagnose(BEFORE, after)] == [
        ("warning", "3 records of 'orders' failed, and are not in the log."),
        ("warning", "1 record may be in the log or not: no broker has acknowledged it."),
        ("warning", "2 records found no room in the buffer in time."),
    ]
    assert only(replace(after, time=110.0), after).level == "ok", "nothing has failed since"


def test_retries_are_named_by_topic() -> None:
    topics = {f"topic-{number}": {"record-retry-total": 2.0} for number in range(7)}

    assert only(snapshot(by_topic=topics)).text == (
        "14 records of 'topic-0', 'topic-1', 'topic-2', 'topic-3', 'topic-4' and 2 more were sent again."
    )


def test_throttling_is_the_delay_in_the_window() -> None:
    latency = histogram(*[0.003] * 10)
    after = snapshot(metrics={"produce-throttle-time-avg": 50.0}, histograms={"request-latency": latency})

    assert only(after).text == "Brokers have delayed requests by 500 ms in the last 3.0 s."


def test_a_linger_for_few_records_is_one_for_nothing() -> None:
    after = snapshot(
        metrics={"record-send-total": 20.0},
        histograms={
            "record-queue-time": histogram(*[0.05] * 10),
            "batch-size": histogram(*[100.0] * 10, bounds=BYTES),
        },
        options=Options(linger_ms=50),
    )

    assert only(after).text == "You linger 50 ms with batches of 2 records."
    assert only(replace(after, options=Options(linger_ms=5))).level == "ok"
    assert only(replace(after, metrics={"record-send-total": 2_000.0})).level == "ok", "the batches are full"


def test_an_old_record_is_a_warning() -> None:
    found = only(snapshot(health=ready(oldest_pending_s=12.0, pending_records=1)))

    assert (found.level, found.text) == ("warning", "The oldest record has waited for 12 s for its acknowledgement.")


def test_the_worst_finding_is_the_first() -> None:
    after = snapshot(
        health=ready(waiting_senders=1, pressure=1.0),
        by_topic={"orders": {"record-retry-total": 1.0}},
        metrics={"event-loop-lag-max": 200.0},
    )

    assert [found.level for found in diagnose(BEFORE, after)] == ["problem", "warning", "note"]


def test_percentiles_are_those_of_the_window() -> None:
    before, after = histogram(*[8.0] * 50), histogram(*[8.0] * 50, *[0.003] * 98, 0.4, 0.4)

    found = Latency.between(before, after)

    assert found.count == 100
    assert found.mean == pytest.approx((98 * 0.003 + 0.8) / 100)
    assert 0.002 <= found.p50 <= 0.004
    assert 0.25 <= found.p99 <= 0.5
    assert Latency.between(after, after) == Latency.between(None, None) == Latency(0, 0.0, 0.0, 0.0, 0.0)


def test_a_total_that_is_new_in_the_window_counts_from_zero() -> None:
    window = Window(BEFORE, snapshot(by_topic={"orders": {"record-error-total": 4.0}}))

    assert window.grown_by_topic("record-error-total") == {"orders": 4.0}
