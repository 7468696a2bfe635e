"""Results as Markdown tables: medians, and our ratio to each peer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.cases import Case, Workload
from benchmarks.clients import CLIENTS, OURS
from benchmarks.results import Results

__all__ = ["FIGURES", "Figure", "case_table", "markdown"]


@dataclass(frozen=True, slots=True)
class Figure:
    """The format of one number."""

    key: str
    title: str
    format: str

    def show(self, value: float | None) -> str:
        """As it stands in a table."""
        return "-" if value is None else format(value, self.format)


_THROUGHPUT: Final = (
    Figure("records_per_s", "records/s", ",.0f"),
    Figure("mb_per_s", "MB/s", ",.1f"),
    Figure("cpu_us", "CPU us/record", ".2f"),
)
_GAPS: Final = (Figure("worst_gap_ms", "worst gap ms", ".1f"), Figure("p99_gap_ms", "p99 gap ms", ".1f"))

#: What is shown of a workload; the first one is what ratios are of.
FIGURES: Final[dict[Workload, tuple[Figure, ...]]] = {
    Workload.PIPELINED: _THROUGHPUT,
    Workload.CONCURRENT: _THROUGHPUT,
    Workload.BULK: _THROUGHPUT,
    Workload.TABLE: _THROUGHPUT,
    Workload.LONE: (
        Figure("p50_us", "p50 us", ",.0f"),
        Figure("p99_us", "p99 us", ",.0f"),
        Figure("p999_us", "p99.9 us", ",.0f"),
        Figure("cpu_us", "CPU us/record", ",.0f"),
    ),
    Workload.STEADY: (
        Figure("p50_us", "p50 us", ",.0f"),
        Figure("p99_us", "p99 us", ",.0f"),
        Figure("cpu_us", "CPU us/record", ".1f"),
    ),
    Workload.TRANSACTIONS: (
        Figure("per_s", "transactions/s", ",.0f"),
        Figure("p50_us", "p50 us", ",.0f"),
        Figure("p99_us", "p99 us", ",.0f"),
        Figure("cpu_us", "CPU us/transaction", ",.0f"),
    ),
    Workload.THREADS: _THROUGHPUT,
    Workload.THREADS_LONE: _THROUGHPUT,
    Workload.IDLE: (Figure("wake_ups_per_s", "wake-ups/s", ".2f"), Figure("cpu_percent", "CPU %", ".3f")),
    Workload.MEMORY: (Figure("times_encoded", "times the encoded bytes", ".2f"), Figure("grown_mb", "MB", ",.0f")),
    Workload.HEARTBEAT: (*_GAPS, *_THROUGHPUT),
}


def case_table(results: Results, broker: str, case: Case) -> str:
    """A heading, and a line for each client in the order of the list of clients."""
    figures = FIGURES[case.workload]
    ratio = figures[0]
    took_part = results.clients(broker, case.name)
    rows = [
        [
            CLIENTS[client].title,
            *(figure.show(results.median(broker, case.name, client, figure.key)) for figure in figures),
            _ratio(results.ratio(broker, case.name, OURS, client, ratio.key)),
        ]
        for client in CLIENTS
        if client in took_part
    ]
    heading = f"**{case.title}** ({results.about.get(broker, broker)})"
    titles = ["client", *(figure.title for figure in figures), f"ours / this ({ratio.title})"]
    return f"{heading}\n\n{markdown(titles, rows)}"


def markdown(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table whose first column is text and whose others are numbers."""
    lines = ["| " + " | ".join(cells) + " |" for cells in (titles, *rows)]
    lines.insert(1, "|---|" + "---:|" * (len(titles) - 1))
    return "\n".join(lines)


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
