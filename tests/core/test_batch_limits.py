"""A topic's limit, learned from the batches that it refuses."""

from __future__ import annotations

import pytest

from aioproducer.core.batch_limits import BatchLimits


def fill(limits: BatchLimits, allowed: int, batches: int) -> int:
    """Send full batches to a topic that allows so many bytes; returns how many were refused."""
    refused = 0
    for _ in range(batches):
        size = limits.limit("orders")
        if size > allowed:
            refused += 1
            limits.refused("orders", size)
        else:
            limits.accepted("orders", size)
    return refused


def test_nothing_is_known_of_a_topic_that_refuses_nothing() -> None:
    limits = BatchLimits(16_384)

    limits.accepted("orders", 16_384)

    assert not limits.by_topic
    assert limits.limit("orders") == 16_384


@pytest.mark.parametrize("allowed", [100, 3000, 9000, 16_000])
def test_a_few_refusals_lead_to_a_size_that_fits(allowed: int) -> None:
    limits = BatchLimits(16_384)

    assert fill(limits, allowed, 10) <= 8
    assert limits.limit("orders") <= allowed
    assert fill(limits, allowed, 200) <= 2
    assert limits.limit("others") == 16_384


def test_the_size_creeps_up_to_what_is_allowed_and_is_seldom_refused_there() -> None:
    limits = BatchLimits(16_384)
    fill(limits, 3000, 200)

    assert 2900 <= limits.limit("orders") <= 3000
    assert fill(limits, 3000, 10_000) <= 40


def test_a_limit_that_was_raised_is_noticed() -> None:
    limits = BatchLimits(16_384)
    fill(limits, 3000, 200)

    fill(limits, 10_000, 2500)
    assert limits.limit("orders") > 9000

    fill(limits, 1 << 20, 3000)
    assert limits.limit("orders") == 16_384
    assert not limits.by_topic


def test_a_limit_that_was_lowered_is_noticed() -> None:
    limits = BatchLimits(16_384)
    fill(limits, 10_000, 300)

    assert fill(limits, 1000, 10) <= 5
    assert limits.limit("orders") <= 1000


def test_batches_that_were_filled_before_lower_the_limit_no_further() -> None:
    limits = BatchLimits(16_384)
    fill(limits, 3000, 10)
    learned = limits.limit("orders")

    for _ in range(50):
        limits.refused("orders", 16_384)

    assert limits.limit("orders") == learned


def test_small_batches_do_not_change_the_limit() -> None:
    limits = BatchLimits(16_384)
    limits.refused("orders", 16_384)

    for _ in range(2000):
        limits.accepted("orders", 100)

    assert limits.limit("orders") == 8192


def test_a_topic_is_forgotten() -> None:
    limits = BatchLimits(16_384)
    limits.refused("orders", 16_384)

    limits.forget("orders")

    assert limits.limit("orders") == 16_384


def learned(refused: int, most: int = 1 << 20) -> BatchLimits:
    """The limits after one refusal."""
    limits = BatchLimits(most)
    limits.refused("orders", refused)
    return limits


def accept_full(limits: BatchLimits, batches: int) -> int:
    """Full batches are accepted; returns the limit afterwards."""
    for _ in range(batches):
        limits.accepted("orders", limits.limit("orders"))
    return limits.limit("orders")


@pytest.mark.parametrize(("refused", "before", "after"), [(8000, 4000, 4020), (10, 5, 6), (1, 1, 1)])
def test_a_refusal_halves_the_size_and_each_full_batch_adds_half_a_percent(
    refused: int, before: int, after: int
) -> None:
    limits = learned(refused)

    assert limits.limit("orders") == before
    assert accept_full(limits, 1) == after


@pytest.mark.parametrize(("size", "after"), [(3599, 4000), (3600, 4020)])
def test_a_batch_is_full_from_nine_tenths_of_the_limit_on(size: int, after: int) -> None:
    limits = learned(8000)

    limits.accepted("orders", size)

    assert limits.limit("orders") == after


def test_a_refused_size_is_tried_again_after_500_full_batches_and_then_twice_that_size_after_as_many() -> None:
    limits = learned(8000)

    assert 7900 < accept_full(limits, 499) < 8000
    assert 8000 <= accept_full(limits, 1) < 16_000
    assert 15_800 < accept_full(limits, 499) < 16_000
    assert accept_full(limits, 1) >= 16_000


def test_a_refusal_restarts_the_count_of_full_batches() -> None:
    limits = learned(8000)
    accept_full(limits, 499)

    limits.refused("orders", 8000)

    assert accept_full(limits, 499) < 8000
    assert accept_full(limits, 1) >= 8000


def test_a_limit_learned_from_a_large_record_is_kept_after_the_next_batch() -> None:
    limits = learned(20_000, most=16_384)

    limits.accepted("orders", 100)

    assert limits.limit("orders") == 10_000
