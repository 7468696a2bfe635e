"""Finds the Python in Markdown, and runs it as a reader would: from top to bottom, against a broker.

The blocks of a page share one namespace, as if the reader pasted them into one program. A block may await. A comment
``<!-- hidden`` holds code that the page takes for granted; ``<!-- not run: why -->`` before a block says why it is not run.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aioproducer.testing import FakeBroker

__all__ = ["Block", "blocks", "run_page"]

#: The addresses in the text that stand for the reader's own cluster.
_PLACES = re.compile(r"\b(?:localhost|kafka|host):9092\b")

_BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]+?) -->\n+)?(?P<indent> *)```python\n(?P<code>.*?)^ *```$"
    r"|^<!-- hidden\n(?P<hidden>.*?)^-->$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """One piece of Python on a page; ``line`` is where it begins."""

    code: str
    line: int
    hidden: bool = False
    not_run: str | None = None

    @property
    def is_tests(self) -> bool:
        """Whether pytest runs it: it defines tests."""
        return re.search(r"^ *(?:async )?def test_", self.code, re.MULTILINE) is not None


def blocks(text: str) -> Iterator[Block]:
    """The Python of a page, in order."""
    for found in _BLOCK.finditer(text):
        hidden = found["hidden"] is not None
        code: str = found["hidden"] if hidden else re.sub(f"^{found['indent']}", "", found["code"], flags=re.MULTILINE)
        start = found.start("hidden" if hidden else "code")
        yield Block(code, text.count("\n", 0, start) + 1, hidden, found["reason"])


def run_page(text: str, name: str, directory: Path) -> int:
    """Run all blocks of a page; returns how many of those that a reader sees were run."""
    seen = 0
    # A burst of these pages starts many producers; each page has its own broker.
    with FakeBroker(num_partitions=3) as broker, asyncio.Runner() as runner:
        kept = AsyncExitStack()
        names: dict[str, Any] = {"__name__": name, "broker": broker, "page": kept}
        try:
            for block in blocks(text):
                if block.not_run is not None:
                    compile(block.code, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
                    continue
                code = _PLACES.sub(broker.bootstrap_servers, block.code)
                if block.is_tests:
                    _run_by_pytest(code, directory / f"test_line_{block.line}.py")
                else:
                    _run(code, block.line, names, runner)
                seen += not block.hidden
        finally:
            runner.run(kept.aclose())
    return seen


def _run(code: str, line: int, names: dict[str, Any], runner: asyncio.Runner) -> None:
    compiled = compile("\n" * (line - 1) + code, f"{names['__name__']}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(compiled, names)
    if inspect.iscoroutine(result):
        runner.run(result)


def _run_by_pytest(code: str, path: Path) -> None:
    path.write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=strict", str(path)],
        cwd=path.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
