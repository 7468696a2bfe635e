"""The package builds with a compiler and without, and says which it was."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from aioproducer._twin import NATIVE_MODULES

ROOT = Path(__file__).parent.parent
FOR_SPARK = "pyspark_aioproducer"
NO_COMPILER = f"{sys.executable} -c exit(1)"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The sources as a fresh checkout has them: a build writes beside them, and must find nothing from an earlier one."""
    return copied_to(tmp_path / "source")


def copied_to(copy: Path) -> Path:
    copy.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for package in ("aioproducer", FOR_SPARK):
        shutil.copytree(
            ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__", "*.c", "*.so", "*.pyd")
        )
    return copy


@pytest.fixture(scope="module")
def editable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a fresh virtual environment that has an editable install of these sources, and our dependencies."""
    folder = tmp_path_factory.mktemp("editable")
    source, home = copied_to(folder / "source"), folder / "venv"
    run("-m", "venv", "--without-pip", "--symlinks", str(home), cwd=source)
    python = next(path for path in (home / "bin/python", home / "Scripts/python.exe") if path.exists())
    packages = next(home.rglob("site-packages"))
    # A path that a .pth file names is not searched for .pth files: an install of ours in this environment stays unseen.
    packages.joinpath("dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    run(
        *("-m", "pip", "--python", str(python), "install", "--no-build-isolation", "--no-deps", "--editable", "."),
        cwd=source,
        CC=NO_COMPILER,
        PYTHONPATH="",
    )
    return python


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


def version_reported_by(wheel: Path) -> str:
    unpacked = wheel.parent / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
    return run("-m", "aioproducer", "--version", cwd=unpacked)


def path_of(module: str) -> str:
    return module.replace(".", "/")


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no compiler here")
def test_a_wheel_has_the_native_modules_and_their_types_without_what_they_are_built_from(source: Path) -> None:
    wheel = build_wheel(source)

    for module in NATIVE_MODULES:
        assert path_of(module) + EXTENSION_SUFFIXES[0] in contents(wheel)
    assert not [name for name in contents(wheel) if name.endswith((".c", ".pxd", ".pyx"))]
    assert "aioproducer/record/_native.pyi" in contents(wheel)
    assert f"{FOR_SPARK}/__init__.py" in contents(wheel)
    assert not wheel.name.endswith("-any.whl")
    assert version_reported_by(wheel).endswith(" (native)\n")


def test_without_a_compiler_the_package_builds_and_reports_pure_python(source: Path) -> None:
    wheel = build_wheel(source, CC=NO_COMPILER)

    assert not [name for name in contents(wheel) if name.endswith(tuple(EXTENSION_SUFFIXES))]
    page = {f"aioproducer/contrib/status/{name}" for name in ("page.html", "status.css", "status.js")}
    assert page <= contents(wheel)
    assert version_reported_by(wheel).endswith(" (pure Python: the native extension was not built)\n")


def test_a_source_distribution_has_what_the_native_modules_are_built_from(source: Path) -> None:
    run("-c", "from setuptools.build_meta import build_sdist; build_sdist('..')", cwd=source)

    [sdist] = source.parent.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for module in NATIVE_MODULES:
        assert path_of(module) + ".pyx" in names
    assert {"aioproducer/record/_native.pxd", "aioproducer/record/_native.pyi"} <= names
    assert not [name for name in names if name.endswith(".c")]


def outcome(*command: str, cwd: Path) -> str:
    """The output of a command in an environment that leads to no other copy of the package."""
    others = {"PYTHONPATH", "MYPYPATH"}
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=cwd,
        env={name: value for name, value in os.environ.items() if name not in others},
        capture_output=True,
        text=True,
        check=False,
    ).stdout


@pytest.mark.lint
@pytest.mark.parametrize(
    ("checker", "option", "complaint"),
    [("mypy", "--python-executable", "[arg-type]"), ("pyright", "--pythonpath", "(reportArgumentType)")],
)
def test_a_type_checker_sees_the_package_of_an_editable_install(
    editable: Path, tmp_path: Path, checker: str, option: str, complaint: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    elsewhere.joinpath("app.py").write_text(
        "from aioproducer import Producer\n\nProducer('kafka:9092')\nProducer(bootstrap_servers=1)\n"
    )

    reported = outcome(checker, option, str(editable), "app.py", cwd=elsewhere)

    [complained] = [line for line in reported.splitlines() if "error" in line and "app.py:" in line]
    assert "app.py:4:" in complained
    assert complaint in reported


def test_spark_finds_the_data_source_of_an_editable_install(editable: Path, tmp_path: Path) -> None:
    """It lists top-level modules, as `pkgutil` does."""
    code = "import pkgutil; print(*(each.name for each in pkgutil.iter_modules() if each.name.startswith('pyspark_')))"

    done = subprocess.run([editable, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)

    assert done.stdout.split() == [FOR_SPARK]
