"""The producer's tests again, in plain Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aioproducer import _twin

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(_twin.PURE, reason="all of this runs in plain Python already")


def run_in_python(*tests: str) -> None:
    """Classes derive from the twin that was chosen at import, so this takes another process."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not uvloop and not debug", *tests],
        cwd=ROOT,
        env={**os.environ, "AIOPRODUCER_PURE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def test_outcomes_are_reported_by_python_as_by_native_code() -> None:
    run_in_python("tests/test_delivery.py", "tests/test_send_many.py")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_producers_do_in_python_what_they_do_in_native_code() -> None:
    run_in_python("tests/test_producer.py", "tests/test_accumulator.py", "tests/test_engine.py", "tests/conformance")
