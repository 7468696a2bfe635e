"""Counts the instructions that the encoder executes for a record: a figure without noise, which shows gradual growth.

    python -m benchmarks.instructions            # count, and compare with instructions.json
    python -m benchmarks.instructions --check    # fail if an operation takes over 3 % more than there
    python -m benchmarks.instructions --write    # keep the counts of this Python and machine in instructions.json

`perf stat` counts where the machine lets it; virtual machines often do not. Valgrind's callgrind counts everywhere. What
starting Python takes falls out: one run does a little of everything, then one for each operation does more of that, and
the difference is divided by the number of records that were more.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from aioproducer._twin import implementation
from aioproducer.record import RecordBatchBuilder, encode_batch, murmur2
from benchmarks import CHECKOUT
from benchmarks.unavailable import Unavailable

__all__ = ["OPERATIONS", "Counter", "count", "find_counter", "main", "run"]

_BASELINE: Final = Path(__file__).parent / "instructions.json"
_FEW: Final = 500
_MORE: Final = 2_000
_BATCH: Final = 100
_TOLERANCE: Final = 1.03
_TIMEOUT: Final = 600.0
_TIMESTAMP: Final = 1_700_000_000_000
_VALUE: Final = b"v" * 100
_KEY: Final = b"key-000001"
_HEADERS: Final = (("trace", b"0123456789abcdef"), ("source", b"benchmarks"))

#: A command in front of a program, and what finds the count in what it writes to standard error.
Counter = tuple[list[str], re.Pattern[str]]


def _append(records: int, key: bytes | None = None, headers: tuple[tuple[str, bytes], ...] = ()) -> None:
    for _ in range(records // _BATCH):
        builder = RecordBatchBuilder()
        append = builder.append
        for _ in range(_BATCH):
            append(_TIMESTAMP, key, _VALUE, headers)


def _batches(records: int) -> None:
    for _ in range(records // _BATCH):
        builder = RecordBatchBuilder()
        for _ in range(_BATCH):
            builder.append(_TIMESTAMP, None, _VALUE)
        encode_batch(builder).stamp(1, 0, 0)


def _murmur2(records: int) -> None:
    for _ in range(records):
        murmur2(_KEY)


#: What is counted, each for so many records; a tenth of it is the loop around it.
OPERATIONS: Final[Mapping[str, Callable[[int], None]]] = {
    "append a value of 100 bytes": _append,
    "append a value with a key": lambda records: _append(records, _KEY),
    "append a value with two headers": lambda records: _append(records, None, _HEADERS),
    "append, close and stamp batches of 100 records": _batches,
    "murmur2 of a key of 10 bytes": _murmur2,
}


def run(more_of: str) -> None:
    """A little of everything, and more of one operation; this is what is counted."""
    for operation in OPERATIONS.values():
        operation(_FEW)
    if more_of in OPERATIONS:
        OPERATIONS[more_of](_MORE)


def find_counter() -> Counter:
    """The tool of this machine. Raises Unavailable if there is none."""
    perf = ["perf", "stat", "-x", ",", "-e", "instructions:u"]
    perf_count = re.compile(r"^(\d+),[^,]*,instructions", re.MULTILINE)
    if shutil.which("perf"):
        done = subprocess.run([*perf, "true"], capture_output=True, text=True, timeout=_TIMEOUT, check=False)
        if perf_count.search(done.stderr):
            return perf, perf_count
    if shutil.which("valgrind"):
        valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={os.devnull}"]
        return valgrind, re.compile(r"Collected : (\d+)")
    raise Unavailable(
        "Instructions cannot be counted here: `perf stat` is not there or is not allowed to, and there is no valgrind "
        "(for example `apt-get install valgrind`)."
    )


def count(counter: Counter) -> Iterator[tuple[str, float]]:
    """Each operation, and the instructions that it takes for one record."""
    little = _counted(counter, "nothing")
    for operation in OPERATIONS:
        yield operation, (_counted(counter, operation) - little) / _MORE


def _counted(counter: Counter, operation: str) -> int:
    command, pattern = counter
    program = [sys.executable, "-m", "benchmarks.instructions", "--run", operation]
    # A fixed seed of hashes, so that dictionaries collide in the same way each time.
    environment = os.environ | {"PYTHONHASHSEED": "0"}
    done = subprocess.run(
        [*command, *program],
        cwd=CHECKOUT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
        check=False,
    )
    found = pattern.search(done.stderr)
    if done.returncode != 0 or found is None:
        raise Unavailable(f"`{command[0]}` could not count {operation!r}: {done.stderr.strip()[-300:]}")
    return int(found.group(1))


def main() -> None:
    """Count, and show, check or keep."""
    arguments = _parser().parse_args()
    if arguments.run is not None:
        run(arguments.run)
        return
    try:
        counter = find_counter()
    except Unavailable as error:
        raise SystemExit(str(error)) from error
    kept: dict[str, dict[str, float]] = json.loads(_BASELINE.read_text()) if _BASELINE.exists() else {}
    here = _here(counter)
    baseline = kept.get(here, {})
    counts: dict[str, float] = {}
    print(f"Instructions a record ({here}; kept ones: {'yes' if baseline else 'none for this'})")
    for operation, instructions in count(counter):
        counts[operation] = instructions
        change = f"{instructions / baseline[operation] - 1:+8.1%}" if operation in baseline else "       -"
        print(f"{instructions:12,.1f} {change}  {operation}", flush=True)
    if arguments.write:
        _BASELINE.write_text(json.dumps(kept | {here: counts}, indent=1) + "\n")
    if arguments.check:
        _check(counts, baseline)


def _check(counts: Mapping[str, float], baseline: Mapping[str, float]) -> None:
    crept = [name for name in counts if name in baseline and counts[name] > baseline[name] * _TOLERANCE]
    if crept:
        raise SystemExit(f"More instructions than were kept in {_BASELINE.name}: {'; '.join(crept)}.")


def _here(counter: Counter) -> str:
    """The known conditions that a count depends on."""
    python = f"{platform.python_implementation()} {'.'.join(platform.python_version_tuple()[:2])}"
    encoder = "native" if implementation() == "native" else "pure Python"
    return f"{encoder}, {python}, {platform.machine()}, {counter[0][0]}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.instructions",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--check", action="store_true", help="exit with 1 if an operation takes over 3 %% more")
    parser.add_argument("--write", action="store_true", help="keep the counts")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    main()
