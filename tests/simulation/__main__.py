"""Runs many seeds, and reports those that break a promise: ``python -m tests.simulation --seeds 1000``."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.simulation.run import KINDS, Outcome, simulate
from tests.simulation.shrink import shrink

_CHUNK = 25


def _chunk(kind: str | None, first: int, count: int) -> list[Outcome]:
    return [simulate(seed, kind) for seed in range(first, first + count)]


def _report(outcome: Outcome, kind: str | None) -> None:
    few = shrink(outcome.seed, kind, outcome)
    print(f"\nseed {few.seed}, {few.kind}: {len(few.faults)} of {len(outcome.faults)} faults are enough")
    print("\n".join(few.story))
    print("\n".join(f"BROKEN  {each}" for each in few.problems))


def main(words: Sequence[str] | None = None) -> int:
    """Exit code 0: every promise was kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, metavar="N", help="how many seeds (default: 1000)")
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="S", help="the first seed (default: 0)")
    parser.add_argument("--jobs", type=int, default=2, metavar="J", help="how many processes (default: 2)")
    parser.add_argument("--kind", choices=sorted(set(KINDS)), help="the program of every seed (default: by the seed)")
    parser.add_argument("--story", action="store_true", help="print the story of the first seed, and end")
    options = parser.parse_args(words)
    if options.story:
        outcome = simulate(options.first, options.kind, keeps=True)
        print("\n".join(outcome.story))
        print("\n".join(f"BROKEN  {each}" for each in outcome.problems) or "Every promise was kept.")
        return int(bool(outcome.problems))
    began = time.perf_counter()
    bad: list[Outcome] = []
    kinds: Counter[str] = Counter()
    faults = records = 0
    firsts = range(options.first, options.first + options.seeds, _CHUNK)
    counts = [min(_CHUNK, options.first + options.seeds - first) for first in firsts]
    with ProcessPoolExecutor(options.jobs) as pool:
        for outcomes in pool.map(partial(_chunk, options.kind), firsts, counts):
            for outcome in outcomes:
                kinds[outcome.kind] += 1
                faults += len(outcome.faults)
                records += outcome.records
                if outcome.problems:
                    bad.append(outcome)
                    print(f"seed {outcome.seed}, {outcome.kind}: {outcome.problems[0]}", flush=True)
    seconds = time.perf_counter() - began
    print(
        f"{options.seeds:,} seeds ({', '.join(f'{count:,} {kind}' for kind, count in sorted(kinds.items()))}), "
        f"{records:,} records, {faults:,} faults, {seconds:.1f} s, {options.seeds / seconds:.0f} seeds/s: "
        f"{len(bad)} with broken promises"
    )
    for outcome in bad[:3]:
        _report(outcome, options.kind)
    return int(bool(bad))


if __name__ == "__main__":
    raise SystemExit(main())
