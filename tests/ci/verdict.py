"""Decides whether a run of the suite is green, red, or green with flaky tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.ci.records import Run, TestRecord

__all__ = ["MOST_FLAKY", "Verdict", "after_first_run", "after_second_run"]

#: With more failures than this nothing is run again: that is not a machine's mood.
MOST_FLAKY: Final = 5

_PASSED: Final = 0
_TESTS_FAILED: Final = 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """Green or red, why, and the tests that failed once and then passed, with their first failure."""

    is_green: bool
    reason: str
    flaky: dict[str, TestRecord]


def _red(reason: str) -> Verdict:
    return Verdict(is_green=False, reason=reason, flaky={})


def after_first_run(run: Run) -> Verdict | None:
    """Return the verdict, or None if the failed tests should have a second chance."""
    if run.crashes:
        return _red(f"a worker process ended: {run.crashes[0]}")
    if run.not_collected:
        return _red(f"not collected: {', '.join(run.not_collected)}")
    if run.code not in (_PASSED, _TESTS_FAILED):
        return _red(f"pytest ended with exit code {run.code}")
    if run.code == _PASSED:
        return Verdict(is_green=True, reason=f"{len(run.tests)} tests", flaky={})
    if not run.failed:
        return _red("pytest reported a failure that belongs to no test")
    if len(run.failed) > MOST_FLAKY:
        return _red(f"{len(run.failed)} tests failed; at most {MOST_FLAKY} are run again")
    return None


def after_second_run(first: Run, second: Run) -> Verdict:
    """Return the verdict after the failed tests of the first run were run again, by themselves."""
    again = sorted(name for name in first.failed if name not in second.tests or not second.tests[name].has_passed)
    if again:
        return _red(f"failed twice, or did not pass the second time: {', '.join(again)}")
    if second.crashes or second.not_collected or second.code != _PASSED:
        return _red(f"the second run ended with exit code {second.code}")
    return Verdict(is_green=True, reason=f"{len(first.tests)} tests, {len(first.failed)} flaky", flaky=first.failed)
