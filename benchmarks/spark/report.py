"""The report on the Spark sink: targets and tables as Markdown, from results that may be old.

python -m benchmarks.spark.report benchmarks/report      # write it again from its spark.json
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.cases import Case
from benchmarks.report import target_row
from benchmarks.results import Results
from benchmarks.spark.rows import CASES, COLD, MICRO_BATCHES
from benchmarks.spark.streams import GUARANTEES
from benchmarks.spark.targets import TARGETS
from benchmarks.spark.ways import OURS, WAYS
from benchmarks.tables import Figure, markdown

__all__ = ["case_table", "main", "target_table", "write_report"]

_NOTES: Final = Path(__file__).parent / "notes.md"
_INTRODUCTION: Final = """\
# Benchmark of the Spark sink

Written by `python -m benchmarks.spark`; the figures as they were measured are in [`spark.json`](spark.json).

All ways write the same DataFrame, which the JVM holds, from two tasks (`local[2]`), in one Spark session and in turn with
each other, round by round, each into its own topic with 12 partitions; acks=all and idempotence everywhere. Unless a
case says "default settings", batches may grow to 1,000,000 bytes with a linger of 5 ms. A time is that of the whole
call, Spark's planning and commit included; what is not in it is the start of Spark and of its workers, because several
jobs of each way go ahead. CPU is that of the JVM and of all Python workers together, without the broker. Figures are
medians of the rounds; ratios are medians of each round's ratio. Micro-batches come from Parquet files, and theirs is the
time of the whole trigger. Spark's own sink is its jar (version 4.0.0, with Kafka's clients 3.9.0), in the same session.
"Behind partition_for_kafka": the rows are given to tasks as exactly once needs it, and written at least once. Rows without a
key are not moved for that, and those with keys are shuffled; so this line shows what the division costs, and the next one
what the transaction does. The first job of a session has its own process, for each way and round.
"""
_JOB_FIGURES: Final = (
    Figure("records_per_s", "rows/s", ",.0f"),
    Figure("ms", "ms", ",.0f"),
    Figure("cpu_us", "CPU us/row", ".2f"),
)
_COLD_FIGURES: Final = (
    Figure("start_ms", "ms of starting Spark", ",.0f"),
    Figure("ms", "ms of the first job", ",.0f"),
    Figure("second_ms", "ms of the second", ",.0f"),
)
_BATCH_FIGURES: Final = (
    Figure("records_per_s", "rows/s", ",.0f"),
    Figure("batch_ms", "ms/micro-batch", ",.0f"),
    Figure("add_ms", "of it in the sink and its source", ",.0f"),
)


def write_report(results: Results, directory: Path) -> Path:
    """Write the report and the results into that directory; gives the report's file."""
    directory.mkdir(parents=True, exist_ok=True)
    results.save(directory / "spark.json")
    report = directory / "spark.md"
    report.write_text("\n\n".join(part.strip("\n") for part in _parts(results)) + "\n")
    return report


def _parts(results: Results) -> Iterator[str]:
    yield _INTRODUCTION
    yield "\n".join(f"* {name}: {value}" for name, value in results.about.items())
    yield (
        "Read back and counted by an independent consumer (librdkafka's), after each run: "
        + (" and ".join(f"{count} runs against {results.about[kind]}" for kind, count in results.counted.items()))
        + ".\nWhere the topic does not hold exactly what was to be written, the comparison stops."
    )
    yield "## Targets"
    yield target_table(results)
    yield _NOTES.read_text()
    for broker in dict.fromkeys(run.broker for run in results.runs):
        yield f"## {results.about[broker]}"
        for case in CASES.values():
            if results.clients(broker, case.name):
                yield case_table(results, broker, case)
    for kind, *_, why in results.missing:
        yield f"Left out: {kind}, because {why}"


def target_table(results: Results) -> str:
    """Each promise, what was measured, and whether it is kept."""
    rows = [target_row(each.judge(results)) for each in TARGETS]
    return markdown(["target", "broker", "goal", "measured", "verdict"], rows)


def case_table(results: Results, broker: str, case: Case) -> str:
    """A heading, and a line for each way."""
    if case is MICRO_BATCHES:
        titles, figures, first = {name: name for name in GUARANTEES}, _BATCH_FIGURES, GUARANTEES[0]
        heading = "this / at-least-once (rows/s)"
    else:
        titles, figures, first = {name: way.title for name, way in WAYS.items()}, _JOB_FIGURES, OURS
        heading = "ours / this (rows/s)"
        if case is COLD:
            figures = _COLD_FIGURES
    took_part = results.clients(broker, case.name)
    rows: list[list[str]] = []
    for name in (name for name in titles if name in took_part):
        over = (name, first) if case is MICRO_BATCHES else (first, name)
        ratio = results.ratio(broker, case.name, *over, "records_per_s")
        shown = [figure.show(results.median(broker, case.name, name, figure.key)) for figure in figures]
        rows.append([titles[name], *shown, "-" if ratio is None else f"{ratio:.2f}"])
    table = markdown(["", *(figure.title for figure in figures), heading], rows)
    return f"**{case.title}** ({results.about[broker]})\n\n{table}"


def main() -> None:
    """Write a report again."""
    directory = Path(sys.argv[1])
    print(write_report(Results.load(directory / "spark.json"), directory))


if __name__ == "__main__":
    main()
