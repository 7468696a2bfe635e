"""The command: ``python -m tests.mutation [MODULE ...]``, in the root of the repository.

It makes mutants of modules that decide - of `core/`, `accumulator/` and the sender, unless others are named -, and runs
the tests against each (`judging`). A survivor is a change that no test notices: a hole in the tests, unless the change
makes no difference. Those that are known, with the reason why nothing kills them, stand in survivors.toml; the command
lists the others, and ends with 1 if there are any.

mutmut and Cosmic Ray do not do: mutmut leaves alone what is not within an undecorated function, and so the tables in
which most of Kafka's errors are decided; Cosmic Ray writes each mutant into the tree and starts pytest again for each.
"""

from __future__ import annotations

import argparse
import sys
import time
import tomllib
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Final

from tests.mutation.judging import Judgement, TestsFail, judge
from tests.mutation.mutants import Mutant, MutantKey, mutants_of

_PACKAGE: Final = "aioproducer/"
_SURVIVORS: Final = Path(__file__).with_name("survivors.toml")

_ACCUMULATOR: Final = ("tests/test_accumulator.py", "tests/test_buffer_pool.py")
_SENDER: Final = ("tests/test_sender.py", "tests/traps/test_trap_04_splits.py")
_TRANSACTIONS: Final = (
    "tests/core/test_transactions_tables.py",
    "tests/core/test_transactions.py",
    "tests/core/test_transaction_refusals.py",
)

