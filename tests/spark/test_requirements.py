"""The package alone, as --py-files brings it to executors, says what is missing and what to do."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from aioproducer.spark.requirements import REQUIRED
from tests.spark.local_spark import ROOT


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A zip of the package's Python."""
    path = tmp_path / "aioproducer.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in (ROOT / "aioproducer").rglob("*.py"):
            archive.write(file, file.relative_to(ROOT))
    return path


def imported(archive: Path, *switches: str) -> subprocess.CompletedProcess[str]:
    program = f"import sys; sys.path.insert(0, {str(archive)!r}); import aioproducer.spark as s; print(s.__file__)"
    return subprocess.run([sys.executable, *switches, "-c", program], capture_output=True, text=True, check=False)


def test_the_error_of_a_zip_without_its_libraries_recommends_an_environment(archive: Path) -> None:
    done = imported(archive, "-I", "-S")  # without site-packages

    [last] = done.stderr.splitlines()[-1:]
    assert last.startswith(f"ImportError: aioproducer is installed in {archive}, but not anyio, crc32c, ")
    assert "packed by venv-pack, with --archives" in last


def test_a_zip_beside_its_libraries_is_imported(archive: Path) -> None:
    assert imported(archive, "-I").stdout.startswith(str(archive))


def test_the_libraries_are_the_dependencies_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {re.split(r"[>=<]", each)[0].replace("-", "_") for each in project["dependencies"]}

    distributions = packages_distributions()
    assert {distributions[name][0].replace("-", "_") for name in REQUIRED} == declared
    assert "'On a cluster'" in (ROOT / "aioproducer/spark/requirements.py").read_text(encoding="utf-8")
    assert "\n## On a cluster\n" in (ROOT / "aioproducer/spark/README.md").read_text(encoding="utf-8")
