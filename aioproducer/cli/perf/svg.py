"""The chart of ``aioproducer perf --svg``: throughput and latency over time, as one self-contained file."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import Final, NamedTuple

from aioproducer.cli.perf.stats import Window

__all__ = ["Series", "chart", "ticks"]

_WIDTH: Final = 860
_LEFT: Final = 84
_RIGHT: Final = 24
_PANEL: Final = 180
#: The upper edges of the two panels.
_TOPS: Final = (96, 336)
_HEIGHT: Final = 576

_STYLE: Final = """
svg { --back: #ffffff; --ink: #1f2328; --faint: #59636e; --grid: #d8dee4; --one: #0969da; --two: #bc4c00; }
@media (prefers-color-scheme: dark) {
  svg { --back: #0d1117; --ink: #f0f6fc; --faint: #9198a1; --grid: #30363d; --one: #58a6ff; --two: #f0883e; }
}
text { font: 12px system-ui, sans-serif; fill: var(--faint); }
.title { font-size: 17px; font-weight: 600; fill: var(--ink); }
.panel { font-size: 13px; font-weight: 600; fill: var(--ink); }
.back { fill: var(--back); }
.grid { stroke: var(--grid); stroke-width: 1; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
.s0 { stroke: var(--one); } .s1 { stroke: var(--two); }
polyline.p50, line.p50 { stroke-dasharray: 5 4; }
"""


class Series(NamedTuple):
    """The windows of a run, and the name that the legend shows; an empty one is not shown."""

    name: str
    windows: Sequence[Window]


def chart(title: str, subtitle: str, series: Sequence[Series]) -> str:
    """The SVG text with one or two series: throughput above, the 50th and 99th percentile of the latency below."""
    end = max((window.end for each in series for window in each.windows), default=1.0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
        f"<desc>{escape(subtitle)}</desc>",
        f"<style>{_STYLE}</style>",
        f'<rect class="back" width="{_WIDTH}" height="{_HEIGHT}"/>',
        f'<text class="title" x="{_LEFT}" y="32">{escape(title)}</text>',
        f'<text x="{_LEFT}" y="52">{escape(subtitle)}</text>',
        *_panel(_TOPS[0], "Throughput (records/s)", end, series, [("", _rate)]),
        *_panel(_TOPS[1], "Latency (ms)", end, series, [("p50", _p50), ("p99", _p99)]),
        f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{_HEIGHT - 16}" text-anchor="middle">Time (s)</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _rate(window: Window) -> float:
    return window.tally.count / window.seconds


def _p50(window: Window) -> float:
    return window.tally.percentile(0.5) * 1000


def _p99(window: Window) -> float:
    return window.tally.percentile(0.99) * 1000


def _panel(
    top: int, label: str, end: float, series: Sequence[Series], curves: Sequence[tuple[str, Callable[[Window], float]]]
) -> Sequence[str]:
    values = [value(window) for each in series for window in each.windows for _, value in curves]
    marks = ticks(max(values, default=1.0))
    parts = [f'<text class="panel" x="{_LEFT}" y="{top - 14}">{escape(label)}</text>']
    for mark in marks:
        y = _at_y(mark, marks[-1], top)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_shown(mark)}</text>')
    for mark in ticks(end):
        if mark <= end:
            x = _at_x(mark, end)
            parts.append(f'<text x="{x:.1f}" y="{top + _PANEL + 18}" text-anchor="middle">{_shown(mark)}</text>')
    if not values:
        parts.append(f'<text x="{_LEFT + 12}" y="{top + 24}">No records were acknowledged.</text>')
    entries: list[tuple[str, str]] = []
    for number, each in enumerate(series):
        for name, value in curves:
            points = [(_at_x((w.start + w.end) / 2, end), _at_y(value(w), marks[-1], top)) for w in each.windows]
            style = f"line s{number} {name}".strip()
            parts.append(_line(points, style))
            entries.append((f"{each.name} {name}".strip(), style))
    return [*parts, *_legend([entry for entry in entries if entry[0]], top - 14)]


def _line(points: Sequence[tuple[float, float]], style: str) -> str:
    if len(points) == 1:  # a line of one point would be invisible
        (x, y) = points[0]
        return f'<circle class="{style}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>'
    return f'<polyline class="{style}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>'


def _legend(entries: Sequence[tuple[str, str]], y: int) -> Sequence[str]:
    """The names of the curves, each beside a piece of its line, from the right."""
    parts: list[str] = []
    x = float(_WIDTH - _RIGHT)
    for name, style in reversed(entries):
        x -= 7 * len(name)
        parts.append(f'<text x="{x:.1f}" y="{y}">{escape(name)}</text>')
        parts.append(f'<line class="{style}" x1="{x - 32:.1f}" x2="{x - 6:.1f}" y1="{y - 4}" y2="{y - 4}"/>')
        x -= 50
    return parts


def _at_x(seconds: float, end: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * seconds / max(end, 1e-9)


def _at_y(value: float, largest: float, top: int) -> float:
    return top + _PANEL * (1 - value / largest)


def ticks(largest: float, most: int = 6) -> Sequence[float]:
    """Round numbers from 0, at most this many steps apart, the last one at or above the largest value."""
    if not largest > 0:
        return [0.0, 1.0]
    rough = largest / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * (1 - 1e-9))
    return [step * number for number in range(math.ceil(largest / step - 1e-9) + 1)]


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
