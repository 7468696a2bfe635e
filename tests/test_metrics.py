"""The numbers: right to about ten percent where they are spread, exact where they are counted."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

from aioproducer.metrics.distribution import Distribution
from aioproducer.metrics.producer import ProducerMetrics

T = TypeVar("T")


def test_percentiles_are_right_to_about_ten_percent() -> None:
    spread = Distribution()
    numbers = random.Random(1)
    values = sorted(numbers.expovariate(100) for _ in range(10_000))
    for value in values:
        spread.observe(value)

    for fraction in (0.5, 0.9, 0.99, 0.999):
        exact = values[int(fraction * len(values)) - 1]
        assert abs(spread.percentile(fraction) - exact) < 0.2 * exact
    assert spread.percentile(1.0) == spread.maximum == values[-1]
    assert abs(spread.average - sum(values) / len(values)) < 1e-9


def test_nothing_measured_is_zero() -> None:
    assert (Distribution().average, Distribution().percentile(0.99), Distribution().maximum) == (0.0, 0.0, 0.0)


def test_totals_add_up_over_the_topics() -> None:
    metrics = ProducerMetrics()
    metrics.topic("a").record_send_total = 3
    metrics.topic("b").record_send_total = 4
    metrics.records_failed, metrics.records_unknown = 1, 2

    numbers = metrics.as_mapping()

    assert numbers["record-send-total"] == 7
    assert numbers["record-error-total"] == 3
    assert metrics.topic("a").totals()["record-send-total"] == 3


def test_a_histogram_counts_up_to_powers_of_two_exactly() -> None:
    spread = Distribution()
    values = [0.0, 2.0**-20, 0.001, 2.0**-9, 0.5, 0.5001, 1.0, 3.0, 2.0**21, 2.0**22]
    for value in values:
        spread.observe(value)
    bounds = (0.0, 2.0**-20, 2.0**-9, 0.5, 1.0, 4.0, 2.0**21)

    found = spread.histogram(bounds)

    assert found.bounds == bounds
    assert found.counts == tuple(sum(value <= bound for value in values) for bound in bounds)
    assert (found.count, found.total) == (10, sum(values))


def read_at_each_step(work: Callable[[], object], read: Callable[[], T]) -> list[T]:
    """A list of all that another thread could read while this one works: a value at each step of the interpreter."""
    seen: list[T] = []

    def step(frame: FrameType, event: str, _: Any) -> Any:
        frame.f_trace_opcodes = True
        seen.append(read())
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        work()
    finally:
        sys.settrace(before)
    return seen


def test_a_sum_never_goes_back_in_another_thread() -> None:
    metrics = ProducerMetrics()
    metrics.topic("orders").record_send_total = 3
    for node_id in (-1, 7):
        metrics.broker(node_id).requests = 2

    def work() -> None:
        metrics.forget("orders")
        metrics.adopt(-1, 7)

    def read() -> tuple[float, float]:
        numbers = metrics.as_mapping()
        return numbers["record-send-total"], numbers["request-total"]

    seen = read_at_each_step(work, read)

    assert len(seen) > 100
    assert set(seen) == {(3, 4)}
    assert set(metrics.brokers) == {7}
    assert not metrics.by_topic()


def test_another_thread_reads_each_measurement_once() -> None:
    spread = Distribution()

    def work() -> None:
        for _ in range(250):
            spread.observe(1.0)

    def read() -> tuple[int, float, int]:
        found = spread.histogram((1.0,))
        return found.count, found.total, found.counts[0]

    seen = read_at_each_step(work, read)

    assert all(count == total == below for count, total, below in seen)
    assert [count for count, _, _ in seen] == sorted(count for count, _, _ in seen)
    assert {count for count, _, _ in seen} == set(range(251))


def test_the_counts_of_a_bootstrap_server_become_those_of_its_broker() -> None:
    metrics = ProducerMetrics()
    for node_id in (-1, -2, 7):
        broker = metrics.broker(node_id)
        broker.requests, broker.bytes_out, broker.connections_created = 1, 10, 1
        broker.request_latency.observe(0.5)

    adopted = metrics.adopt(-2, 7)

    assert adopted is metrics.broker(7)
    assert set(metrics.brokers) == {-1, 7}
    numbers = metrics.by_broker()
    assert list(numbers) == [7], "those of bootstrap servers are only in the sums"
    assert (numbers[7]["request-total"], numbers[7]["outgoing-byte-total"]) == (2, 20)
    assert (adopted.connections_created, adopted.request_latency.count) == (2, 2)
    assert metrics.as_mapping()["request-total"] == 3
    assert metrics.adopt(-1, 8).requests == 1, "a broker that was not connected before"


def test_distributions_add_up() -> None:
    parts = [Distribution() for _ in range(3)]
    for number, part in enumerate(parts[:2], 1):
        for _ in range(150):
            part.observe(number)

    whole = Distribution.of_all(parts)

    assert (whole.count, whole.total, whole.maximum) == (300, 450.0, 2)
    assert whole.histogram((1.0, 2.0)).counts == (150, 300)
    assert Distribution.of_all([]).count == 0
