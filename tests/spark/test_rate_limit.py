"""Rows go as fast as the limit says, evenly, and no faster after a pause."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from aioproducer.spark.sink.rate_limit import paced


class Clock:
    """A clock that advances only during sleeps."""

    def __init__(self) -> None:
        self.now = 100.0

    def read(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def batch(first: int, rows: int) -> Any:
    return pa.record_batch({"value": [str(number) for number in range(first, first + rows)]})


def sent(clock: Clock, batches: Iterator[Any] | list[Any], rate: float) -> list[tuple[float, int]]:
    """The times at which rows were sent, and their numbers, from the beginning on."""
    began = clock.now
    parts = paced(batches, rate, clock=clock.read, sleep=clock.sleep)
    return [(round(clock.now - began, 6), part.num_rows) for part in parts]


def test_a_large_batch_goes_in_tenths_of_a_second() -> None:
    assert sent(Clock(), [batch(0, 1000)], 2000) == [(0.1, 200), (0.2, 200), (0.3, 200), (0.4, 200), (0.5, 200)]


def test_small_batches_wait_as_well() -> None:
    assert sent(Clock(), [batch(0, 1), batch(1, 2), batch(3, 1)], 10) == [(0.1, 1), (0.2, 1), (0.3, 1), (0.4, 1)]


def test_less_than_a_row_a_second_is_a_row_now_and_then() -> None:
    assert sent(Clock(), [batch(0, 3)], 0.25) == [(4.0, 1), (8.0, 1), (12.0, 1)]


def test_a_pause_is_not_made_up_for() -> None:
    clock = Clock()

    def upstream() -> Iterator[Any]:
        yield batch(0, 20)
        clock.now += 60
        yield batch(20, 20)

    assert sent(clock, upstream(), 100) == [(0.1, 10), (0.2, 10), (60.3, 10), (60.4, 10)]


@pytest.mark.parametrize("rate", [0.5, 7, 1000, 1e9])
def test_no_row_is_lost_and_their_order_stays(rate: float) -> None:
    clock = Clock()
    batches = [batch(0, 0), batch(0, 33), batch(33, 1), batch(34, 66)]

    parts = paced(batches, rate, clock=clock.read, sleep=clock.sleep)

    assert [value for part in parts for value in part.column("value").to_pylist()] == [str(n) for n in range(100)]
