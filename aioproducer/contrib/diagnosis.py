"""Diagnoses a producer from two readings of its numbers: sentences that name what is slow, blocked, full or lost.

Only decisions: readings in, findings out, without an event loop, a clock or a socket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, TypeVar

from aioproducer.metrics.distribution import Histogram
from aioproducer.types import Health, HealthStatus

__all__ = ["Finding", "Latency", "Level", "Options", "Snapshot", "Window", "diagnose", "duration", "number_of"]

_K = TypeVar("_K")

Level: TypeAlias = Literal["ok", "note", "warning", "problem"]

_ORDER: Final[Mapping[Level, int]] = {"problem": 0, "warning": 1, "note": 2, "ok": 3}

#: A request that is in flight so long, in seconds, is not merely slow.
_STALLED_S: Final = 2.0
#: A broker is slow if its mean latency in the window is over this, in seconds, and over so many times that of the others.
_SLOW_S: Final = 0.05
_TIMES_SLOWER: Final = 5.0
#: Blocks of the event loop below this, in seconds, are usual.
_BLOCKED_S: Final = 0.1
_NEARLY_FULL: Final = 0.8
_MOSTLY: Final = 0.5
_OLD_S: Final = 10.0
_THROTTLED_S: Final = 0.01
#: A linger is one for nothing if it is at least so long, in milliseconds, for batches of at most so many records.
_LONG_LINGER_MS: Final = 20.0
_FEW_RECORDS: Final = 3.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence about a producer, and what to do about it (empty if nothing)."""

    level: Level
    text: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Options:
    """The options that a diagnosis refers to."""

    linger_ms: float = 5.0
    batch_size: int = 262_144
    max_in_flight: int = 5
    buffer_memory: int = 33_554_432


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One reading of a producer's numbers, at ``time`` in seconds of a clock that never goes back.

    ``silent_s`` is the time for which the producer's thread has not responded; all else is from before it then.
    """

    time: float
    health: Health
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    by_topic: Mapping[str, Mapping[str, float]] = field(default_factory=dict[str, Mapping[str, float]])
    by_broker: Mapping[int, Mapping[str, float]] = field(default_factory=dict[int, Mapping[str, float]])
    histograms: Mapping[str, Histogram] = field(default_factory=dict[str, Histogram])
    latency_by_broker: Mapping[int, Histogram] = field(default_factory=dict[int, Histogram])
    options: Options = Options()
    silent_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Latency:
    """The measurements between two readings of a histogram: their count, and mean and percentiles in its unit."""

    count: int
    mean: float
    p50: float
    p99: float
    maximum: float

    @classmethod
    def between(cls, before: Histogram | None, after: Histogram | None) -> Latency:
        """The measurements in ``after`` that are not in ``before``; all zero if there are none."""
        if after is None or (before is not None and after.count <= before.count) or not after.count:
            return cls(0, 0.0, 0.0, 0.0, 0.0)
        count = after.count - (before.count if before else 0)
        total = max(0.0, after.total - (before.total if before else 0.0))
        earlier: Sequence[int] = before.counts if before else (0,) * len(after.counts)
        counts = [now - then for now, then in zip(after.counts, earlier, strict=True)]
        highest = next((bound for bound, below in zip(after.bounds, counts, strict=True) if below >= count), None)
        maximum = total if highest is None else min(highest, total)
        return cls(
            count,
            total / count,
            min(_quantile(after.bounds, counts, count, 0.5), maximum),
            min(_quantile(after.bounds, counts, count, 0.99), maximum),
            maximum,
        )


def _quantile(bounds: Sequence[float], counts: Sequence[int], count: int, fraction: float) -> float:
    """The value that this fraction does not exceed, interpolated within its bucket."""
    rank, lower, below = fraction * count, 0.0, 0
    for bound, so_far in zip(bounds, counts, strict=True):
        if so_far >= rank and so_far > below:
            return lower + (bound - lower) * (rank - below) / (so_far - below)
        lower, below = bound, so_far
    return bounds[-1]


@dataclass(frozen=True, slots=True)
class Window:
    """The time between two readings; ``before`` is None if there is only one, and nothing has grown then."""

    before: Snapshot | None
    after: Snapshot

    @property
    def seconds(self) -> float:
        """The length of the window; 0.0 with one reading."""
        return 0.0 if self.before is None else self.after.time - self.before.time

    def grown(self, name: str) -> float:
        """The growth of a total of the producer."""
        return 0.0 if self.before is None else _growth(self.before.metrics, self.after.metrics, name)

    def grown_by_topic(self, name: str) -> dict[str, float]:
        """The growth of a total of each topic in which it has grown."""
        return {} if self.before is None else _grown(self.before.by_topic, self.after.by_topic, name)

    def grown_by_broker(self, name: str) -> dict[int, float]:
        """The growth of a total of each broker for which it has grown."""
        return {} if self.before is None else _grown(self.before.by_broker, self.after.by_broker, name)

    def spread(self, name: str) -> Latency:
        """The measurements of a distribution of the producer."""
        if self.before is None:
            return Latency.between(None, None)
        return Latency.between(self.before.histograms.get(name), self.after.histograms.get(name))

    def latency(self, broker: int) -> Latency:
        """The latencies of one broker's Produce requests, in seconds."""
        if self.before is None:
            return Latency.between(None, None)
        return Latency.between(self.before.latency_by_broker.get(broker), self.after.latency_by_broker.get(broker))

    @property
    def longest_block_s(self) -> float:
        """The longest time for which the event loop was blocked, in seconds: exact, or an upper bound."""
        if self.before is None:
            return 0.0
        longest = self.after.metrics.get("event-loop-lag-max", 0.0) / 1e3
        return longest if self.has_longest_block else min(longest, self.spread("event-loop-lag").maximum)

    @property
    def has_longest_block(self) -> bool:
        """Whether the longest block ever was in this window: only its length is known exactly."""
        name = "event-loop-lag-max"
        return self.before is not None and self.after.metrics.get(name, 0.0) > self.before.metrics.get(name, 0.0)


