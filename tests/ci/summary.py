"""Formats what CI prints at the end: tiers, the slowest files, flaky tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from tests.ci.records import TestRecord
from tests.tiers import TIERS

__all__ = ["flaky_lines", "slowest_files", "tier_table"]


def tier_table(tests: Iterable[TestRecord]) -> list[str]:
    """One line a tier: tests, how many were skipped, and the minutes that they took, added up over all processes."""
    count: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    for test in tests:
        count[test.tier] += 1
        skipped[test.tier] += test.outcome == "skipped"
        seconds[test.tier] += test.seconds  # type: ignore[assignment]  # a Counter adds floats as well
    lines = [f"{'tier':8} {'tests':>7} {'skipped':>8} {'minutes':>8}"]
    lines += [
        f"{tier:8} {count[tier]:7,} {skipped[tier]:8,} {seconds[tier] / 60:8.1f}" for tier in TIERS if count[tier]
    ]
    total = f"{'all':8} {count.total():7,} {skipped.total():8,} {sum(seconds.values()) / 60:8.1f}"
    return [*lines, total]


def slowest_files(tests: Mapping[str, TestRecord], most: int = 10) -> list[str]:
    """The files whose tests took longest, one a line, with minutes and tests."""
    count: Counter[str] = Counter()
    seconds: dict[str, float] = {}
    for name, test in tests.items():
        file = name.split("::")[0]
        count[file] += 1
        seconds[file] = seconds.get(file, 0.0) + test.seconds
    slowest = sorted(seconds.items(), key=lambda each: -each[1])[:most]
    return [f"{took / 60:6.1f} min {count[file]:6,} tests  {file}" for file, took in slowest]


def flaky_lines(flaky: Mapping[str, TestRecord]) -> list[str]:
    """Each flaky test with the traceback of its failure."""
    return [f"FLAKY {name}\n{test.failure}" for name, test in flaky.items()]
