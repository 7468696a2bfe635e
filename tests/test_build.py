"""The package builds with a compiler and without, and says which it was."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from aioproducer._twin import NATIVE_MODULES

ROOT = Path(__file__).parent.parent

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The sources as a fresh checkout has them: a build writes beside them, and must find nothing from an earlier one."""
    copy = tmp_path / "source"
    copy.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(
        ROOT / "aioproducer", copy / "aioproducer", ignore=shutil.ignore_patterns("__pycache__", "*.c", "*.so", "*.pyd")
    )
    return copy


def run(*command: str, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env={**os.environ, "AIOPRODUCER_PURE": "", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build_wheel(source: Path, **environment: str) -> Path:
    run(
        "-m",
        "pip",
        "wheel",
        "--no-build-isolation",
        "--no-deps",
        "--wheel-dir",
        "../wheels",
        ".",
        cwd=source,
        **environment,
    )
    [wheel] = (source.parent / "wheels").glob("*.whl")
    return wheel


def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def version_told_by(wheel: Path) -> str:
    unpacked = wheel.parent / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
    return run("-m", "aioproducer", "--version", cwd=unpacked)


def path_of(module: str) -> str:
    return module.replace(".", "/")


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no compiler here")
def test_a_wheel_has_the_native_modules_and_what_is_needed_to_write_others_against_them(source: Path) -> None:
    wheel = build_wheel(source)

    for module in NATIVE_MODULES:
        assert {path_of(module) + end for end in (EXTENSION_SUFFIXES[0], ".pyx")} <= contents(wheel)
    assert not [name for name in contents(wheel) if name.endswith(".c")]
    assert {"aioproducer/record/_native.pxd", "aioproducer/record/_native.pyi"} <= contents(wheel)
    assert not wheel.name.endswith("-any.whl")
    assert version_told_by(wheel).endswith(" (native)\n")


def test_without_a_compiler_the_package_builds_and_says_that_it_is_python(source: Path) -> None:
    wheel = build_wheel(source, CC=f"{sys.executable} -c exit(1)")

    assert not [name for name in contents(wheel) if name.endswith(tuple(EXTENSION_SUFFIXES))]
    assert version_told_by(wheel).endswith(" (pure Python: the native extension was not built)\n")


def test_a_source_distribution_has_what_the_native_modules_are_built_from(source: Path) -> None:
    run("-c", "from setuptools.build_meta import build_sdist; build_sdist('..')", cwd=source)

    [sdist] = source.parent.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for module in NATIVE_MODULES:
        assert path_of(module) + ".pyx" in names
    assert {"aioproducer/record/_native.pxd", "aioproducer/record/_native.pyi"} <= names
    assert not [name for name in names if name.endswith(".c")]