def _growth(before: Mapping[str, float], after: Mapping[str, float], name: str) -> float:
    return max(0.0, after.get(name, 0.0) - before.get(name, 0.0))


def _grown(
    before: Mapping[_K, Mapping[str, float]], after: Mapping[_K, Mapping[str, float]], name: str
) -> dict[_K, float]:
    found = {key: _growth(before.get(key, {}), numbers, name) for key, numbers in after.items()}
    return {key: grown for key, grown in found.items() if grown}


def diagnose(before: Snapshot | None, after: Snapshot) -> tuple[Finding, ...]:
    """The findings about a producer, the worst first; one that all is well if there is nothing else.

    ``before`` is an earlier reading of the same producer, None if there is none: then only numbers of now count.
    """
    window = Window(before, after)
    found = [finding for find in _FINDINGS for finding in find(window)]
    if not found:
        found = [_all_is_well(window)]
    return tuple(sorted(found, key=lambda finding: _ORDER[finding.level]))


# -- numbers in sentences ----------------------------------------------------------------------------------------------


def duration(seconds: float) -> str:
    """A time with its unit: ``3 ms``, ``480 ms``, ``2.5 s``, ``45 s``."""
    milliseconds = seconds * 1e3
    if milliseconds < 1:
        return "less than 1 ms"
    if milliseconds < 999.5:
        return f"{milliseconds:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"


def number_of(count: float, noun: str) -> str:
    """A count with its noun: ``1 record``, ``1,200 records``."""
    return f"{count:,.0f} {noun}" + ("" if round(count) == 1 else "s")


def listed(parts: Sequence[str]) -> str:
    """Some names in a sentence; at most five of them."""
    shown = [*parts[:5], *([f"{len(parts) - 5} more"] if len(parts) > 5 else [])]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


# -- the findings --------------------------------------------------------------------------------------------------------

_STATES: Final[Mapping[HealthStatus, Finding]] = {
    HealthStatus.CREATED: Finding("note", "The producer is not started.", "Start it: `async with producer`."),
    HealthStatus.STARTING: Finding("note", "The producer is starting: no broker has answered yet."),
    HealthStatus.CLOSING: Finding("note", "The producer is closing: it delivers what it has accepted."),
    HealthStatus.CLOSED: Finding("note", "The producer is closed."),
}


