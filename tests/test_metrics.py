"""The numbers: right to about ten percent where they are spread, exact where they are counted."""

from __future__ import annotations

import random

from aioproducer.metrics import Distribution, ProducerMetrics


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
