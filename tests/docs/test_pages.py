"""The documentation is true: each block of Python runs, each link leads somewhere."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from aioproducer.config import OPTIONS
from tests.docs.snippets import blocks, run_page

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted((ROOT / "docs" / "pages").rglob("*.md"))
MKDOCS = (ROOT / "docs" / "mkdocs.yml").read_text(encoding="utf-8")


#: The page runs pytest for each of its examples: half a minute.
SLOW = {"testing"}


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.slow] * (page.stem in SLOW), id=page.stem) for page in PAGES]
)
def test_every_block_of_the_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    needs = re.match(r"<!-- needs: (.+) -->", text)
    for module in needs[1].split(", ") if needs else ():
        pytest.importorskip(module, reason="needs pip install 'aioproducer[docs]'")
    visible = [block for block in blocks(text) if not block.hidden and block.not_run is None]

    assert run_page(text, page.name, tmp_path) == len(visible)


def test_no_block_of_python_escapes_the_search() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        fences = len(re.findall(r"^ *```\s*\{?\.?py", text, re.MULTILINE))
        assert fences == sum(not block.hidden for block in blocks(text)), page.name


def test_code_is_narrow_enough_to_be_read_without_scrolling() -> None:
    found = [(page, block) for page in PAGES for block in blocks(page.read_text(encoding="utf-8")) if not block.hidden]
    assert not [
        f"{page.name}:{block.line + number}"
        for page, block in found
        for number, line in enumerate(block.code.splitlines())
        if len(line) > 88
    ]


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.stem)
def test_hidden_blocks_contain_only_things_that_the_reader_has(page: Path) -> None:
    """Example data and a running producer, but no step without which the visible code fails."""
    found = list(blocks(page.read_text(encoding="utf-8")))
    visible = [ast.parse(block.code) for block in found if not block.hidden and block.not_run is None]
    used = {node.id for tree in visible for node in ast.walk(tree) if isinstance(node, ast.Name)}
    shown = {name for tree in visible for name in _imported(tree)}
    for block in found:
        if not block.hidden:
            continue
        hidden = ast.parse(block.code)
        assert not (_imported(hidden) & used) - shown, f"line {block.line} hides an import"
        calls = {node.attr for node in ast.walk(hidden) if isinstance(node, ast.Attribute)}
        assert not calls & {"partitions_for", "init_transactions", "flush"}, f"line {block.line} hides a step"


def _imported(tree: ast.AST) -> set[str]:
    found = (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))
    return {alias.asname or alias.name for node in found for alias in node.names}


def test_few_blocks_are_not_run_and_each_gives_a_reason() -> None:
    reasons = [block.not_run for page in PAGES for block in blocks(page.read_text(encoding="utf-8"))]
    assert len([reason for reason in reasons if reason is not None]) <= 8


def test_a_block_that_fails_fails_its_page(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        run_page("# A page\n\n```python\nimport asyncio\n\nawait asyncio.sleep(0)\n1 / 0\n```\n", "page.md", tmp_path)
    with pytest.raises(AssertionError, match="1 failed"):
        run_page("```python\ndef test_it():\n    assert False\n```\n", "page.md", tmp_path)


def test_every_page_is_in_the_navigation() -> None:
    named = set(re.findall(r": ([\w/-]+\.md)$", MKDOCS, re.MULTILINE))
    assert not {page.relative_to(ROOT / "docs" / "pages").as_posix() for page in PAGES} - named


def test_nothing_is_loaded_from_elsewhere() -> None:
    for page in PAGES:
        assert not re.findall(r"!\[[^\]]*\]\(https?://|<(?:img|script|link)[^>]+https?://", page.read_text("utf-8"))


def test_every_option_is_in_one_table_and_differences_from_java_are_explained() -> None:
    options = _module("options")
    tables: str = options.option_tables()
    for name in OPTIONS:
        rows = re.findall(rf"^\| `{name}`(?:<br>| \|)", tables, re.MULTILINE)
        assert len(rows) == 1 + (name in options.DIFFERENT), name

    shown = {"acks": "all"}  # how the same value is written here and in Java
    for name, option in OPTIONS.items():
        if option.java_key is None or name == "bootstrap_servers" or name in options.DIFFERENT:
            continue
        java = options.JAVA_DEFAULTS.get(option.java_key)
        same = java in (option.default, shown.get(name)) or (java is None and not option.default)
        assert same, f"{name}: {option.default!r} here, {java!r} in Java: say why in docs/options.py"


def test_java_defaults_are_those_of_keys_that_exist() -> None:
    assert not set(_module("options").JAVA_DEFAULTS) - {option.java_key for option in OPTIONS.values()}


def test_rates_in_the_tuning_guide_are_those_of_the_report() -> None:
    report = "".join((ROOT / "benchmarks" / name).read_text("utf-8") for name in ("report/README.md", "notes.md"))
    rates = re.findall(
        r"\b\d{3},\d{3}\b|\d\.\d\d M/s, \d\.\d\d us",
        (ROOT / "docs" / "pages" / "tuning.md").read_text(encoding="utf-8"),
    )
    assert rates
    assert not [rate for rate in rates if rate not in report]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_site_builds_with_all_links_and_anchors(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="needs pip install 'aioproducer[docs]'")
    pytest.importorskip("material", reason="needs pip install 'aioproducer[docs]'")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", "docs/mkdocs.yml", "-d", str(tmp_path / "site")],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for page in (tmp_path / "site").rglob("*.html"):
        loaded = re.findall(r'<(?:script|img|link)[^>]+(?:src|href)="?(https?://[^" >]+)', page.read_text("utf-8"))
        assert not loaded, (page.name, loaded)


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
