"""Runs chaos on real Kafka, and reports broken promises: ``python -m tests.chaos --minutes 5``."""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
from collections.abc import Mapping, Sequence

from aioproducer.testing.kafka.jars import DEFAULT_KAFKA_VERSION, OLDER_KAFKA_VERSION
from tests.chaos.run import ChaosRun, Outcome, Setting

__all__ = ["main"]

_SHOWN = 20
_INTERRUPTED = 130


def main(words: Sequence[str] | None = None) -> int:
    """Exit code 0: every promise was kept; 1: one was broken, or an error prevented a verdict."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, metavar="M", help="time of misfortunes (default: 5)")
    parser.add_argument("--seed", type=int, metavar="S", help="repeat the misfortunes of a run (default: a new seed)")
    parser.add_argument("--transactions", action="store_true", help="also transactions, some aborted, some fenced")
    parser.add_argument(
        "--upgrade",
        action="store_true",
        help=f"a rolling upgrade from Kafka {OLDER_KAFKA_VERSION} during the run",
    )
    parser.add_argument(
        "--kafka", default=DEFAULT_KAFKA_VERSION, metavar="VERSION", help=f"(default: {DEFAULT_KAFKA_VERSION})"
    )
    options = parser.parse_args(words)
    seed = random.randrange(1_000_000) if options.seed is None else options.seed
    setting = Setting(seed, 60 * options.minutes, options.transactions, options.upgrade, options.kafka)
    again = f"python -m tests.chaos --minutes {options.minutes:g} --seed {seed}" + "".join(
        f" --{name}" for name in ("transactions", "upgrade") if getattr(options, name)
    )
    if options.kafka != DEFAULT_KAFKA_VERSION:
        again += f" --kafka {options.kafka}"
    _show(f"seed {seed}; to repeat its misfortunes: {again}")
    try:
        outcome = asyncio.run(ChaosRun(setting, _show).run())
    except KeyboardInterrupt:
        _show("interrupted: no verdict; every Kafka process has ended")
        return _INTERRUPTED
    _report(outcome, again)
    return int(bool(outcome.problems))


def _report(outcome: Outcome, again: str) -> None:
    _show(f"\nrecords       {_listed(outcome.reported)}; {outcome.read:,} read")
    if outcome.transactions:
        _show(f"transactions  {_listed(outcome.transactions)}")
    _show(f"misfortunes   {_listed(outcome.misfortunes)}")
    _show(f"frames lost   {_listed(outcome.lost)}")
    _show(f"time          {outcome.seconds:.0f} s\n")
    for problem in outcome.problems[:_SHOWN]:
        _show(f"BROKEN  {problem}")
    if len(outcome.problems) > _SHOWN:
        _show(f"... and {len(outcome.problems) - _SHOWN:,} more")
    if outcome.problems:
        _show(f"{len(outcome.problems):,} promises were broken. Again: {again}")
    else:
        _show("Every promise was kept: nothing lost, doubled, reordered or misrouted, and every outcome is right.")


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items()) or "none"


def _show(words: str) -> None:
    print(words, flush=True)


if __name__ == "__main__":
    logging.getLogger("aioproducer").setLevel(logging.ERROR)  # each fault has its warning
    raise SystemExit(main())
