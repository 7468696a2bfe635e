"""The text and the JSON of ``aioproducer perf``: the lines of Java's ProducerPerformance to the letter, for scripts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from aioproducer.cli.perf.search import Probe
from aioproducer.cli.perf.stats import Result, Tally, Window

__all__ = ["STEADY", "as_json", "comparison", "metric_lines", "probe_line", "ratios", "total_line", "window_line"]

#: The line before the first window of the steady state.
STEADY: Final = "In steady state."

_MIB: Final = 1024.0 * 1024.0


def window_line(window: Window) -> str:
    """The line of a window that has ended."""
    tally, seconds = window.tally, window.seconds
    return (
        f"{tally.count} records sent, {tally.count / seconds:.1f} records/sec ({tally.size / seconds / _MIB:.2f} MB/sec), "
        f"{_ms(tally.average, 1)} ms avg latency, {_ms(tally.largest, 1)} ms max latency."
    )


def total_line(result: Result, *, is_steady: bool = False) -> str:
    """The last line; ``is_steady``: the one about the records after the warm-up."""
    tally = result.total
    p50, p95, p99, p999 = (round(tally.percentile(each) * 1000) for each in (0.5, 0.95, 0.99, 0.999))
    return (
        f"{tally.count}{' steady state' if is_steady else ''} records sent, {result.rate:f} records/sec "
        f"({_mb_per_second(result):.2f} MB/sec), {_ms(tally.average, 2)} ms avg latency, {_ms(tally.largest, 2)} ms max "
        f"latency, {p50} ms 50th, {p95} ms 95th, {p99} ms 99th, {p999} ms 99.9th."
    )


def _ms(seconds: float, digits: int) -> str:
    return "NaN" if math.isnan(seconds) else f"{seconds * 1000:.{digits}f}"


def _mb_per_second(result: Result) -> float:
    return result.total.size / max(result.seconds, 1e-6) / _MIB


def as_json(result: Result) -> dict[str, Any]:
    """The result for json.dumps; MB are 2^20 bytes, as in Java's lines, and latencies are null without records."""
    found: dict[str, Any] = {
        "records": result.total.count,
        "seconds": round(result.seconds, 6),
        "records_per_second": round(result.rate, 3),
        "mb_per_second": round(_mb_per_second(result), 6),
        "latency_ms": _latencies(result.total),
        "errors": result.failed,
        "first_error": result.error,
        "interrupted": result.interrupted,
        "windows": [_window_json(each) for each in result.windows],
    }
    if result.steady is not None:
        steady = as_json(result.steady)
        found["steady_state"] = {name: steady[name] for name in list(found)[:5]}
    return found


def _window_json(window: Window) -> dict[str, Any]:
    return {
        "start": round(window.start, 6),
        "end": round(window.end, 6),
        "records": window.tally.count,
        "records_per_second": round(window.tally.count / window.seconds, 3),
        "mb_per_second": round(window.tally.size / window.seconds / _MIB, 6),
        "latency_ms": _latencies(window.tally),
    }


def _latencies(tally: Tally) -> Mapping[str, float | None]:
    if not tally.count:
        return dict.fromkeys(("avg", "max", "p50", "p95", "p99", "p999"))
    percentiles = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999}
    found = {"avg": tally.average, "max": tally.largest}
    found |= {name: tally.percentile(fraction) for name, fraction in percentiles.items()}
    return {name: round(seconds * 1000, 3) for name, seconds in found.items()}


def metric_lines(groups: Sequence[tuple[str, Mapping[str, str], Mapping[str, float]]]) -> Sequence[str]:
    """The lines of --print-metrics: of each group its name, its tags and its metrics."""
    found: dict[str, float] = {}
    for group, tags, metrics in groups:
        shown = ", ".join(f"{name}={value}" for name, value in tags.items())
        found |= {f"{group}:{name}:{{{shown}}}": value for name, value in metrics.items()}
    width = max(map(len, found), default=0)
    return [
        "",
        f"{'Metric Name':<{width}}   Value",
        *(f"{name:<{width}} : {found[name]:.3f}" for name in sorted(found)),
    ]


def probe_line(number: int, probe: Probe) -> str:
    """The line of one probe of --target-latency."""
    return (
        f"Probe {number}: {probe.rate:.0f} records/sec requested, {probe.reached:.0f} reached, "
        f"{probe.p99 * 1000:.2f} ms 99th: {probe.verdict}."
    )


def ratios(a: Result, b: Result) -> Mapping[str, float | None]:
    """B divided by A; None where one of them has no records."""
    pairs = {
        "records_per_second": (a.rate, b.rate),
        "latency_avg": (a.total.average, b.total.average),
        "latency_p50": (a.total.percentile(0.5), b.total.percentile(0.5)),
        "latency_p99": (a.total.percentile(0.99), b.total.percentile(0.99)),
    }
    return {
        name: round(of_b / of_a, 4) if a.total.count and b.total.count and of_a else None
        for name, (of_a, of_b) in pairs.items()
    }


def comparison(a: Result, b: Result, change: str) -> Sequence[str]:
    """The last lines of --vs."""
    found = {name: "-" if each is None else f"{each:.3f}" for name, each in ratios(a, b).items()}
    return [
        "",
        f"A, as given: {total_line(a)}",
        f"B, {change}: {total_line(b)}",
        f"B / A: {found['records_per_second']} records/sec, {found['latency_avg']} avg latency, "
        f"{found['latency_p50']} 50th, {found['latency_p99']} 99th.",
    ]
