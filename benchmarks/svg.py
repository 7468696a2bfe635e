"""Bar charts as SVG, each for light and for dark pages, without a plotting library."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

__all__ = ["DARK", "LIGHT", "Bar", "Theme", "bar_chart"]

_WIDTH: Final = 760
_LABELS: Final = 250  # where bars begin
_NUMBERS: Final = 110  # kept free behind the longest bar
_BAR: Final = 20
_STEP: Final = 30
_TOP: Final = 70
_BOTTOM: Final = 16
_FONT: Final = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"


@dataclass(frozen=True, slots=True)
class Theme:
    """The colours of a chart. The background is transparent, so that the page's own shows."""

    name: str
    text: str
    faint: str
    bar: str
    #: For what the chart is about.
    accent: str


LIGHT: Final = Theme("light", text="#1f2328", faint="#59636e", bar="#afb8c1", accent="#0969da")
DARK: Final = Theme("dark", text="#f0f6fc", faint="#9198a1", bar="#4d5561", accent="#4493f8")


@dataclass(frozen=True, slots=True)
class Bar:
    """One line of a chart."""

    label: str
    value: float
    #: The displayed value.
    shown: str
    accented: bool = False


def bar_chart(title: str, subtitle: str, bars: Sequence[Bar], theme: Theme) -> str:
    """Horizontal bars from zero to the largest value, as a whole SVG document."""
    height = _TOP + len(bars) * _STEP + _BOTTOM
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}" '
        f'role="img" font-family="{_FONT}">',
        f"<title>{escape(title)}</title>",
        _text(16, 28, title, theme.text, size=17, weight=600),
        _text(16, 50, subtitle, theme.faint, size=13),
        *_bars(bars, theme),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _bars(bars: Sequence[Bar], theme: Theme) -> Iterator[str]:
    largest = max((bar.value for bar in bars), default=0) or 1
    for number, bar in enumerate(bars):
        top = _TOP + number * _STEP
        middle = top + _BAR * 0.72
        width = max(1.0, bar.value / largest * (_WIDTH - _LABELS - _NUMBERS))
        colour, weight = (theme.accent, 600) if bar.accented else (theme.bar, 400)
        yield _text(_LABELS - 10, middle, bar.label, theme.text, size=13, weight=weight, anchor="end")
        yield f'<rect x="{_LABELS}" y="{top}" width="{width:.1f}" height="{_BAR}" rx="3" fill="{colour}"/>'
        yield _text(_LABELS + width + 8, middle, bar.shown, theme.text, size=13, weight=weight)


def _text(x: float, y: float, content: str, colour: str, *, size: int, weight: int = 400, anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" font-size="{size}" font-weight="{weight}" '
        f'text-anchor="{anchor}">{escape(content)}</text>'
    )
