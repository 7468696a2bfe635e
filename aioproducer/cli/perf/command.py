"""``aioproducer perf``: measures throughput and latency, with the flags and lines of kafka-producer-perf-test.sh."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from aioproducer.cli.perf.options import add_arguments, changed, check_arguments, config_of, load_of
from aioproducer.cli.verb import ExitCode, Trouble, Verb

if TYPE_CHECKING:
    from aioproducer.cli.perf.load import Load
    from aioproducer.cli.perf.modes import Comparison, Search
    from aioproducer.cli.perf.stats import Result
    from aioproducer.cli.perf.svg import Series
    from aioproducer.config import ProducerConfig

__all__ = ["VERB"]


def _run(options: argparse.Namespace) -> ExitCode:
    check_arguments(options)
    config = config_of(options)
    write = _ignore if options.json else _print
    load = load_of(options, write)
    if options.target_latency is not None:
        return _search(options, config, load, write)
    if options.vs:
        return _compare(options, config, load, write)
    return _measure(options, config, load, write)


VERB: Final = Verb(
    "perf", "Measure the throughput and latency of a cluster, as kafka-producer-perf-test does.", add_arguments, _run
)


def _print(line: str) -> None:
    print(line, flush=True)


def _ignore(line: str) -> None:
    """Print nothing: the JSON object at the end has it."""


def _measure(
    options: argparse.Namespace, config: ProducerConfig, load: Load, write: Callable[[str], object]
) -> ExitCode:
    from aioproducer.cli.perf.lines import as_json, metric_lines
    from aioproducer.cli.perf.modes import measure
    from aioproducer.cli.perf.svg import Series

    result, groups = _in_loop(measure(config, load, write))
    if options.print_metrics:
        write("\n".join(metric_lines(groups)))
    if options.json:
        print(json.dumps(as_json(result), indent=2))
    _write_svg(options, [Series("", result.slices)])
    return _exit_code(result)


def _search(
    options: argparse.Namespace, config: ProducerConfig, load: Load, write: Callable[[str], object]
) -> ExitCode:
    from aioproducer.cli.perf.modes import search
    from aioproducer.cli.perf.svg import Series

    found: Search = _in_loop(search(config, load, options.target_latency / 1000, options.probe_seconds, write))
    if options.json:
        print(json.dumps(_search_json(found), indent=2))
    best = found.best_result
    _write_svg(options, [Series("", [] if best is None else best.slices)], "the best probe")
    error = next((each.error for each in found.results if each.error is not None), None)
    if error is not None:
        print(f"aioproducer perf: records failed in some probes. The first reason: {error}", file=sys.stderr)
    if found.interrupted:
        return _interrupted()
    return ExitCode.BAD if best is None else ExitCode.OK


def _search_json(found: Search) -> Mapping[str, Any]:
    from aioproducer.cli.perf.lines import as_json

    probes = [
        {"requested": round(probe.rate, 3), "verdict": probe.verdict, **as_json(result)}
        for probe, result in zip(found.probes, found.results, strict=True)
    ]
    return {
        "target_latency_ms": found.target * 1000,
        "records_per_second": None if found.best is None else round(found.best.rate, 3),
        "p99_ms": None if found.best is None else round(found.best.p99 * 1000, 3),
        "interrupted": found.interrupted,
        "probes": probes,
    }


def _compare(
    options: argparse.Namespace, config: ProducerConfig, load: Load, write: Callable[[str], object]
) -> ExitCode:
    from aioproducer.cli.perf.lines import as_json, ratios
    from aioproducer.cli.perf.modes import compare
    from aioproducer.cli.perf.svg import Series

    change = " ".join(f"{name}={value}" for name, value in options.vs)
    found: Comparison = _in_loop(compare({"A": config, "B": changed(config, options)}, load, change, write))
    a, b = found.of("A"), found.of("B")
    if options.json:
        runs = [{"run": letter, **as_json(result)} for letter, result in found.runs]
        whole = {"change": change, "a": as_json(a), "b": as_json(b), "ratio": ratios(a, b), "runs": runs}
        print(json.dumps(whole, indent=2))
    shown = [Series(letter, result.slices) for letter, result in found.runs[:2]]
    _write_svg(options, shown, f"B: {change}; the first run of each")
    codes = (_exit_code(a, whose="A"), _exit_code(b, whose="B"))
    return max(codes, key=int)


def _in_loop(work: Any) -> Any:
    import asyncio

    from aioproducer.cli.extras import loop_factory

    with asyncio.Runner(loop_factory=loop_factory(want_uvloop=True)) as runner:
        return runner.run(work)


def _write_svg(options: argparse.Namespace, series: list[Series], note: str = "") -> None:
    from aioproducer.cli.perf.svg import chart

    if options.svg is None:
        return
    size = f" of {options.record_size} bytes" if options.record_size is not None else ""
    subtitle = f"records{size}" + (f"; {note}" if note else "")
    try:
        options.svg.write_text(chart(f"aioproducer perf: {options.topic}", subtitle, series), encoding="utf-8")
    except OSError as error:
        raise Trouble(f"The chart {options.svg} cannot be written: {error.strerror}.") from error


def _exit_code(result: Result, whose: str | None = None) -> ExitCode:
    """The exit code; reports failures on standard error."""
    if not result.is_good:
        total = result.failed + result.total.count
        run = "" if whose is None else f"{whose}: "
        print(
            f"aioproducer perf: {run}{result.failed} of {total} records failed. The first reason: {result.error}",
            file=sys.stderr,
        )
    if result.interrupted:
        return _interrupted()
    return ExitCode.OK if result.is_good else ExitCode.BAD


def _interrupted() -> ExitCode:
    print("aioproducer perf: interrupted; these are the results until then.", file=sys.stderr)
    return ExitCode.INTERRUPTED
