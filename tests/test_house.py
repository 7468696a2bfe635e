"""The house rules as tests, but for those that a tool checks (tests/lint/): sizes, exports, documentation, imports."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import aioproducer
from aioproducer import Producer
from aioproducer.transactions.context import TransactionalProducer

ROOT = Path(__file__).parent.parent


def test_the_top_of_the_package_can_be_taken_in_at_a_glance() -> None:
    package = ROOT / "aioproducer"
    code = [path for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    assert len(code) <= 31, sorted(path.name for path in code)


def test_a_transaction_offers_the_calls_of_the_producer_as_they_are() -> None:
    """It is below the producer, so it names the calls once more; the type checkers compare the types."""
    for name, call in vars(TransactionalProducer).items():
        if inspect.isfunction(call) and not name.startswith("_"):
            ours, theirs = (inspect.signature(each).parameters for each in (call, getattr(Producer, name)))
            assert [(each.name, each.kind, each.default) for each in ours.values()] == [
                (each.name, each.kind, each.default) for each in theirs.values()
            ], name


#: One job a class, one thought a function.
MOST_LINES_OF_A_CLASS = 450
MOST_LINES_OF_A_FUNCTION = 60
#: What may be longer, by its path from the package, or by its folder; and why.
LONG_FOR_A_REASON = {
    "producer.py:Producer": "the public API, with the documentation of every call",
    "sync.py:SyncProducer": "the same API once more, for threads",
    "intake/hand_over.py:put": "the fast path of threads, likewise",
    "hot": "the fast path: each separate function would cost a call for every record",
}


def too_long(source: str) -> list[tuple[str, int]]:
    """The classes and functions in this source that have too many lines, and how many."""
    long: list[tuple[str, int]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            most = MOST_LINES_OF_A_CLASS
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            most = MOST_LINES_OF_A_FUNCTION
        else:
            continue
        assert node.end_lineno is not None
        lines = node.end_lineno - node.lineno + 1
        if lines > most:
            long.append((node.name, lines))
    return long


def test_no_class_and_no_function_is_too_long() -> None:
    package = ROOT / "aioproducer"
    found = {
        f"{path.relative_to(package).as_posix()}:{name}": lines
        for path in package.rglob("*.py")
        if path.relative_to(package).parts[0] not in LONG_FOR_A_REASON
        for name, lines in too_long(path.read_text())
    }
    assert {where: lines for where, lines in found.items() if where not in LONG_FOR_A_REASON} == {}


@pytest.mark.parametrize(
    ("head", "most"),
    [
        ("class It:", MOST_LINES_OF_A_CLASS),
        ("def it():", MOST_LINES_OF_A_FUNCTION),
        ("async def it():", MOST_LINES_OF_A_FUNCTION),
    ],
)
def test_one_line_more_is_too_long(head: str, most: int) -> None:
    def of_lines(lines: int) -> str:
        return "\n".join([head, *["    pass"] * (lines - 1)])

    assert too_long(of_lines(most)) == []
    assert [lines for _, lines in too_long(of_lines(most + 1))] == [most + 1]


def test_every_public_name_exists_and_has_a_docstring() -> None:
    assert set(aioproducer.__all__) == {*aioproducer._HOME, "__version__"}
    for name in aioproducer.__all__:
        public = getattr(aioproducer, name)
        if isinstance(public, type):
            assert public.__doc__, f"{name} has no docstring"


@pytest.mark.parametrize(
    ("module", "name"), [("producer.py", "Producer"), ("transactions/client.py", "TransactionCoordinatorClient")]
)
def test_every_public_coroutine_documents_cancellation(module: str, name: str) -> None:
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


def test_every_modules_docstring_begins_with_one_sentence() -> None:
    for module in pkgutil.walk_packages(aioproducer.__path__, "aioproducer."):
        if module.name.endswith("__main__"):
            continue
        doc = importlib.import_module(module.name).__doc__
        assert doc, f"{module.name} has no docstring"
        assert doc.strip().splitlines()[0], module.name


def test_no_test_takes_a_helper_from_the_file_of_another() -> None:
    """Code that two test files share has a separate place, so that either can be moved or removed."""
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
