"""The numbers: right to about ten percent where they are spread, exact where they are counted."""

from __future__ import annotations

import random
import threading

from aioproducer.metrics.distribution import Distribution
from aioproducer.metrics.producer import ProducerMetrics


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
    assert metrics.topic("a").as_mapping()["record-send-total"] == 3


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


def test_another_thread_reads_each_measurement_once() -> None:
    spread = Distribution()
    seen: list[tuple[int, float, int]] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            found = spread.histogram((1.0,))
            seen.append((found.count, found.total, found.counts[0]))

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(100_000):
        spread.observe(1.0)
    done.set()
    reader.join()

    assert all(count == total == below for count, total, below in seen)
    assert (spread.count, spread.total) == (100_000, 100_000.0)
