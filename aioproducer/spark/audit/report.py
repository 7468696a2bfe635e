"""An audit's verdict as one self-contained HTML page: no scripts, fonts or images from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Final

from aioproducer.spark.audit.findings import FindingKind
from aioproducer.spark.audit.offsets import OffsetRange
from aioproducer.spark.audit.verdict import FAULTS, AuditVerdict, Sample

__all__ = ["html_report"]

_WIDTH: Final = 720
_BAR: Final = 18
_ROW: Final = 26
_LABEL: Final = 120

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1d2430; --dim: #66707f; --paper: #ffffff; --line: #dfe3ea; --panel: #f6f7f9;
  --good: #1a7f4b; --bad: #c2332b; --bar: #4a76c9; --soft: #b9c7e2; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --dim: #98a2b3; --paper: #14171c; --line: #2d333d;
  --panel: #1b1f26; --good: #4cc38a; --bad: #ff7a6e; --bar: #7ba2ee; --soft: #3b4a66; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 2rem 1rem 4rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.3rem; margin: 0 0 .2rem; } h2 { font-size: 1rem; margin: 2.2rem 0 .6rem; }
p { margin: .3rem 0; } .dim { color: var(--dim); }
.verdict { margin: 1.2rem 0; padding: .9rem 1.1rem; border-left: 6px solid var(--tone); background: var(--panel); }
.verdict b { color: var(--tone); font-size: 1.15rem; }
.good { --tone: var(--good); } .bad { --tone: var(--bad); }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(7.5rem, 1fr)); gap: .5rem; }
.tile { padding: .5rem .7rem; border: 1px solid var(--line); border-radius: 6px; }
.tile b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
.tile.bad b { color: var(--bad); } .tile.none b { color: var(--dim); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .88rem; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
code { font: .85em ui-monospace, monospace; overflow-wrap: anywhere; }
svg { max-width: 100%; height: auto; } svg text { fill: var(--ink); font: 12px system-ui, sans-serif; }
svg text.dim { fill: var(--dim); } .bar { fill: var(--bar); } .soft { fill: var(--soft); } .fault { fill: var(--bad); }
"""


def html_report(verdict: AuditVerdict, created_at: str) -> str:
    """The page; ``created_at`` is the time it shows."""
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>Audit of {escape(verdict.topic)}</title><style>{_STYLE}</style></head><body>",
            *_head(verdict, created_at),
            "<h2>Faults by kind</h2>",
            _tiles(verdict),
            "<h2>Records and faults by partition</h2>",
            _partition_chart(verdict),
            _partition_table(verdict),
            *_samples(verdict.samples),
            *_runs(verdict),
            "<h2>Time per step</h2>",
            _time_chart(verdict.seconds),
            "</body></html>\n",
        ]
    )


def _head(verdict: AuditVerdict, created_at: str) -> Iterator[str]:
    tone, word = ("good", "CLEAN") if verdict.is_clean else ("bad", "FAULTS FOUND")
    yield f"<h1>Audit of topic {escape(verdict.topic)}</h1>"
    compared = _COMPARED[verdict.expectation.mode]
    read = f"read_committed, by {escape(_READERS.get(verdict.reader, verdict.reader))}"
    yield f'<p class="dim">{escape(verdict.cluster)} &middot; {escape(created_at)} &middot; {read}, {compared}</p>'
    yield f'<div class="verdict {tone}"><b>{word}</b><p>{escape(str(verdict))}</p></div>'


_READERS: Final[Mapping[str, str]] = {"spark": "Spark's Kafka source"}

_COMPARED: Final[Mapping[str, str]] = {
    "expected": "compared with the expected files",
    "sequence": "compared with the sequence numbers in its records",
    "log": "compared with nothing: only the log itself was checked",
}


def _tiles(verdict: AuditVerdict) -> str:
    unchecked = verdict.expectation.unchecked
    tiles: list[str] = []
    for kind in FAULTS:
        count = verdict.counts.get(kind, 0)
        if kind.value in unchecked:
            tiles.append(
                f'<div class="tile none" title="{escape(unchecked[kind.value])}"><b>&ndash;</b>{kind.value}</div>'
            )
        else:
            tiles.append(f'<div class="tile {"bad" if count else "good"}"><b>{count:,}</b>{kind.value}</div>')
    notes = "".join(
        f'<p class="dim">Not checked: {escape(name)}, because {escape(why)}.</p>' for name, why in unchecked.items()
    )
    return f'<div class="tiles">{"".join(tiles)}</div>{notes}'


