"""The command: how often, against which brokers; prints tables, judges the targets, writes the report."""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks import CHECKOUT
from benchmarks.about import about
from benchmarks.cases import Case
from benchmarks.cli import chosen
from benchmarks.results import Results
from benchmarks.spark.comparison import SparkComparison
from benchmarks.spark.report import case_table, target_table, write_report
from benchmarks.spark.rows import CASES
from benchmarks.unavailable import Unavailable

__all__ = ["main"]

_OUT: Final = CHECKOUT / "benchmarks" / "report"
_QUICK_ROWS: Final = 10_000


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, compare, and report."""
    options = _parser().parse_args(arguments)
    quick = options.quick
    comparison = SparkComparison(
        brokers=("mock", "kafka") if options.broker == "both" else (options.broker,),
        cases=chosen(CASES, options.cases),
        rounds=options.rounds or (1 if quick else 5),
        rows=options.rows or (_QUICK_ROWS if quick else None),
        micro_batches=1 if quick else 8,
        warm_ups=0 if quick else 5,
    )
    results = Results(about=about(comparison.rounds, pure=False))
    results.about["Spark"] = _pyspark()

    def finished(broker: str, case: Case) -> None:
        print("\n" + case_table(results, broker, case) + "\n", flush=True)
        write_report(results, options.out)  # so that a run which is cut short also has one

    try:
        comparison.run(results, _report, finished)
    except Unavailable as error:
        raise SystemExit(str(error)) from error
    print(target_table(results))
    print(f"\nThe report is {write_report(results, options.out)}.")


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _pyspark() -> str:
    try:
        return f"PySpark {importlib.metadata.version('pyspark')}, local[2]"
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spark", description="Compare the Spark sink with what is written without it."
    )
    parser.add_argument("--cases", metavar="NAME,NAME", help=f"or beginnings of names: {', '.join(CASES)}")
    parser.add_argument("--broker", choices=("mock", "kafka", "both"), default="both")
    parser.add_argument("--rounds", type=int, help="default: 5, with --quick 1")
    parser.add_argument("--rows", type=int, help="at most so many in each job, and in each micro-batch")
    parser.add_argument("--quick", action="store_true", help="one round of few rows: whether all of it works")
    parser.add_argument("--out", type=Path, default=_OUT, help="the directory of the report (default: %(default)s)")
    return parser
