"""The charts of a report, small enough for the README: one idea in each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.clients import CLIENTS, OURS
from benchmarks.results import Results
from benchmarks.svg import DARK, LIGHT, Bar, bar_chart

__all__ = ["CHARTS", "Chart", "write_charts"]


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart: a figure of all clients in a case, and of ours in other cases."""

    name: str
    title: str
    broker: str
    case: str
    figure: str
    #: As `format` takes it.
    shown: str
    #: Whether short bars are good ones.
    less_is_better: bool = False
    #: Our client in other cases, with a label: what else it can do that is to be seen beside the first.
    also_ours: Sequence[tuple[str, str]] = ()
    without: Sequence[str] = ()

    def bars(self, results: Results) -> list[Bar]:
        """The best one first; empty if ours is missing."""
        found = [
            Bar(CLIENTS[client].title, value, format(value, self.shown), client == OURS)
            for client in results.clients(self.broker, self.case)
            if client not in self.without
            and (value := results.median(self.broker, self.case, client, self.figure)) is not None
        ]
        if not any(bar.accented for bar in found):
            return []
        found += [
            Bar(label, value, format(value, self.shown), accented=True)
            for label, case in self.also_ours
            if (value := results.median(self.broker, case, OURS, self.figure)) is not None
        ]
        return sorted(found, key=lambda bar: bar.value, reverse=not self.less_is_better)


_BULK: Final = (("aioproducer send_many", "send-many"), ("aioproducer send_table", "send-table"))

CHARTS: Final = (
    Chart("throughput", "Records per second, 100 bytes, each one acknowledged", "mock", "pipelined-100b",
          "records_per_s", ",.0f", also_ours=_BULK),
    Chart("keyed", "Records per second, 100 bytes, keyed over 12 partitions", "mock", "pipelined-keyed",
          "records_per_s", ",.0f"),
    Chart("cpu", "Client CPU per record in microseconds, 100 bytes", "kafka", "pipelined-100b", "cpu_us", ".2f",
          less_is_better=True, also_ours=_BULK),
    Chart("zstd", "Records per second, 1 KiB of JSON, zstd", "mock", "json-zstd", "records_per_s", ",.0f"),
    Chart("concurrent", "Records per second, 1,000 tasks that each await one at a time", "mock", "concurrent",
          "records_per_s", ",.0f"),
    Chart("lone-p50", "One acknowledged record at a time: median latency in microseconds", "kafka", "lone", "p50_us",
          ",.0f", less_is_better=True),
    Chart("lone-p99", "One acknowledged record at a time: p99 latency in microseconds", "kafka", "lone", "p99_us",
          ",.0f", less_is_better=True),
)  # fmt: skip


def write_charts(results: Results, directory: Path) -> Iterator[tuple[Chart, str, str]]:
    """Draw each chart that has figures; yields the chart and the names of its light and its dark file."""
    for chart in CHARTS:
        bars = chart.bars(results)
        if bars:
            direction = "shorter is better" if chart.less_is_better else "longer is better"
            subtitle = f"{results.about.get(chart.broker, chart.broker)}; acks=all, idempotent; {direction}"
            names = []
            for theme in (LIGHT, DARK):
                names.append(f"{chart.name}-{theme.name}.svg")
                (directory / names[-1]).write_text(bar_chart(chart.title, subtitle, bars, theme))
            yield chart, names[0], names[1]
