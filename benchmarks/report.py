"""The report: targets, charts and tables as Markdown, from stored results.

python -m benchmarks.report benchmarks/report                  # write it again from its results.json
python -m benchmarks.report benchmarks/report --renew DIR      # with the cases that were measured into DIR
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.cases import CASES
from benchmarks.charts import write_charts
from benchmarks.clients import CLIENTS
from benchmarks.results import Results
from benchmarks.tables import case_table, markdown
from benchmarks.targets import TARGETS, Verdict

__all__ = ["main", "target_row", "target_table", "write_report"]

_RESULTS: Final = "results.json"
#: Why some targets are not reached, with the profiles that show it: written by hand for the last run.
_NOTES: Final = Path(__file__).parent / "notes.md"
_INTRODUCTION: Final = """\
# Benchmarks

Written by `python -m benchmarks`; the raw figures are in [`results.json`](results.json).

Each client runs in its own process, on its own topic, in turn with the others, round by round. All clients send the same
values with acks=all and idempotence; unless a case says "default settings", batches may grow to 1,000,000 bytes with a
linger of 5 ms. Figures are medians of the rounds; ratios are medians of each round's ratio. CPU is that of the whole
client process, in user and system mode; asynchronous clients run on uvloop. Slow clients send fewer records per round.
Connecting and a warm-up are not measured; for Java, the time of a run with only the warm-up is subtracted.
"""


def write_report(results: Results, directory: Path) -> Path:
    """Write the report, its charts and the results into that directory; gives the report's file."""
    directory.mkdir(parents=True, exist_ok=True)
    results.save(directory / _RESULTS)
    report = directory / "README.md"
    report.write_text("\n\n".join(part.strip("\n") for part in _parts(results, directory)) + "\n")
    return report


def _parts(results: Results, directory: Path) -> Iterator[str]:
    yield _INTRODUCTION
    yield "\n".join(f"* {name}: {value}" for name, value in results.about.items())
    yield _counted(results)
    yield "## Targets"
    yield target_table(results)
    yield _NOTES.read_text()
    yield "## Charts"
    for chart, light, dark in write_charts(results, directory):
        yield (
            f'<picture>\n  <source media="(prefers-color-scheme: dark)" srcset="{dark}">\n'
            f'  <img alt="{chart.title}" src="{light}">\n</picture>'
        )
    for broker in dict.fromkeys(run.broker for run in results.runs):
        yield f"## {results.about.get(broker, broker)}"
        yield from (case_table(results, broker, case) for case in CASES.values() if results.clients(broker, case.name))
    if results.missing:
        yield "## Left out"
        yield markdown(
            ["case", "broker", "client", "because"],
            [
                [case, broker, CLIENTS[client].title if client else "", why]
                for broker, case, client, why in _missing(results)
            ],
        )


def _missing(results: Results) -> Iterator[tuple[str, str, str, str]]:
    for broker, case, client, why in results.missing:
        yield broker, case, client, why.replace("|", "/").replace("\n", " ")


def _counted(results: Results) -> str:
    """A sentence about the records that were read back, and what that shows."""
    runs = [f"{count} runs against {results.about.get(broker, broker)}" for broker, count in results.counted.items()]
    return (
        f"Read back and counted: {' and '.join(runs) or 'no run'}.\nAfter each run an independent consumer (librdkafka's) "
        "summed up the end offsets of its topic, which matched the number of\nrecords to send; otherwise the comparison "
        "stops. Apache Kafka refuses malformed batches; the mock\ncluster accepts them."
    )


def target_table(results: Results) -> str:
    """Each promise, what was measured, and whether it is kept."""
    return markdown(
        ["target", "broker", "goal", "measured", "verdict"], [target_row(each.judge(results)) for each in TARGETS]
    )


def target_row(verdict: Verdict) -> list[str]:
    """The line of one verdict."""
    target = verdict.target
    measured = "-" if verdict.measured is None else f"{verdict.measured:.2f} {target.unit}".strip()
    goal = f"{'at most' if target.at_most else 'at least'} {target.goal:g} {target.unit}".strip()
    return [target.text, target.broker, goal, measured, verdict.words]


def main() -> None:
    """Write a report again from its results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=main.__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--renew", metavar="DIR", type=Path, help="take the cases that were measured there from there")
    options = parser.parse_args()
    results = Results.load(options.directory / _RESULTS)
    if options.renew is not None:
        results = results.renewed(Results.load(options.renew / _RESULTS))
    print(write_report(results, options.directory))


if __name__ == "__main__":
    main()
