"""An outage is reported after 3 s, and then ever more rarely."""

from __future__ import annotations

from math import inf

import pytest

from aioproducer.core.outage import Outage

#: When an outage is reported first, in seconds.
FIRST_HALF_MINUTE = [3, 6, 12, 30]


def reports(outage: Outage, until: float) -> list[float]:
    """The times of the reports, if each one is made as soon as it is due."""
    reported: list[float] = []
    while outage.report_at <= until:
        now = outage.report_at
        reported.append(outage.report(now))
    return reported


def test_reports_come_ever_more_rarely() -> None:
    outage = Outage()
    outage.begin(100.0)

    assert reports(outage, 100.0 + 3600) == [*FIRST_HALF_MINUTE, 60, 120, 300, 600, 1200, 1800, 2400, 3000, 3600]


def test_a_report_that_is_due_is_not_due_again_however_times_are_rounded() -> None:
    outage = Outage()
    outage.begin(255.29404008730594)
    due = outage.report_at
    assert due - 255.29404008730594 < 3  # a difference says that it is not due yet
    outage.report(due)

    assert outage.report_at > due


def test_without_an_outage_nothing_is_due() -> None:
    outage = Outage()
    assert outage.report_at == inf

    outage.begin(0.0)
    outage.end(2.9)

    assert outage.report_at == inf


def test_an_outage_that_has_begun_does_not_begin_again() -> None:
    outage = Outage()
    outage.begin(0.0)
    outage.begin(2.0)

    assert reports(outage, 30) == FIRST_HALF_MINUTE


def test_the_next_outage_begins_from_the_start() -> None:
    outage = Outage()
    outage.begin(0.0)
    reports(outage, 200)
    outage.end(200.0)
    outage.begin(1000.0)

    assert reports(outage, 1030) == FIRST_HALF_MINUTE


@pytest.mark.parametrize(("ends_at", "lasted"), [(2.9, None), (3.0, 3.0), (700.0, 700.0)])
def test_only_an_outage_that_was_reported_has_an_end_worth_a_line(ends_at: float, lasted: float | None) -> None:
    outage = Outage()
    outage.begin(1000.0)
    reports(outage, 1000.0 + ends_at)

    assert outage.end(1000.0 + ends_at) == lasted
    assert outage.end(1000.0 + ends_at) is None


def test_reports_that_were_missed_are_one() -> None:
    outage = Outage()
    outage.begin(0.0)

    assert outage.report(130.0) == 130
    assert outage.report_at == 300
    assert outage.report(6000.0) == 6000
    assert outage.report_at == 6600
