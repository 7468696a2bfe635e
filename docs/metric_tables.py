"""The tables of metrics, from the metrics as the code declares them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aioproducer.metrics.names import BROKER_METRICS, HISTOGRAMS, METRICS, TOPIC_METRICS, Kind, Metric

__all__ = ["metric_tables"]

_HEAD = ("| metric | unit | meaning |", "|---|---|---|")
_KINDS = {
    "Totals": ("They only grow, from the first start on.", Kind.TOTAL),
    "Now": ("They go up and down, and exist while the producer is started.", Kind.NOW),
    "Rates": (
        "How fast totals grow: over the last 30 s or, if the producer was started later, since then; 0 while it is closed.",
        Kind.RATE,
    ),
    "Averages, maxima and percentiles": ("They cover everything since the first start.", Kind.SUMMARY),
}


def metric_tables() -> str:
    """Markdown: the metrics of the producer by their kind, those of a topic, and the histograms."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    for title, (sentence, kind) in _KINDS.items():
        yield from (f"### {title}", "", sentence, "")
        yield from _table([metric for metric in METRICS if metric.kind is kind])
    yield from (
        "### By topic",
        "",
        "`producer.metrics(topic)` and `producer.metrics_by_topic()` return them; without rates if there are over 1,000.",
        "",
    )
    yield from _table(TOPIC_METRICS)
    yield from (
        "### By broker",
        "",
        "`producer.metrics_by_broker()` returns them, by the broker's id. The last two exist while the producer is started.",
        "",
    )
    yield from _table(BROKER_METRICS)
    yield from (
        "### Histograms",
        "",
        "`producer.metric_histograms()` returns them, with bounds that are powers of two.",
        "",
    )
    yield from _table(HISTOGRAMS)


def _table(metrics: Sequence[Metric]) -> Iterator[str]:
    yield from _HEAD
    for metric in metrics:
        yield f"| `{metric.name}` | {metric.unit} | {metric.meaning} |"
    yield ""
