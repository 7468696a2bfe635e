"""The command line's ``load`` and ``audit`` as separate programs, which may be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from aioproducer.spark.load.log import LoadLog
from tests.spark.local_spark import ROOT

__all__ = ["kill_when_committed", "result_of"]

#: The machine may be busy with other tests.
_PATIENCE: Final = 900.0


def result_of(*arguments: str) -> dict[str, Any]:
    """The output of the command line for these arguments, ``--json`` among them."""
    done = subprocess.run(
        _command(arguments),
        cwd=ROOT,
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=_PATIENCE,
    )
    assert done.stdout, done.stderr
    output: dict[str, Any] = json.loads(done.stdout)
    return output


def kill_when_committed(number: int, checkpoint: Path, arguments: Sequence[str]) -> None:
    """Run a load until that slice of its files is committed, and kill it and its JVM then."""
    with _running(*arguments) as process:
        _wait_until(lambda: LoadLog.committed(checkpoint) > number, process)
        os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def _running(*arguments: str) -> Generator[subprocess.Popen[str], None, None]:
    """The command line in its own process group, of which nothing is left behind."""
    process = subprocess.Popen(
        _command(arguments), cwd=ROOT, env=_environment(), stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _command(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "aioproducer", *arguments]


def _environment() -> dict[str, str]:
    """Workers of Spark import what the tests do."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}


def _wait_until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not condition():
        assert process.poll() is None, "The load ended before it could be killed."
        assert time.monotonic() < deadline
        time.sleep(0.05)
