"""The last error before a failure, as users see it."""

from __future__ import annotations

import pytest

from aioproducer.core.failed_attempt import FailedAttempt
from aioproducer.errors import BrokerConnectionError

AT = 100.0


def refused() -> BrokerConnectionError:
    """An error that was raised, and has a cause."""
    try:
        raise BrokerConnectionError("It refused.") from OSError(111)
    except BrokerConnectionError as error:
        return error


@pytest.mark.parametrize("broker", [None, 0, 7])
@pytest.mark.parametrize(("now", "seconds_ago"), [(AT + 2.5, 2.5), (AT + 0.25, 0.25), (AT, 0.0), (AT - 1.0, 0.0)])
def test_users_see_the_error_its_broker_and_how_long_ago_it_was(
    broker: int | None, now: float, seconds_ago: float
) -> None:
    seen = FailedAttempt(refused(), broker, AT).seen_at(now)

    assert (str(seen.error), seen.broker, seen.seconds_ago) == ("It refused.", broker, seconds_ago)


def test_the_error_that_users_see_keeps_its_cause_but_no_frames() -> None:
    error = refused()

    seen = FailedAttempt(error, 7, AT).seen_at(AT).error

    assert isinstance(seen, BrokerConnectionError)
    assert isinstance(seen.__cause__, OSError)
    assert seen.__traceback__ is None
    assert error.__traceback__ is not None, "the original may be raised again"


@pytest.mark.parametrize(
    ("broker", "now", "sentence"),
    [
        (7, AT + 2.5, "The last error, from broker 7, 2.5 s ago: It refused."),
        (0, AT + 0.5, "The last error, from broker 0, 0.5 s ago: It refused."),
        (None, AT + 12.0, "The last error, 12.0 s ago: It refused."),
        (None, AT - 1.0, "The last error, 0.0 s ago: It refused."),
    ],
)
def test_a_message_about_a_timeout_ends_with_the_error_and_names_a_broker_but_no_bootstrap_server(
    broker: int | None, now: float, sentence: str
) -> None:
    assert FailedAttempt(refused(), broker, AT).sentence(now) == sentence
