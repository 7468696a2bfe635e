"""The second chance that CI gives to failed tests, tried on planted ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # each starts four or five processes

ROOT = Path(__file__).parents[2]

PASSES = """
def test_passes():
    pass
"""

ALWAYS_RED = """
def test_always_red():
    assert 1 == 2, "always"
"""

RED_ONCE = """
from pathlib import Path
def test_red_once():
    been_here = Path(__file__).with_suffix(".seen")
    is_first = not been_here.exists()
    been_here.touch()
    assert not is_first, "only once"
"""

TEARDOWN_RED_ONCE = """
import pytest
from pathlib import Path
@pytest.fixture
def resource():
    yield
    been_here = Path(__file__).with_suffix(".seen")
    is_first = not been_here.exists()
    been_here.touch()
    assert not is_first, "only once"
def test_red_once_in_its_teardown(resource):
    pass
"""

RED_THEN_SKIPPED = """
import pytest
from pathlib import Path
def test_red_then_skipped():
    been_here = Path(__file__).with_suffix(".seen")
    if been_here.exists():
        pytest.skip("not a second time")
    been_here.touch()
    assert False
"""

SIX_RED_ONCE = """
import pytest
from pathlib import Path
@pytest.mark.parametrize("number", range(6))
def test_one_of_six(number):
    been_here = Path(__file__).with_suffix(f".{number}")
    is_first = not been_here.exists()
    been_here.touch()
    assert not is_first
"""

DIES_ONCE = """
import os
from pathlib import Path
def test_kills_its_worker_once():
    been_here = Path(__file__).with_suffix(".seen")
    if not been_here.exists():
        been_here.touch()
        os._exit(3)
"""

NOT_COLLECTED = "import there_is_no_such_module\n"


def run(folder: Path, *planted: str) -> tuple[int, str]:
    """Run these files as CI does; returns the exit code and the output."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    for number, text in enumerate(planted):
        (folder / f"test_{number}.py").write_text(text)
    command = [sys.executable, "-m", "tests.ci", "records", "planted", "-p", "xdist.plugin", "-n2", "--dist=loadfile"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment |= {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_a_run_without_failures_is_green(tmp_path: Path) -> None:
    code, output = run(tmp_path, PASSES)

    assert code == 0, output
    assert output.splitlines()[-1].startswith("GREEN planted: 1 tests (")


def test_a_test_that_fails_once_is_named_as_flaky_with_its_traceback(tmp_path: Path) -> None:
    code, output = run(tmp_path, PASSES, RED_ONCE, TEARDOWN_RED_ONCE)

    assert code == 0, output
    last = output.partition("FLAKY ")[2]
    assert "test_1.py::test_red_once\n" in last
    assert "test_2.py::test_red_once_in_its_teardown\n" in last
    assert last.count("AssertionError: only once") == 2
    assert output.splitlines()[-1].startswith("GREEN planted: 3 tests, 2 flaky (")


@pytest.mark.parametrize(
    ("planted", "reason"),
    [
        ([ALWAYS_RED], "failed twice, or did not pass the second time: test_1.py::test_always_red"),
        ([ALWAYS_RED, RED_ONCE], "failed twice, or did not pass the second time: test_1.py::test_always_red"),
        ([RED_THEN_SKIPPED], "failed twice, or did not pass the second time: test_1.py::test_red_then_skipped"),
        ([SIX_RED_ONCE], "6 tests failed; at most 5 are run again"),
        ([DIES_ONCE], "a worker process ended"),
        ([NOT_COLLECTED], "not collected: test_1.py"),
    ],
    ids=["always red", "one of two always red", "red, then skipped", "six red", "a worker dies", "not collected"],
)
def test_the_run_is_red(tmp_path: Path, planted: list[str], reason: str) -> None:
    code, output = run(tmp_path, PASSES, *planted)

    assert code == 1, output
    assert f"RED planted: {reason}" in output.splitlines()[-1]


def test_nothing_to_run_is_red(tmp_path: Path) -> None:
    code, output = run(tmp_path)

    assert code == 1
    assert "RED planted: pytest ended with exit code 5" in output


def test_the_summary_has_tiers_slowest_files_and_flaky_tests_of_all_parts(tmp_path: Path) -> None:
    run(tmp_path, RED_ONCE)
    folder = tmp_path / "records"
    (folder / "other.json").write_text(json.dumps({"green": False, "reason": "no", "flaky": [], "seconds": 61}))
    command = [sys.executable, "-m", "tests.ci", str(folder)]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert any(line.split()[:3] == ["all", "1", "0"] for line in lines)
    assert any(line.endswith("1 tests  test_0.py") for line in lines)
    assert "FLAKY test_0.py::test_red_once (planted)" in lines
    assert lines[-2].startswith("RED other: no (1 min 1 s)")
    assert lines[-1].startswith("GREEN planted: 1 tests, 1 flaky (")
