"""The command: ``python -m tests.ci FOLDER NAME [pytest arguments]`` runs a part of the suite, and records it there.

If tests fail, just those run once more, one after the other in a fresh process. If at most five failed and all pass then,
the part is green, and its last lines name each of them as FLAKY. ``python -m tests.ci FOLDER`` sums up all parts. The exit
code is 0 if green and 1 if red.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.ci.records import Run, TestRecord, read_run
from tests.ci.summary import flaky_lines, slowest_files, tier_table
from tests.ci.verdict import Verdict, after_first_run, after_second_run

__all__ = ["main", "run_part", "sum_up"]


def run_part(folder: Path, name: str, arguments: Sequence[str]) -> Verdict:
    """Run pytest with these arguments, and failed tests once more; leaves the records in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    first = _pytest(folder / f"{name}.jsonl", arguments)
    verdict = after_first_run(first)
    if verdict is None:
        print(f"\n{len(first.failed)} failed; they run once more, by themselves.", flush=True)
        second = _pytest(
            folder / f"{name}.second.jsonl",
            [*arguments, "--last-failed", "--last-failed-no-failures=none", "--numprocesses=0"],
        )
        verdict = after_second_run(first, second)
    seconds = round(time.monotonic() - started)
    part = {
        "green": verdict.is_green,
        "reason": verdict.reason,
        "flaky": sorted(verdict.flaky),
        "seconds": seconds,
    }
    (folder / f"{name}.json").write_text(json.dumps(part), encoding="utf-8")
    print("\n".join(flaky_lines(verdict.flaky)))
    print(_headline(name, verdict.is_green, verdict.reason, seconds), flush=True)
    return verdict


def sum_up(folder: Path) -> bool:
    """Print each part's verdict, tiers, slowest files and flaky tests; returns whether all parts are green."""
    parts = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
    flaky: dict[str, TestRecord] = {}
    for name in parts:
        run = read_run(folder / f"{name}.jsonl", code=0)
        print(f"\n== {name}: minutes of all its processes together")
        print("\n".join(tier_table(run.tests.values())))
        print("\n".join(slowest_files(run.tests)))
        flaky |= {f"{test} ({name})": run.tests[test] for test in parts[name]["flaky"]}
    print()
    print("\n".join(flaky_lines(flaky)))
    for name, part in parts.items():
        print(_headline(name, part["green"], part["reason"], part["seconds"]))
    return bool(parts) and all(part["green"] for part in parts.values())


def main(arguments: Sequence[str]) -> int:
    """Run or sum up; returns the exit code."""
    folder, *rest = arguments
    is_green = run_part(Path(folder), rest[0], rest[1:]).is_green if rest else sum_up(Path(folder))
    return 0 if is_green else 1


def _pytest(record: Path, arguments: Sequence[str]) -> Run:
    record.unlink(missing_ok=True)
    # With "=", as pytest would otherwise take the file for a place of tests and look for its configuration there.
    command = [sys.executable, "-m", "pytest", "-p", "tests.ci.record", f"--record={record}", *arguments]
    return read_run(record, subprocess.run(command, check=False).returncode)


def _headline(name: str, is_green: bool, reason: str, seconds: float) -> str:
    return f"{'GREEN' if is_green else 'RED'} {name}: {reason} ({seconds // 60:.0f} min {seconds % 60:.0f} s)"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
