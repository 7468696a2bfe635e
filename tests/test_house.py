"""The house rules as tests: lint, format, types, layers, exports. `pytest` is the one command."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import aioproducer

ROOT = Path(__file__).parent.parent


def run(*command: str) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"


def test_the_code_is_free_of_lint() -> None:
    run("ruff", "check", ".")


def test_the_code_is_formatted() -> None:
    run("ruff", "format", "--check", ".")


@pytest.mark.timeout(300)
def test_the_types_hold_for_mypy() -> None:
    run("mypy")


@pytest.mark.timeout(300)
def test_the_types_hold_for_pyright() -> None:
    run("pyright", "--pythonpath", sys.executable)


def test_every_module_imports_only_from_lower_layers() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_public_name_exists_and_says_what_it_is() -> None:
    assert set(aioproducer.__all__) == {*aioproducer._HOME, "__version__"}
    for name in aioproducer.__all__:
        public = getattr(aioproducer, name)
        if isinstance(public, type):
            assert public.__doc__, f"{name} has no docstring"


@pytest.mark.parametrize(
    ("module", "name"), [("producer.py", "Producer"), ("transactions/client.py", "TransactionCoordinatorClient")]
)
def test_every_public_coroutine_says_what_cancellation_does(module: str, name: str) -> None:
    tree = ast.parse((ROOT / "aioproducer" / module).read_text())
    found = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    silent = [
        node.name
        for node in found.body
        if isinstance(node, ast.AsyncFunctionDef)
        and not node.name.startswith("_")
        and not node.name.endswith("send_many")
        and "Cancellation:" not in (ast.get_docstring(node) or "")
    ]
    assert silent == []


def test_every_module_says_in_one_sentence_what_it_is() -> None:
    for module in pkgutil.walk_packages(aioproducer.__path__, "aioproducer."):
        if module.name.endswith("__main__"):
            continue
        doc = importlib.import_module(module.name).__doc__
        assert doc, f"{module.name} has no docstring"
        assert doc.strip().splitlines()[0], module.name


def test_no_test_takes_a_helper_from_the_file_of_another() -> None:
    """What two files of tests share has a place of its own, so that either can be moved or taken out."""
    taken = [
        f"{path.relative_to(ROOT)}: {node.module}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").rpartition(".")[2].startswith("test_")
    ]
    assert taken == []


def test_importing_brings_nothing_that_was_not_asked_for() -> None:
    """Frameworks and tools stay unimported; the pytest plugin imports nothing of the producer at all."""
    heavy = "{'rich', 'confluent_kafka', 'uvloop', 'pandas', 'numpy', 'cramjam', 'pytest'}"
    for module, also in (("aioproducer.producer", "set()"), ("aioproducer", "{'asyncio', 'anyio'}")):
        code = f"import sys, {module}; print(sorted(({heavy} | {also}) & set(sys.modules)))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[]", module
