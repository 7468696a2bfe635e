"""Pauses that grow, give or take their jitter."""

from __future__ import annotations

import pytest

from aioproducer.config import ProducerConfig
from aioproducer.core.backoff import ExponentialBackoff, retry_backoff


def test_each_failure_doubles_the_pause_up_to_the_longest() -> None:
    backoff = ExponentialBackoff(0.1, 1.0)

    assert [backoff.delay(attempts, 0.5) for attempts in range(6)] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_the_jitter_is_a_fifth_to_either_side() -> None:
    backoff = ExponentialBackoff(0.1, 1.0)

    assert backoff.delay(0, 0.0) == pytest.approx(0.08)
    assert backoff.delay(0, 1.0) == pytest.approx(0.12)
    assert backoff.delay(50, 1.0) == pytest.approx(1.2)


def test_no_number_of_attempts_is_too_large_or_too_small() -> None:
    backoff = ExponentialBackoff(0.1, 1.0, jitter=0.0)

    assert backoff.delay(10**9, 0.5) == 1.0
    assert backoff.delay(-1, 0.5) == 0.1


def test_a_longest_pause_that_is_shorter_than_the_first_counts() -> None:
    assert ExponentialBackoff(5.0, 1.0, jitter=0.0).delay(0, 0.5) == 1.0


def test_the_pauses_between_retries_are_those_of_the_configuration_in_seconds() -> None:
    backoff = retry_backoff(ProducerConfig("localhost:9092", retry_backoff_ms=250, retry_backoff_max_ms=3000))

    assert backoff == ExponentialBackoff(0.25, 3.0)
