"""Runs the simulation against each mutant of the client, until a seed finds it: ``python -m tests.simulation.hunt``."""

from __future__ import annotations

import argparse
import importlib.machinery
import os
import subprocess
import sys
import time
import types
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.svg import DARK, LIGHT, Bar, bar_chart
from tests.simulation.mutants import MUTANTS, Mutant

__all__ = ["Hunt", "draw", "hunt", "install", "mutated"]

_ROOT: Final = Path(__file__).parents[2]
#: A mutant for which this is not enough, for example because it never ends, is found.
_MOST_S: Final = 300.0
_FOUND, _SURVIVED = 3, 0


class Hunt(NamedTuple):
    """A mutant, the seed that found it, and the first broken promise; None: none did."""

    mutant: Mutant
    seed: int | None
    problem: str


def mutated(mutant: Mutant) -> str:
    """The source of the mutant's module, changed. Raises ValueError if the place is not there exactly once."""
    path = _ROOT / "aioproducer" / (mutant.module.replace(".", "/") + ".py")
    source = path.read_text(encoding="utf-8")
    if source.count(mutant.old) != 1:
        raise ValueError(f"{mutant.name}: the place is {source.count(mutant.old)} times in {path.name}")
    return source.replace(mutant.old, mutant.new)


class _Finder(MetaPathFinder):
    """Loads one module from a changed source."""

    def __init__(self, mutant: Mutant) -> None:
        self._name = f"aioproducer.{mutant.module}"
        self._source = mutated(mutant)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        spec = importlib.machinery.PathFinder.find_spec(fullname, path) if fullname == self._name else None
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path, self._source)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, source: str) -> None:
        super().__init__(name, path)
        self._changed = source

    def get_code(self, fullname: str) -> types.CodeType:
        """The code of the changed source, which is never cached."""
        return self.source_to_code(self._changed.encode(), self.path)


def install(mutant: Mutant) -> None:
    """Let this process import the mutant; before anything of `aioproducer` is imported."""
    assert f"aioproducer.{mutant.module}" not in sys.modules
    sys.meta_path.insert(0, _Finder(mutant))


def _one(name: str, seeds: int) -> int:
    (mutant,) = [each for each in MUTANTS if each.name == name]
    install(mutant)
    from tests.simulation.run import simulate

    for seed in range(seeds):
        problems = simulate(seed).problems
        if problems:
            sys.stdout.write(f"{seed}\t{problems[0]}\n")
            return _FOUND
    return _SURVIVED


def hunt(mutant: Mutant, seeds: int) -> Hunt:
    """Run the seeds in a process of this mutant until one finds it."""
    command = [sys.executable, "-m", "tests.simulation.hunt", "--seeds", str(seeds), "--one", mutant.name]
    try:
        done = subprocess.run(
            command,
            cwd=_ROOT,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=_MOST_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Hunt(mutant, -1, f"stuck: no end within {_MOST_S:g} s")
    if done.returncode == _SURVIVED:
        return Hunt(mutant, None, "")
    if done.returncode == _FOUND:
        seed, _, problem = done.stdout.strip().partition("\t")
        return Hunt(mutant, int(seed), problem)
    return Hunt(mutant, -1, f"crashed: {(done.stderr.strip().splitlines() or ['?'])[-1]}")


def draw(found: Sequence[int | None], most: int, directory: Path) -> None:
    """Draw how many mutants were found within 1, 10, 100 ... seeds; None in ``found`` is a survivor."""
    limits = sorted({most, *(10**power for power in range(len(str(most))))})
    bars = [
        Bar(f"{limit:,} seed{'s' if limit > 1 else ''}", count, f"{count}", accented=limit == most)
        for limit in limits
        for count in [sum(seed is not None and seed < limit for seed in found)]
    ]
    title = f"Of {len(found)} bugs in the client, found within"
    for theme in (LIGHT, DARK):
        chart = bar_chart(title, "deterministic simulation; each bug is one changed place", bars, theme)
        (directory / f"mutants-{theme.name}.svg").write_text(chart)


def main(words: Sequence[str] | None = None) -> int:
    """Exit code 0: each mutant was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.hunt", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, metavar="N", help="seeds for each mutant (default: 2000)")
    parser.add_argument("--jobs", type=int, default=2, metavar="J", help="how many processes (default: 2)")
    parser.add_argument("--charts", type=Path, metavar="DIRECTORY", help="draw how many seeds the mutants needed")
    parser.add_argument("--one", metavar="NAME", help="run the seeds against this mutant, in this process")
    options = parser.parse_args(words)
    if options.one is not None:
        return _one(options.one, options.seeds)
    for mutant in MUTANTS:
        mutated(mutant)
    began = time.perf_counter()
    with ThreadPoolExecutor(options.jobs) as pool:
        hunts = [pool.submit(hunt, mutant, options.seeds) for mutant in MUTANTS]
        for each in hunts:
            mutant, seed, problem = each.result()
            print(f"{'SURVIVED' if seed is None else f'seed {seed:>5}'}  {mutant.name}: {problem[:120]}", flush=True)
    if options.charts is not None:
        draw([each.result().seed for each in hunts], options.seeds, options.charts)
    survivors = [each.result().mutant.name for each in hunts if each.result().seed is None]
    print(f"{len(MUTANTS)} mutants, {len(survivors)} survived, {time.perf_counter() - began:.0f} s")
    return int(bool(survivors))


if __name__ == "__main__":
    raise SystemExit(main())
