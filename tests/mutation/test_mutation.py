"""The mutation run finds what a test does not notice, and nothing that a test does notice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutation.__main__ import TESTS, known_survivors
from tests.mutation.mutants import mutants_of

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "aioproducer"
SURVIVORS = known_survivors(Path(__file__).with_name("survivors.toml"))

TINY = '''
LIMITS = {"small": 1, "large": 100}
COUNT = 3


class Gate:
    """Lets some through."""

    def __init__(self):
        self.passed = 0

    def may_pass(self, size, *, kind="small"):
        if size > LIMITS[kind]:
            return False
        self.passed += 1
        return True

    @property
    def is_open(self):
        return self.passed < COUNT


def countdown(count):
    while count > 0:
        count -= 1
    return count
'''

#: Notices every mutant.
SHARP = """
import tiny


def test_sizes():
    gate = tiny.Gate()
    for size, kind in ((1, "small"), (100, "large")):
        assert gate.may_pass(size, kind=kind) is True
        assert gate.may_pass(size + 1, kind=kind) is False
    assert gate.passed == 2
    assert gate.may_pass(2) is False


def test_openness():
    gate = tiny.Gate()
    for _ in range(3):
        assert gate.is_open is True
        gate.may_pass(1)
    assert gate.is_open is False


def test_countdown():
    assert tiny.countdown(3) == 0
    assert tiny.countdown(-1) == -1
"""

#: Runs every line, and looks at nothing.
BLIND = """
import tiny


def test_nothing():
    gate = tiny.Gate()
    gate.may_pass(1), gate.may_pass(101, kind="large"), gate.is_open
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)])}
    command = [sys.executable, "-m", "tests.mutation", "tiny.py", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def entry(before: str) -> str:
    """An entry in the list of survivors."""
    return f"""
[[survivor]]
module = "tiny.py"
function = "Gate.may_pass"
before = "{before}"
after = "(left out)"
reason = "it is not observable"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tiny.py").write_text(TINY)
    (tmp_path / "test_sharp.py").write_text(SHARP)
    (tmp_path / "test_blind.py").write_text(BLIND)
    (tmp_path / "listed.toml").write_text(entry("self.passed += 1") + entry("what stood there once"))
    return tmp_path


@pytest.mark.slow
def test_tests_that_look_closely_kill_every_mutant(folder: Path) -> None:
    """Among them are mutants of a table, a default value and a property, and a loop that never ends."""
    done = run(folder, "--tests", "test_sharp.py", "--survivors", "listed.toml")
    count = len(mutants_of(folder / "tiny.py", "tiny.py"))
    assert f"{count} mutants, {count} killed, 0 known survivors, 0 new ones" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0
    assert (folder / "tiny.py").read_text() == TINY
    assert "Killed by test_sharp.py::test_" in done.stdout, "what is listed and does not survive is reported"
    assert "(strike it from the list):\ntiny.py, Gate.may_pass:\n  - self.passed += 1" in done.stdout
    assert "There is no such mutant any more (strike it from the list):" in done.stdout
    assert "what stood there once" in done.stdout


@pytest.mark.slow
def test_tests_that_look_at_nothing_let_mutants_live_and_the_listed_ones_are_not_reported(folder: Path) -> None:
    done = run(folder, "--tests", "test_blind.py", "--survivors", "listed.toml")
    assert "+ if size >= LIMITS[kind]:" in done.stdout, done.stdout + done.stderr
    assert "large: 1" in done.stdout.replace("'", "")  # the table
    assert "no test reaches it" in done.stdout  # the countdown
    assert "1 known survivors" in done.stdout
    assert "- self.passed += 1\n  + (left out)" not in done.stdout
    assert "- self.passed += 1\n  + self.passed -= 1" in done.stdout
    assert done.returncode == 1


@pytest.mark.slow
def test_tests_that_fail_without_a_mutant_judge_none(folder: Path) -> None:
    (folder / "test_red.py").write_text("import tiny\n\n\ndef test_red():\n    assert tiny.countdown(1) == 5\n")
    done = run(folder, "--tests", "test_red.py", "--survivors", "listed.toml")
    assert "test_red.py::test_red fails without any mutant." in done.stderr
    assert done.returncode == 2


def test_each_mutant_differs_from_the_module_and_from_the_others(folder: Path) -> None:
    original = compile(TINY, str(folder / "tiny.py"), "exec")
    mutants = mutants_of(folder / "tiny.py", "tiny.py")
    assert len({mutant.key for mutant in mutants}) == len(mutants) > 20
    codes = [mutant.compiled() for mutant in mutants]
    assert original not in codes
    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize("module", sorted({key.module for key in SURVIVORS}))
def test_each_known_survivor_is_still_a_mutant_of_its_module(module: str) -> None:
    """Or the next change of the same line would hide behind the reason of the last one."""
    known = {key for key in SURVIVORS if key.module == module}
    assert (PACKAGE / module).is_file()
    stale = known - {mutant.key for mutant in mutants_of(PACKAGE / module, module)}
    assert not stale, "strike from survivors.toml:\n" + "\n".join(map(str, stale))


@pytest.mark.parametrize("start", TESTS)
def test_files_named_in_the_table_of_tests_exist(start: str) -> None:
    assert (PACKAGE / start).exists()
    assert [test for test in TESTS[start] if not (ROOT / test).exists()] == []


def test_each_reason_is_given_once_for_each_mutant() -> None:
    entries = Path(__file__).with_name("survivors.toml").read_text().count("[[survivor]]")
    assert entries == len(SURVIVORS)
    assert [key for key, reason in SURVIVORS.items() if not reason.endswith(".")] == []
