"""The modes of ``aioproducer perf``: one run, a search for the highest rate, a comparison of two configurations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from aioproducer import Producer, ProducerConfig
from aioproducer.cli.perf.lines import STEADY, comparison, probe_line, total_line, window_line
from aioproducer.cli.perf.load import Load
from aioproducer.cli.perf.run import prepare, run_load
from aioproducer.cli.perf.search import FIRST_RATE, MOST_PROBES, Probe, best_of, next_rate
from aioproducer.cli.perf.stats import Result, Window

__all__ = ["Comparison", "MetricGroup", "Search", "compare", "measure", "metric_groups", "search"]

#: The share of a probe's length that warms up the producer before the first one.
_WARMUP_SHARE = 0.25

#: The name of a group of metrics, its tags, and the metrics.
MetricGroup = tuple[str, Mapping[str, str], Mapping[str, float]]


def _quiet(window: Window, is_steady: bool, is_first: bool) -> None:
    """Report no window."""


async def measure(
    config: ProducerConfig, load: Load, write: Callable[[str], object]
) -> tuple[Result, Sequence[MetricGroup]]:
    """Run the load once, as Java's tool does; returns the result, and the metrics at its end."""

    def report(window: Window, is_steady: bool, is_first: bool) -> None:
        if is_first:
            write(STEADY)
        write(window_line(window))

    async with Producer(config) as producer:
        await prepare(producer, load)
        if load.warmup:
            write(
                f"Warmup first {load.warmup} records. Steady state results will print after the complete test summary."
            )
        result = await run_load(producer, load, report)
        groups = metric_groups(producer)
    write(total_line(result))
    if result.steady is not None:
        write(total_line(result.steady, is_steady=True))
    return result, groups


def metric_groups(producer: Producer) -> Sequence[MetricGroup]:
    """The metrics of the producer, its brokers and its topics, in Java's groups."""
    client = {"client-id": producer.client_id}
    nodes = producer.metrics_by_broker().items()
    topics = producer.metrics_by_topic().items()
    return [
        ("producer-metrics", client, producer.metrics()),
        *(("producer-node-metrics", {**client, "node-id": f"node-{node}"}, each) for node, each in nodes),
        *(("producer-topic-metrics", {**client, "topic": topic}, each) for topic, each in topics),
    ]


@dataclass(slots=True)
class Search:
    """The probes of a search, and the result of the best one."""

    target: float
    probes: list[Probe] = field(default_factory=list[Probe])
    results: list[Result] = field(default_factory=list[Result])
    interrupted: bool = False

    @property
    def best(self) -> Probe | None:
        """The probe with the highest rate that can be kept at the latency."""
        return best_of(self.probes)

    @property
    def best_result(self) -> Result | None:
        """The result of that probe."""
        return None if self.best is None else self.results[self.probes.index(self.best)]

    @property
    def sentence(self) -> str:
        """The outcome as text."""
        limit = f"a 99th percentile of at most {self.target * 1000:g} ms"
        if self.interrupted:
            limit += " in the probes before the interruption"
        best = self.best
        if best is None:
            lowest = min((each.rate for each in self.probes), default=0)
            return f"No rate had {limit}; the lowest one was {lowest:.0f} records/sec."
        open_end = len(self.probes) >= MOST_PROBES and all(each.is_good for each in self.probes)
        return (
            f"Highest rate with {limit}: {best.rate:.0f} records/sec ({best.p99 * 1000:.2f} ms 99th)"
            f"{'; higher ones were not tried' if open_end else ''}."
        )


async def search(
    config: ProducerConfig, load: Load, target: float, seconds: float, write: Callable[[str], object]
) -> Search:
    """Find the highest rate at which the 99th percentile is at most ``target`` seconds, by probes of ``seconds`` each.

    ``load.rate`` is the first rate, and ``load.records`` the most of a probe.
    """
    found = Search(target)
    first = load.rate or FIRST_RATE

    def probe_of(rate: float, length: float) -> Load:
        return replace(load, rate=rate, records=min(load.records, max(1, math.ceil(rate * length))), warmup=0)

    async with Producer(config) as producer:
        await prepare(producer, load)
        warmup = await run_load(producer, probe_of(first, seconds * _WARMUP_SHARE), _quiet)
        found.interrupted = warmup.interrupted
        while not found.interrupted:
            rate = next_rate(found.probes, first)
            if rate is None:
                break
            result = await run_load(producer, probe_of(rate, seconds), _quiet)
            found.interrupted = result.interrupted
            if not result.interrupted:
                failed = result.failed or int(not result.is_good)
                reached = result.total.count / max(result.sending, (result.total.count - 1) / rate, 1e-6)
                found.probes.append(Probe(rate, reached, result.total.percentile(0.99), target, failed))
                found.results.append(result)
                write(probe_line(len(found.probes), found.probes[-1]))
    write(found.sentence)
    return found


@dataclass(slots=True)
class Comparison:
    """The runs of a comparison, in order, each with its letter."""

    change: str
    runs: list[tuple[str, Result]] = field(default_factory=list[tuple[str, Result]])

    def of(self, letter: str) -> Result:
        """The result of all runs with this letter."""
        return Result.of_all(result for each, result in self.runs if each == letter)

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended one of the runs."""
        return any(result.interrupted for _, result in self.runs)


async def compare(
    configs: Mapping[str, ProducerConfig], load: Load, change: str, write: Callable[[str], object]
) -> Comparison:
    """Run the load with A, B, B and A, so that what changes steadily on the machine meets both alike."""
    found = Comparison(change)
    for letter in "ABBA":
        async with Producer(configs[letter]) as producer:
            await prepare(producer, load)
            result = await run_load(producer, load, _quiet)
        found.runs.append((letter, result))
        write(f"{letter}: {total_line(result)}")
        if result.interrupted:
            break
    for line in comparison(found.of("A"), found.of("B"), change):
        write(line)
    return found
