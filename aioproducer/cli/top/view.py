"""The numbers of a status page as lines of text, with their units."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from aioproducer.contrib.diagnosis import duration, number_of

__all__ = ["LEVELS", "broker_cells", "lines", "numbers", "topic_cells"]

LEVELS: Final[Mapping[str, str]] = {"ok": "OK", "note": "Note", "warning": "Warning", "problem": "Problem"}

_NONE: Final = "-"
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def lines(stats: Mapping[str, Any]) -> list[str]:
    """The whole status as lines."""
    return [line for producer in stats["producers"] for line in _producer_lines(producer)]


def numbers(producer: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The labels and texts of a producer's numbers."""
    now = producer["now"]
    waiting = f", {number_of(now['waiting_callers'], 'caller')} waiting" if now["waiting_callers"] else ""
    return [
        ("throughput", f"{number_of(now['records_per_s'], 'record')}/s, {size(now['bytes_per_s'])}/s"),
        ("latency", f"{_time(now['latency_p50_ms'])}, p99 {_time(now['latency_p99_ms'])}"),
        ("queue time", f"{_time(now['queue_p50_ms'])}, p99 {_time(now['queue_p99_ms'])}"),
        ("buffer", f"{now['buffer_share']:.0%} of {size(now['buffer_total_bytes'])}{waiting}"),
        (
            "in flight",
            f"{number_of(now['requests_in_flight'], 'request')}, {number_of(now['pending_records'], 'record')} pending",
        ),
        ("event loop lag", _time(now["loop_lag_ms"])),
        ("failed, retried", f"{now['failed_per_s']:,.0f}/s, {now['retried_per_s']:,.0f}/s"),
    ]


def broker_cells(broker: Mapping[str, Any]) -> list[str]:
    """The id of a broker, requests in flight, the age of the oldest, mean latency, p99, and responses a second."""
    age = broker["oldest_request_s"]
    return [
        str(broker["broker"]),
        f"{broker['requests_in_flight']:.0f}",
        duration(age) if age else _NONE,
        _time(broker["latency_mean_ms"]),
        _time(broker["latency_p99_ms"]),
        f"{broker['answers_per_s']:,.0f}/s",
    ]


def topic_cells(topic: Mapping[str, Any]) -> list[str]:
    """The name of a topic, records and bytes a second, and the records that failed or were sent again so far."""
    return [
        str(topic["topic"]),
        f"{topic['records_per_s']:,.0f}/s",
        f"{size(topic['bytes_per_s'])}/s",
        f"{topic['failed_total']:,.0f}",
        f"{topic['retried_total']:,.0f}",
    ]


def size(count: float) -> str:
    """A number of bytes with its unit."""
    unit = 0
    while count >= 1024 and unit < len(_UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:,.0f} {_UNITS[unit]}" if unit == 0 or count >= 10 else f"{count:.1f} {_UNITS[unit]}"


def _producer_lines(producer: Mapping[str, Any]) -> Iterator[str]:
    state = "ready" if producer["ready"] else "not ready"
    yield f"{producer['client_id']}: {state}, at {', '.join(producer['servers'])}"
    for finding in producer["findings"]:
        advice = f" {finding['advice']}" if finding["advice"] else ""
        yield f"  {LEVELS.get(finding['level'], finding['level'])}: {finding['text']}{advice}"
    yield f"  {'; '.join(f'{label} {text}' for label, text in numbers(producer))}"
    for broker in producer["brokers"]:
        name, in_flight, age, mean, p99, answers = broker_cells(broker)
        yield f"  broker {name}: {in_flight} in flight, oldest {age}; {mean}, p99 {p99}; {answers} answered"
    for topic in producer["topics"]:
        name, records, rate, failed, retried = topic_cells(topic)
        yield f"  topic {name}: {records} records, {rate}; {failed} failed, {retried} retried"


def _time(milliseconds: float | None) -> str:
    return _NONE if milliseconds is None else duration(milliseconds / 1e3)
