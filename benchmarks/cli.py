"""The command line: chooses cases, clients, rounds and brokers; prints tables, writes the report."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from benchmarks.about import about
from benchmarks.cases import CASES, Case
from benchmarks.clients import CLIENTS
from benchmarks.comparison import Comparison
from benchmarks.report import target_table, write_report
from benchmarks.results import Results
from benchmarks.tables import case_table

__all__ = ["chosen", "main"]

_OUT: Final = Path(__file__).parent / "report"
_QUICK_RECORDS: Final = 50_000

_T = TypeVar("_T")


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, compare, and report."""
    options = _parser().parse_args(arguments)
    comparison = Comparison(
        brokers=("mock", "kafka") if options.broker == "both" else (options.broker,),
        cases=chosen(CASES, options.cases),
        clients=chosen(CLIENTS, options.clients),
        rounds=options.rounds or (1 if options.quick else 5),
        records=options.records or (_QUICK_RECORDS if options.quick else None),
        seconds=1.0 if options.quick else 5.0,
        pure=options.pure,
    )
    results = Results(about=about(comparison.rounds, comparison.pure))

    def finished(broker: str, case: Case) -> None:
        print("\n" + case_table(results, broker, case) + "\n", flush=True)
        write_report(results, options.out)  # so that an interrupted run also has a report

    comparison.run(results, _report, finished)
    print(target_table(results))
    print(f"\nThe report is {write_report(results, options.out)}.")


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def chosen(known: Mapping[str, _T], names: str | None) -> list[_T]:
    """The items whose names begin with a given one; all if none is given."""
    if names is None:
        return list(known.values())
    chosen: list[_T] = []
    for name in names.split(","):
        found = [known[name]] if name in known else [each for key, each in known.items() if key.startswith(name)]
        if not found:
            raise SystemExit(f"There is no {name!r}; there are {', '.join(known)}.")
        chosen += [each for each in found if each not in chosen]
    return chosen


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Compare aioproducer with every other client, side by side."
    )
    parser.add_argument("--cases", metavar="NAME,NAME", help=f"or beginnings of names: {', '.join(CASES)}")
    parser.add_argument("--clients", metavar="NAME,NAME", help=f"of {', '.join(CLIENTS)}")
    parser.add_argument("--broker", choices=("mock", "kafka", "both"), default="both")
    parser.add_argument("--rounds", type=int, help="default: 5, with --quick 1")
    parser.add_argument("--records", type=int, help="the most records in a run; slow clients send a share of it")
    parser.add_argument("--quick", action="store_true", help="one round of few records, as a check")
    parser.add_argument("--pure", action="store_true", help="our client without its native part")
    parser.add_argument("--out", type=Path, default=_OUT, help="the directory of the report (default: %(default)s)")
    return parser
