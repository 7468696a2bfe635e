"""The README is true: its code runs, and its commands, options and files exist."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from aioproducer import Delivery, Producer, SyncProducer
from aioproducer.cli.main import main
from aioproducer.config import OPTIONS
from aioproducer.testing import FakeBroker
from tests.docs.snippets import run_page

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

#: What the names in the README's code stand for.
KINDS: dict[str, tuple[type, ...]] = {
    "producer": (Producer, SyncProducer),
    "delivery": (Delivery,),
    "kafka_broker": (FakeBroker,),
}
PRODUCERS = {"Producer", "SyncProducer"}


def blocks(language: str) -> list[str]:
    found = re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    assert found, f"the README has no {language} any more"
    return found


def code() -> Iterator[ast.AST]:
    for block in blocks("python"):
        yield from ast.walk(ast.parse(block))


def test_its_code_runs(tmp_path: Path) -> None:
    assert run_page(README, "README.md", tmp_path) == len(blocks("python"))


def test_its_imports_exist() -> None:
    for node in code():
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for name in node.names:
                assert hasattr(import_module(node.module), name.name), name.name


def test_its_methods_and_their_arguments_exist() -> None:
    seen: set[str] = set()
    for node in code():
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        given = [keyword.arg for keyword in node.keywords if keyword.arg is not None]
        if isinstance(function, ast.Name) and function.id in PRODUCERS:
            taken: Any = OPTIONS
        elif (
            isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id in KINDS
        ):
            kinds = KINDS[function.value.id]
            method = next((getattr(kind, function.attr) for kind in kinds if hasattr(kind, function.attr)), None)
            assert method is not None, f"{function.value.id}.{function.attr}() does not exist"
            taken = inspect.signature(method).parameters
        else:
            continue
        seen.add(ast.unparse(function))
        assert not set(given) - set(taken), f"{ast.unparse(node)}: there is no such argument"
    assert {"Producer", "producer.send", "producer.send_many", "kafka_broker.assert_sent"} <= seen


def test_its_flags_of_the_demo_exist(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["demo", "--help"])

    output = capsys.readouterr().out
    about_the_demo = next(section for section in README.split("\n## ") if "aioproducer demo" in section)
    flags = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", about_the_demo))
    assert "--kafka" in flags
    assert not {flag for flag in flags if flag not in output}


def test_its_commands_name_extras_and_markers_that_exist() -> None:
    markers = {marker.partition(":")[0] for marker in PROJECT["tool"]["pytest"]["ini_options"]["markers"]}
    asked = set(re.findall(r"pytest -m '?(?:not )?(\w+)", README))
    extras = set(re.findall(r"\.\[(\w+)\]", README))

    assert asked
    assert asked <= markers
    assert extras
    assert extras <= set(PROJECT["project"]["optional-dependencies"])


def test_ci_runs_its_commands_for_the_tests() -> None:
    """It reads them from here; each is one line, which the script changes only in that CI sees how each test ended."""
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    patterns = re.findall(r"""^(\w+)=\$\(grep (['"])(.+)\2 README\.md\)$""", script, re.MULTILINE)
    commands = {name: re.findall(f"{pattern}.*$", README, re.MULTILINE) for name, _, pattern in patterns}

    assert {name: len(found) for name, found in commands.items()} == {"quick": 1, "all": 1}
    assert commands["quick"][0].endswith("&& .venv/bin/pytest -n 4 --dist worksteal")
    for part in ('as_part newest "$quick"', 'as_part pure "${quick##*&& }"', 'as_part all "$all"'):
        assert f'"$({part})"' in script


def test_the_files_that_it_names_exist() -> None:
    linked = re.findall(r"\]\(([^)#]+)\)", README)
    run = re.findall(r"\bpython (\S+\.py)\b", README)

    assert linked
    assert not [name for name in (*linked, *run) if "://" not in name and not (ROOT / name).exists()]
