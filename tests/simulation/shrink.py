"""Finds a small set of faults with which a seed still breaks a promise."""

from __future__ import annotations

from tests.simulation.judge import Rules
from tests.simulation.run import Outcome, simulate

__all__ = ["shrink"]


def shrink(seed: int, kind: str | None, failed: Outcome, rules: Rules | None = None) -> Outcome:
    """The outcome, with its story, of the fewest faults that were found; halves first, then one after the other.

    A fault that is left out changes what happens after it, so each attempt runs the seed again.
    """
    left_out: frozenset[int] = frozenset()
    best = failed
    size = max(1, len(failed.faults) // 2)
    while best.faults:
        smaller = False
        faults = list(best.faults)
        for at in range(0, len(faults), size):
            attempt = left_out | frozenset(faults[at : at + size])
            outcome = simulate(seed, kind, left_out=attempt, rules=rules)
            if outcome.problems and len(outcome.faults) < len(best.faults):
                best, left_out, smaller = outcome, attempt, True
                break
        if not smaller:
            if size == 1:
                break
            size //= 2
    return simulate(seed, kind, left_out=left_out, keeps=True, rules=rules)