#: Which tests judge which modules: those that are about it, and are over soon. The longest beginning counts.
TESTS: Final[Mapping[str, Sequence[str]]] = {
    "accumulator/": (*_ACCUMULATOR, *_SENDER, "tests/test_delivery.py"),
    "accumulator/buffer_pool.py": _ACCUMULATOR,
    "core/": ("tests/core", *_ACCUMULATOR),
    "core/batch_limits.py": ("tests/core/test_batch_limits.py",),
    "core/backoff.py": ("tests/core/test_backoff.py",),
    "core/batches.py": ("tests/core/test_batches.py", *_ACCUMULATOR, *_SENDER),
    "core/cluster.py": ("tests/core/test_cluster.py", "tests/test_accumulator.py"),
    "core/compression_ratio.py": ("tests/core/test_produce_error_codes.py", "tests/test_accumulator.py"),
    "core/division.py": ("tests/test_accumulator.py", *_SENDER),
    "core/failed_attempt.py": ("tests/core/test_failed_attempt.py",),
    "core/outage.py": ("tests/core/test_outage.py",),
    "core/partitioner.py": ("tests/core/test_partitioner.py",),
    "core/pause.py": ("tests/core/test_pause.py",),
    "core/sequences.py": ("tests/core/test_sequences.py",),
    "core/transactions/": (*_TRANSACTIONS, "tests/core/test_transactions_model.py"),
    "core/transactions/error_codes.py": _TRANSACTIONS,
    "core/transactions/failures.py": _TRANSACTIONS,
    "core/transactions/offsets.py": (*_TRANSACTIONS, "tests/core/test_committed_offsets.py"),
    "core/transactions/queries.py": (
        "tests/core/test_described_transaction.py",
        "tests/core/test_open_transaction.py",
        "tests/core/test_transaction_fate.py",
    ),
    "core/transactions/answers.py": (*_TRANSACTIONS, "tests/core/test_shared_writes.py"),
    "core/transactions/sharing.py": ("tests/core/test_shared_writes.py",),
    "core/transactions/states.py": ("tests/core/test_transactions_tables.py",),
    "core/transactions/writer_shape.py": ("tests/core/test_writer_shape.py",),
    "core/produce_error_codes.py": ("tests/core/test_produce_error_codes.py",),
    "engine/produce_answers.py": (
        "tests/test_produce_answers.py",
        "tests/test_old_timestamps.py",
        "tests/test_restarted_broker.py",
    ),
    "engine/retries.py": (
        "tests/test_produce_answers.py",
        "tests/test_old_timestamps.py",
        "tests/test_restarted_broker.py",
    ),
    "engine/sender.py": ("tests/test_sender_requests.py", "tests/test_sender.py"),
    "engine/": (
        *_SENDER,
        "tests/traps/test_trap_02_unknown_fate.py",
        "tests/traps/test_trap_02_wrong_answers.py",
        "tests/traps/test_trap_03_epoch_bump.py",
        "tests/traps/test_trap_07_leader_change.py",
        "tests/traps/test_trap_11_reordering.py",
        "tests/traps/test_trap_12_error_table.py",
        "tests/test_transactions.py",
    ),
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.mutation", description="Which changes does no test notice?")
    parser.add_argument(
        "modules", nargs="*", metavar="MODULE", help="files or folders (default: core, accumulator and the sender)"
    )
    parser.add_argument("--sample", type=int, metavar="N", help="judge only so many mutants of each module")
    parser.add_argument("--seed", type=int, default=0, help="which ones (default: 0)")
    parser.add_argument("--tests", nargs="+", metavar="FILE", help="the tests that judge (default: a table's)")
    parser.add_argument(
        "--survivors", type=Path, default=_SURVIVORS, metavar="FILE", help="the list of known survivors"
    )
    return parser.parse_args()


def _default_modules() -> list[str]:
    folders = ("core", "core/transactions", "accumulator")
    found = [str(path) for folder in folders for path in sorted(Path(_PACKAGE, folder).glob("*.py"))]
    return [*found, *(f"{_PACKAGE}engine/{name}.py" for name in ("sender", "produce_answers", "retries"))]


def _files(names: Sequence[str]) -> list[str]:
    found = [
        [name] if name.endswith(".py") else sorted(str(path) for path in Path(name).rglob("*.py")) for name in names
    ]
    return [each for files in found for each in files]


def _tests_for(module: str) -> tuple[str, ...]:
    name = module.removeprefix(_PACKAGE)
    fitting = max((start for start in TESTS if name.startswith(start)), key=len, default=None)
    if fitting is None:
        sys.exit(f"No tests are known for {module}: name them with --tests, or add them to the table in {__file__}.")
    return tuple(TESTS[fitting])


def known_survivors(path: Path) -> dict[MutantKey, str]:
    """The mutants that need no test, each with the reason."""
    entries = tomllib.loads(path.read_text()).get("survivor", [])
    return {
        MutantKey(entry["module"], entry.get("function", ""), entry["before"], entry["after"]): entry["reason"]
        for entry in entries
    }


class _Progress:
    """Prints survivors as they are found - a run is long, and may be stopped -, and one line that grows."""

    def __init__(self, total: int, known: Collection[MutantKey]) -> None:
        self._total = total
        self._known = known
        self._begun = time.monotonic()
        self.done = self.survived = 0

    def on_judgement(self, judgement: Judgement) -> None:
        self.done += 1
        if judgement.killed_by is None:
            self.survived += 1
            if judgement.mutant.key not in self._known:
                reached = f"{judgement.tests} test(s) reach it" if judgement.tests else "no test reaches it"
                print(f"{judgement.mutant.key}\n    line {judgement.mutant.lines.start}; {reached}\n", flush=True)
        if sys.stderr.isatty() or self.done % 50 == 0:
            end = "\r" if sys.stderr.isatty() else "\n"
            print(f"{self.done} of {self._total}, {self.survived} survived", end=end, file=sys.stderr, flush=True)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begun


def main() -> int:
    """Judge the mutants, and list the unknown survivors."""
    arguments = _arguments()
    by_tests: dict[tuple[str, ...], list[Mutant]] = defaultdict(list)
    everything: dict[str, set[MutantKey]] = {}
    for module in _files(arguments.modules) or _default_modules():
        name = module.removeprefix(_PACKAGE)
        mutants = mutants_of(Path(module).resolve(), name)
        everything[name] = {mutant.key for mutant in mutants}
        if arguments.sample is not None and arguments.sample < len(mutants):
            mutants = Random(arguments.seed).sample(mutants, arguments.sample)
        by_tests[tuple(arguments.tests or _tests_for(module))] += mutants
    known = known_survivors(arguments.survivors)
    progress = _Progress(sum(map(len, by_tests.values())), known)
    judgements: list[Judgement] = []
    try:
        for tests, mutants in by_tests.items():
            judgements += judge(mutants, tests, progress.on_judgement)
    except TestsFail as error:
        print(error, file=sys.stderr)
        return 2
    return _summary(judgements, everything, known, progress)


def _summary(
    judgements: Sequence[Judgement],
    everything: Mapping[str, set[MutantKey]],
    known: Mapping[MutantKey, str],
    progress: _Progress,
) -> int:
    survivors = [each for each in judgements if each.killed_by is None]
    news = [each for each in survivors if each.mutant.key not in known]
    for each in judgements:
        if each.killed_by is not None and each.mutant.key in known:
            print(f"Killed by {each.killed_by} (strike it from the list):\n{each.mutant.key}\n")
    for key in known:
        if key.module in everything and key not in everything[key.module]:
            print(f"There is no such mutant any more (strike it from the list):\n{key}\n")
    count = len(judgements)
    print(
        f"{count} mutants, {count - len(survivors)} killed, {len(survivors) - len(news)} known survivors, "
        f"{len(news)} new ones; {count / progress.seconds:.1f} mutants a second"
    )
    return 1 if news else 0


if __name__ == "__main__":
    sys.exit(main())
