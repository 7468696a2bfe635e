"""A pytest plugin that records each test's outcome: `-p tests.ci.record --record=FILE`.

One JSON object a line, written as soon as it is known: what a run that crashes had found is there as well.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.tiers import TIERS

__all__ = ["pytest_addoption", "pytest_configure"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option --record."""
    parser.addoption(
        "--record", type=Path, metavar="FILE", help="write each test's outcome to this file, as JSON lines"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Record in the process that reports: pytest-xdist's workers pass their outcomes on to it."""
    path: Path | None = config.getoption("--record")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Recorder(path))


class _Recorder:
    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record one phase of a test: setup, call or teardown."""
        self._write(
            test=report.nodeid,
            tier=next((tier for tier in TIERS if tier in report.keywords), ""),
            when=report.when,
            outcome=report.outcome,
            seconds=round(report.duration, 4),
            why=report.longreprtext if report.failed else "",
        )

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Record a file that could not be collected."""
        if report.failed:
            self._write(not_collected=report.nodeid, why=report.longreprtext)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, error: object | None) -> None:
        """Record a worker of pytest-xdist that ended before it should have."""
        if error:
            self._write(crash=str(error))

    def pytest_unconfigure(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, **entry: Any) -> None:
        self._file.write(f"{json.dumps(entry)}\n")
        self._file.flush()