def _partition_chart(verdict: AuditVerdict) -> str:
    """A bar for the offsets of each partition, filled as far as records were read, with a stroke for each sample fault."""
    ranges = verdict.ranges
    longest = max((each.size for each in ranges), default=0) or 1
    scale = (_WIDTH - _LABEL - 90) / longest
    parts: list[str] = []
    for line, each in enumerate(ranges):
        y = line * _ROW
        read = verdict.by_partition.get(each.partition, {}).get(FindingKind.READ, 0)
        parts.append(f'<text x="0" y="{y + 14}">partition {each.partition}</text>')
        parts.append(f'<rect class="soft" x="{_LABEL}" y="{y}" width="{each.size * scale:.1f}" height="{_BAR}"/>')
        parts.append(f'<rect class="bar" x="{_LABEL}" y="{y}" width="{read * scale:.1f}" height="{_BAR}"/>')
        parts.append(f'<text class="dim" x="{_LABEL + each.size * scale + 6:.1f}" y="{y + 14}">{read:,}</text>')
        parts += _strokes(verdict.samples, each, y, scale)
    return _svg("Records read from each partition", max(len(ranges), 1) * _ROW, parts)


def _strokes(samples: Sequence[Sample], of: OffsetRange, y: int, scale: float) -> Iterator[str]:
    for sample in samples:
        if sample.partition == of.partition and sample.offset >= 0:
            x = _LABEL + (sample.offset - of.begin) * scale
            yield (
                f'<rect class="fault" x="{x - 1:.1f}" y="{y - 3}" width="2.5" height="{_BAR + 6}">'
                f"<title>{escape(str(sample))}</title></rect>"
            )


def _partition_table(verdict: AuditVerdict) -> str:
    kinds = [kind for kind in FindingKind if any(kind in counts for counts in verdict.by_partition.values())]
    shown = [kind for kind in kinds if kind is not FindingKind.READ]
    head = "".join(f'<th class="n">{name}</th>' for name in ("partition", "first", "end", "read", *shown))
    rows: list[str] = []
    for each in verdict.ranges:
        counts = verdict.by_partition.get(each.partition, {})
        numbers = [each.partition, each.begin, each.end, *(counts.get(kind, 0) for kind in (FindingKind.READ, *shown))]
        rows.append("<tr>" + "".join(f'<td class="n">{number:,}</td>' for number in numbers) + "</tr>")
    return f'<div class="scroll"><table><tr>{head}</tr>{"".join(rows)}</table></div>'


def _samples(samples: Sequence[Sample]) -> Iterator[str]:
    if not samples:
        return
    yield f"<h2>The first {len(samples)} faults</h2>"
    rows: list[str] = []
    for sample in samples:
        place = f"{sample.partition}:{sample.offset}" if sample.offset >= 0 else ""
        expected = (
            f"<br>expected <code>{escape(sample.expected_value)}</code>" if sample.expected_value is not None else ""
        )
        rows.append(
            f"<tr><td>{sample.kind.value}</td><td><code>{place}</code></td><td><code>{escape(sample.key or '')}</code></td>"
            f"<td>{escape(str(sample))}{expected}</td></tr>"
        )
    head = "<tr><th>fault</th><th>partition:offset</th><th>key</th><th>what</th></tr>"
    yield f'<div class="scroll"><table>{head}{"".join(rows)}</table></div>'


def _runs(verdict: AuditVerdict) -> Iterator[str]:
    if not verdict.runs:
        return
    yield "<h2>Runs</h2>"
    rows = "".join(
        f"<tr><td><code>{escape(run.name or '(one run)')}</code></td>"
        + "".join(
            f'<td class="n">{"&ndash;" if number is None else f"{number:,}"}</td>'
            for number in (run.first, run.last, run.expected, run.found)
        )
        + "</tr>"
        for run in verdict.runs[:100]
    )
    head = "<th>run</th>" + "".join(f'<th class="n">{name}</th>' for name in ("first", "last", "expected", "found"))
    yield f'<div class="scroll"><table><tr>{head}</tr>{rows}</table></div>'


def _time_chart(seconds: Mapping[str, float]) -> str:
    parts: list[str] = []
    longest = max(seconds.values(), default=0) or 1
    for line, (name, value) in enumerate(seconds.items()):
        y, width = line * _ROW, value / longest * (_WIDTH - _LABEL - 90)
        parts.append(f'<text x="0" y="{y + 14}">{escape(name)}</text>')
        parts.append(f'<rect class="bar" x="{_LABEL + 20}" y="{y}" width="{width:.1f}" height="{_BAR}"/>')
        parts.append(f'<text class="dim" x="{_LABEL + 26 + width:.1f}" y="{y + 14}">{value:,.1f} s</text>')
    return _svg("Seconds of each step", max(len(seconds), 1) * _ROW, parts)


def _svg(title: str, height: int, parts: Sequence[str]) -> str:
    return (
        f'<svg role="img" aria-label="{escape(title)}" viewBox="0 -6 {_WIDTH} {height + 10}" width="{_WIDTH}">'
        f"{''.join(parts)}</svg>"
    )
