"""Decides when to report an outage: soon, and then less and less often, so that the log of a long one stays readable."""

from __future__ import annotations

from math import inf
from typing import Final

__all__ = ["Outage"]

#: The ages of an outage at which it is reported, in seconds; after the last one, the interval of further reports.
_REPORTS_S: Final = (3.0, 6.0, 12.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_EVERY_S: Final = 600.0


class Outage:
    """The duration of an outage, and the reports made so far. All times are passed by the caller."""

    __slots__ = ("_reports", "_since", "report_at")

    #: When the next report is due; infinity if nothing is wrong.
    report_at: float

    def __init__(self) -> None:
        self._since = 0.0
        self._reports = 0
        self.report_at = inf

    def begin(self, now: float) -> None:
        """No broker is reached from now on, or still none."""
        if self.report_at == inf:
            self._since = now
            self._reports = 0
            self.report_at = now + _REPORTS_S[0]

    def report(self, now: float) -> float:
        """Note a report; returns the duration of the outage. Other overdue reports also count as made."""
        while self.report_at <= now:  # not by their difference, which is rounded differently
            self._reports += 1
            self.report_at = self._since + _duration(self._reports)
        return now - self._since

    def end(self, now: float) -> float | None:
        """A broker is reached; returns the duration of the outage if it was reported, else None."""
        was_reported = self.report_at != inf and self._reports > 0
        self.report_at = inf
        return now - self._since if was_reported else None


def _duration(reports: int) -> float:
    """The age of an outage at which its next report is due, after this number of reports."""
    if reports < len(_REPORTS_S):
        return _REPORTS_S[reports]
    return _REPORTS_S[-1] + _EVERY_S * (reports - len(_REPORTS_S) + 1)