def _state(window: Window) -> Iterator[Finding]:
    health = window.after.health
    reason = f": {_sentence(health.error)}" if health.error is not None else "."
    if health.status is HealthStatus.FAILED:
        yield Finding(
            "problem",
            f"The producer has failed, and sends nothing any more{reason}",
            "Restart the process.",
        )
    elif health.status is HealthStatus.DEGRADED:
        yield Finding(
            "problem",
            f"No broker is connected{reason}",
            "Check that the brokers run, and that this host can reach their addresses.",
        )
    elif health.status is HealthStatus.STARTING and health.error is not None:
        yield Finding(
            "problem",
            f"No broker has answered yet{reason}",
            "Check the addresses of bootstrap_servers, and that this host can reach them.",
        )
    elif (state := _STATES.get(health.status)) is not None:
        yield state


def _sentence(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _silent_thread(window: Window) -> Iterator[Finding]:
    if window.after.silent_s:
        yield Finding(
            "problem",
            f"The producer's thread has not responded for {duration(window.after.silent_s)}.",
            "A callback blocks it: let delivery callbacks and interceptors return at once.",
        )


def _stalled_brokers(window: Window) -> Iterator[Finding]:
    for broker, numbers in sorted(window.after.by_broker.items()):
        age = numbers.get("oldest-request-age", 0.0)
        if age >= _STALLED_S:
            waiting = number_of(numbers.get("requests-in-flight", 0.0), "request")
            verb = "waits" if waiting.startswith("1 ") else "wait"
            yield Finding(
                "problem",
                f"Broker {broker} has not answered for {duration(age)}: {waiting} {verb} for it.",
                "Look at this broker's load, disks and replicas, and at the network between.",
            )


def _slow_brokers(window: Window) -> Iterator[Finding]:
    means = {broker: window.latency(broker) for broker in window.after.by_broker}
    means = {broker: latency for broker, latency in means.items() if latency.count}
    for broker, latency in sorted(means.items()):
        others = [other for each, other in means.items() if each != broker]
        if not others or latency.mean < _SLOW_S:
            continue
        usual = sum(other.mean * other.count for other in others) / sum(other.count for other in others)
        if latency.mean >= _TIMES_SLOWER * usual:
            them = "the others in" if len(others) > 1 else "the other one in"
            yield Finding(
                "warning",
                f"Broker {broker} answers in {duration(latency.mean)}, {them} {duration(usual)}.",
                "Look at this broker's load, disks and replicas.",
            )


def _all_in_flight(window: Window) -> Iterator[Finding]:
    if window.seconds:
        for broker, grown in sorted(window.grown_by_broker("in-flight-full-time-ns-total").items()):
            if window.after.by_broker[broker].get("oldest-request-age", 0.0) >= _STALLED_S:
                continue  # larger batches would not help: it does not answer
            share = min(1.0, grown / 1e9 / window.seconds)
            if share >= _MOSTLY:
                yield Finding(
                    "note",
                    f"Broker {broker} had all of its {window.after.options.max_in_flight} requests in flight for "
                    f"{share:.0%} of the time: batches wait for it.",
                    "Larger batches take fewer requests: a longer linger_ms, or a larger batch_size.",
                )


def _blocked_loop(window: Window) -> Iterator[Finding]:
    blocked = window.longest_block_s
    if blocked >= _BLOCKED_S:
        yield Finding(
            "warning",
            f"Your event loop was blocked for {'' if window.has_longest_block else 'up to '}{duration(blocked)}: responses "
            "were read so late.",
            "Run long calls in a thread: `await asyncio.to_thread(...)`.",
        )


def _buffer(window: Window) -> Iterator[Finding]:
    health = window.after.health
    if health.waiting_senders:
        callers = number_of(health.waiting_senders, "caller")
        verb = "waits" if health.waiting_senders == 1 else "wait"
        yield Finding(
            "problem",
            f"The buffer is full: {callers} {verb}.",
            "More is sent than the brokers take. Send less, let `enqueue_nowait` refuse records, or give it more "
            "buffer_memory for short peaks.",
        )
    elif health.pressure >= _NEARLY_FULL:
        size = window.after.options.buffer_memory / 2**20
        yield Finding(
            "warning",
            f"The buffer is {health.pressure:.0%} full, of {size:,.0f} MiB.",
            "Callers wait when it is full: more is sent than the brokers take.",
        )


def _failed_records(window: Window) -> Iterator[Finding]:
    lost = window.grown("record-not-written-total")
    if lost:
        topics = listed([f"{topic!r}" for topic in sorted(window.grown_by_topic("record-error-total"))] or ["no topic"])
        yield Finding(
            "warning",
            f"{number_of(lost, 'record')} of {topics} failed, and {_is_or_are(lost)} not in the log.",
            "Their errors have the reasons.",
        )
    unknown = window.grown("record-unknown-total")
    if unknown:
        yield Finding(
            "warning",
            f"{number_of(unknown, 'record')} may be in the log or not: no broker has acknowledged {_them(unknown)}.",
            "Sending them again may duplicate them.",
        )
    exhausted = window.grown("buffer-exhausted-total")
    if exhausted:
        yield Finding("warning", f"{number_of(exhausted, 'record')} found no room in the buffer in time.")


def _is_or_are(count: float) -> str:
    return "is" if round(count) == 1 else "are"


def _them(count: float) -> str:
    return "it" if round(count) == 1 else "them"


def _retries(window: Window) -> Iterator[Finding]:
    retried = window.grown_by_topic("record-retry-total")
    if retried:
        topics = listed([f"{topic!r}" for topic in sorted(retried)])
        were = "was" if round(sum(retried.values())) == 1 else "were"
        yield Finding(
            "note",
            f"{number_of(sum(retried.values()), 'record')} of {topics} {were} sent again.",
            "A few are usual when partitions change their leader.",
        )


def _throttled(window: Window) -> Iterator[Finding]:
    before, after = window.before, window.after
    if before is None or not window.spread("request-latency").count:
        return
    # The average is one of all answered requests, so their number times it is the sum.
    total_s = _throttle_sum(after) - _throttle_sum(before)
    if total_s >= _THROTTLED_S:
        yield Finding(
            "warning",
            f"Brokers have delayed requests by {duration(total_s)} in the last {duration(window.seconds)}.",
            "A quota of the brokers limits this client: ask their operator, or send less.",
        )


def _throttle_sum(snapshot: Snapshot) -> float:
    latency = snapshot.histograms.get("request-latency")
    return snapshot.metrics.get("produce-throttle-time-avg", 0.0) / 1e3 * (latency.count if latency else 0)


def _lingering_for_nothing(window: Window) -> Iterator[Finding]:
    linger_ms = window.after.options.linger_ms
    if linger_ms < _LONG_LINGER_MS:
        return
    waits, batches = window.spread("record-queue-time"), window.spread("batch-size")
    records = window.grown("record-send-total")
    if not waits.count or not batches.count or waits.mean * 1e3 < _MOSTLY * linger_ms:
        return
    in_a_batch = records / batches.count
    if 0 < in_a_batch <= _FEW_RECORDS:
        yield Finding(
            "note",
            f"You linger {linger_ms:g} ms with batches of {number_of(in_a_batch, 'record')}.",
            "So few records gain little by waiting for each other: a shorter linger_ms delivers them sooner.",
        )


def _old_records(window: Window) -> Iterator[Finding]:
    oldest = window.after.health.oldest_pending_s
    if oldest >= _OLD_S:
        yield Finding(
            "warning",
            f"The oldest record has waited for {duration(oldest)} for its acknowledgement.",
        )


def _all_is_well(window: Window) -> Finding:
    health = window.after.health
    sent = window.grown("record-send-total")
    if window.before is None:
        return Finding("ok", "The producer is connected, and nothing is wrong.")
    if not sent and not health.pending_records:
        return Finding("ok", "The producer is idle: no record waits, and nothing is wrong.")
    latency = window.spread("request-latency")
    rate = number_of(sent / window.seconds, "record") if window.seconds else number_of(sent, "record")
    answered = f", and brokers answer in {duration(latency.p50)}" if latency.count else ""
    return Finding("ok", f"All is well: {rate} a second{answered}.")


#: Each looks for one thing; `diagnose` sorts the findings by their level, and leaves them in this order otherwise.
_FINDINGS: Final[tuple[Callable[[Window], Iterator[Finding]], ...]] = (
    _state,
    _silent_thread,
    _stalled_brokers,
    _buffer,
    _slow_brokers,
    _blocked_loop,
    _failed_records,
    _throttled,
    _old_records,
    _all_in_flight,
    _lingering_for_nothing,
    _retries,
)
