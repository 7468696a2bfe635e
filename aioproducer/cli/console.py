"""A verb's output for people: with rich if it is installed, else in plain lines, or none at all (--json)."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Final, Protocol, TypeAlias

from aioproducer.cli.extras import is_installed
from aioproducer.cli.summary import Summary

__all__ = ["Advance", "Console", "JsonConsole", "PlainConsole", "RichConsole", "console"]

_PLAIN_INTERVAL: Final = 1.0

#: ``advance(done, note)`` moves a progress bar to ``done`` and writes the note beside it.
Advance: TypeAlias = Callable[[int, str], None]


class Console(Protocol):
    """Reports what starts, its progress, and the result."""

    def write(self, sentence: str) -> None:
        """Write a sentence."""
        ...

    def progress(self, label: str, total: int) -> AbstractContextManager[Advance]:
        """Show the progress of one step while the block runs."""
        ...

    def summarise(self, summary: Summary) -> None:
        """Write the result."""
        ...


class PlainConsole:
    """Lines of text on standard output."""

    def write(self, sentence: str) -> None:
        """Write a sentence."""
        print(sentence, flush=True)

    @contextmanager
    def progress(self, label: str, total: int) -> Generator[Advance, None, None]:
        """Write a line each second."""
        written_at = time.monotonic()

        def advance(done: int, note: str) -> None:
            nonlocal written_at
            if time.monotonic() - written_at >= _PLAIN_INTERVAL:
                written_at = time.monotonic()
                self.write(f"{label}: {done:,} of {total:,}  {note}")

        yield advance

    def summarise(self, summary: Summary) -> None:
        """Write a line for each number, and the verdict."""
        rows = summary.rows()
        width = max(len(label) for label, _ in rows)
        self.write("")
        for label, text in rows:
            self.write(f"{label:<{width}}  {text}")
        for sentence in summary.verdict.examples if summary.verdict is not None else ():
            self.write(f"  - {sentence}")
        self.write(f"\nVERDICT: {'OK' if summary.is_good else 'BAD'} - {summary.conclusion}")


class JsonConsole:
    """One JSON object at the end, and nothing else."""

    def write(self, sentence: str) -> None:
        """Write nothing."""

    @contextmanager
    def progress(self, label: str, total: int) -> Generator[Advance, None, None]:
        """Write nothing."""
        yield lambda done, note: None

    def summarise(self, summary: Summary) -> None:
        """Write the object."""
        print(json.dumps(summary.as_json(), indent=2))


class RichConsole:
    """Colours, progress bars and a table; needs rich."""

    def __init__(self) -> None:
        from rich.console import Console as Terminal

        self._terminal = Terminal(highlight=False)

    def write(self, sentence: str) -> None:
        """Write a sentence."""
        self._terminal.print(sentence, markup=False)

    @contextmanager
    def progress(self, label: str, total: int) -> Generator[Advance, None, None]:
        """Show a bar that stays when it is full."""
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        with Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}", style="cyan"),
            console=self._terminal,
        ) as bars:
            task = bars.add_task(f"{label:<9}", total=total, note="")
            yield lambda done, note: bars.update(task, completed=done, note=note)

    def summarise(self, summary: Summary) -> None:
        """Write a table of the numbers, and the verdict below it."""
        from rich.box import ROUNDED
        from rich.panel import Panel
        from rich.table import Table
        from rich.text import Text

        table = Table(box=ROUNDED, show_header=False, title="aioproducer demo", title_style="bold")
        table.add_column(style="dim", no_wrap=True)
        table.add_column()
        for label, text in summary.rows():
            table.add_row(label, Text(text))
        self._terminal.print(table)
        for sentence in summary.verdict.examples if summary.verdict is not None else ():
            self._terminal.print(f"  - {sentence}", style="red", markup=False)
        colour = "green" if summary.is_good else "red"
        verdict = Text(f"VERDICT: {'OK' if summary.is_good else 'BAD'}", style=f"bold {colour}")
        self._terminal.print(Panel(verdict.append(f"\n{summary.conclusion}", style="default"), border_style=colour))


def console(*, as_json: bool) -> Console:
    """The console for the arguments and the installed packages."""
    if as_json:
        return JsonConsole()
    if is_installed("rich"):
        return RichConsole()
    print("(Install rich for progress bars: pip install 'aioproducer[demo]')", file=sys.stderr)
    return PlainConsole()
