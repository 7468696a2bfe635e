"""The pauses of the Sender for tasks that append records."""

from __future__ import annotations

import pytest

from aioproducer.core.pause import Pause


def test_short_work_leads_to_no_pause_however_often_it_comes() -> None:
    pause = Pause()

    for number in range(1000):
        pause.worked(0.0019, 10.0 + number * 0.0019)

    assert pause.until == 0.0


def test_others_get_as_much_time_as_the_work_took_from_its_end_on() -> None:
    pause = Pause()

    pause.worked(0.02, 10.0)

    assert pause.until == pytest.approx(10.0 + 0.02 + 0.02)


def test_work_within_a_pause_takes_nothing_from_it_and_is_owed_as_well() -> None:
    """Returns come while others have their turn."""
    pause = Pause()
    pause.worked(0.02, 10.0)

    pause.worked(0.001, 10.03)

    assert pause.until == pytest.approx(10.04 + 2 * 0.001)


def test_a_pause_owed_long_ago_is_forgotten() -> None:
    pause = Pause()
    pause.worked(0.02, 10.0)

    pause.worked(0.01, 50.0)

    assert pause.until == pytest.approx(50.0 + 0.01 + 0.01)


def test_no_pause_is_longer_than_a_moment_though_the_process_seems_to_have_worked_for_hours() -> None:
    """It was stopped meanwhile, or the machine slept."""
    pause = Pause()

    for _ in range(3):
        pause.worked(3600.0, 10.0)

    assert pause.until == pytest.approx(10.0 + 3600.0 + 0.25)


def test_a_pause_ends_however_much_work_comes_within_it() -> None:
    """A round that finds nothing to send is also work; a caller that adds one record between two of them uses the time."""
    pause = Pause()
    pause.worked(0.01, 10.0)
    now = 10.01

    while pause.until > now and now < 20.0:
        pause.worked(0.0001, now)
        now += 0.00015

    assert now == pytest.approx(10.01 + 0.25, abs=0.001)


def test_a_pause_that_was_ended_leaves_no_debt() -> None:
    pause = Pause()
    pause.worked(0.02, 10.0)

    pause.end()
    pause.worked(0.001, 10.025)

    assert pause.until == 0.0


def test_two_milliseconds_of_work_are_owed() -> None:
    pause = Pause()

    pause.worked(0.002, 10.0)

    assert pause.until == pytest.approx(10.004)
    pause.worked(0.001, pause.until)
    assert pause.until == pytest.approx(10.004), "at its very end nothing is left of a pause that work could use up"
