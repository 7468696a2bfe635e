"""Reads what `tests.ci.record` wrote of a run."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Run", "TestRecord", "read_run"]


@dataclass(slots=True)
class TestRecord:
    """One test: the seconds of its three phases together, and its first failure."""

    __test__ = False

    tier: str = ""
    seconds: float = 0.0
    outcome: str = "passed"
    failure: str | None = None

    @property
    def has_passed(self) -> bool:
        """Whether no phase failed and nothing was skipped."""
        return self.outcome == "passed"


@dataclass(slots=True)
class Run:
    """All tests of one run of pytest, with its exit code and what went wrong outside the tests."""

    code: int
    tests: dict[str, TestRecord] = field(default_factory=dict)
    crashes: list[str] = field(default_factory=list)
    not_collected: list[str] = field(default_factory=list)

    @property
    def failed(self) -> dict[str, TestRecord]:
        """The tests with a failed phase."""
        return {name: test for name, test in self.tests.items() if test.failure is not None}


def read_run(path: Path, code: int) -> Run:
    """Return the run that was recorded in this file; ``code`` is pytest's exit code."""
    tests: defaultdict[str, TestRecord] = defaultdict(TestRecord)
    run = Run(code, tests)
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        entry = json.loads(line)
        if "crash" in entry:
            run.crashes.append(entry["crash"])
        elif "not_collected" in entry:
            run.not_collected.append(entry["not_collected"])
        else:
            test = tests[entry["test"]]
            test.tier = entry["tier"] or test.tier
            test.seconds += entry["seconds"]
            if entry["outcome"] == "skipped" and test.failure is None:
                test.outcome = "skipped"
            elif entry["outcome"] == "failed":
                test.outcome = "failed"
                test.failure = test.failure or entry["why"] or "(no traceback)"
    return run
