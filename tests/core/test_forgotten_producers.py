from __future__ import annotations

import pytest

from aioproducer.core.forgotten_producers import may_be_forgotten, not_repeated
from aioproducer.errors import BrokerConnectionError

DAY = 86_400_000
NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("ages", "is_forgotten"),
    [([0], False), ([DAY - 1], False), ([DAY], True), ([0, DAY], True), ([-3_600_000], False), ([NOW + 1], True)],
)
def test_the_oldest_of_those_that_may_have_been_written_last_counts(ages: list[int], is_forgotten: bool) -> None:
    assert may_be_forgotten([NOW - age for age in ages], NOW, DAY) is is_forgotten


@pytest.mark.parametrize(
    ("age", "expiration", "words"),
    [
        (2 * DAY + 5, DAY, ["2 days old", "assumed to be 1 day:"]),
        (DAY, 7 * DAY, ["1 day old", "assumed to be 7 days:"]),
        (3 * 3_600_000, 60_000, ["3 hours old", "assumed to be 1 minute:"]),
        (500, 20, ["500 ms old", "assumed to be 20 ms:"]),
    ],
)
def test_the_reason_contains_the_age_of_the_records_and_the_way_out(
    age: int, expiration: int, words: list[str]
) -> None:
    lost = BrokerConnectionError("The connection broke.")

    error = not_repeated(NOW - age, NOW, expiration, lost)

    assert all(each in str(error) for each in [*words, "The connection broke.", "transaction"])
    assert error.__cause__ is lost
    assert not error.retriable
