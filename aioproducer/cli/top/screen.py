"""The status of producers as a screen of tables; needs rich."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from rich.box import SIMPLE
from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from aioproducer.cli.top.view import LEVELS, broker_cells, numbers, topic_cells

__all__ = ["screen"]

_STYLES: Final[Mapping[str, str]] = {
    "ok": "bold green",
    "note": "bold cyan",
    "warning": "bold yellow",
    "problem": "bold red",
}
_BROKER_HEAD: Final = ("broker", "in flight", "oldest", "mean", "p99", "answered")
_TOPIC_HEAD: Final = ("topic", "records", "bytes", "failed", "retried")


def screen(stats: Mapping[str, Any], problem: str | None) -> RenderableType:
    """The status of all producers; ``problem`` says why it is an old one."""
    parts: list[RenderableType] = [] if problem is None else [Text(f"{problem} This is the last status.", "bold red")]
    for producer in stats["producers"]:
        parts.extend(_producer(producer))
    return Group(*parts)


def _producer(producer: Mapping[str, Any]) -> Iterator[RenderableType]:
    ready = producer["ready"]
    title = Text.assemble(
        (str(producer["client_id"]), "bold"),
        ("  ready  " if ready else "  not ready  ", "green" if ready else "bold red"),
        (", ".join(producer["servers"]), "dim"),
    )
    yield Rule(title, align="left", style="dim")
    for finding in producer["findings"]:
        level = str(finding["level"])
        yield Text.assemble(
            (f"{LEVELS.get(level, level)} ", _STYLES.get(level, "bold")),
            str(finding["text"]),
            (f" {finding['advice']}", "dim"),
        )
    grid = Table.grid(padding=(0, 2))
    for label, text in numbers(producer):
        grid.add_row(Text(label, "dim"), Text(text))
    yield grid
    yield Columns(
        [
            _table(_BROKER_HEAD, map(broker_cells, producer["brokers"])),
            _table(_TOPIC_HEAD, map(topic_cells, producer["topics"])),
        ]
    )


def _table(head: Iterable[str], rows: Iterable[list[str]]) -> Table:
    table = Table(box=SIMPLE, header_style="dim")
    for number, name in enumerate(head):
        table.add_column(name, justify="right" if number else "left")
    for cells in rows:
        table.add_row(*(Text(cell) for cell in cells))
    return table
