"""The demo's result, as numbers for machines and as lines for people. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aioproducer._twin import implementation
from aioproducer.cli.sending import STEADY_RATE, SendReport
from aioproducer.cli.verdict import Fault, Verdict

__all__ = ["Setting", "Summary", "percentile", "percentiles"]

_MEGA = 1e6
_NATIVE = "native"
_FASTER = (
    "Native code sends about 1.5 times as many records per second beside a broker in this process, and about 7 times as "
    "many without. It is built when the package is installed, if there is a C compiler."
)
_QUANTILES: Mapping[str, float] = {"p50": 0.50, "p95": 0.95, "p99": 0.99, "max": 1.0}


@dataclass(frozen=True, slots=True)
class Setting:
    """The parameters of a run, and the cluster it used."""

    cluster: str
    topic: str
    partitions: int
    records: int
    compression_type: str
    event_loop: str


@dataclass(frozen=True, slots=True)
class Summary:
    """One run. ``verdict`` is None if nothing was compared; ``trouble`` then says why."""

    setting: Setting
    sent: SendReport
    verdict: Verdict | None = None
    read_back_seconds: float = 0.0
    trouble: str | None = None

    @property
    def is_good(self) -> bool:
        """Whether every record was acknowledged and read back unchanged."""
        return self.trouble is None and self.verdict is not None and self.verdict.is_good

    @property
    def conclusion(self) -> str:
        """The verdict in a sentence."""
        if self.trouble is not None:
            return self.trouble
        return str(self.verdict) if self.verdict is not None else "Nothing was compared."

    def as_json(self) -> dict[str, Any]:
        """Everything, for ``--json``; times in milliseconds, sizes in bytes."""
        sent, numbers = self.sent, self.sent.metrics
        return {
            "verdict": "ok" if self.is_good else "bad",
            "conclusion": self.conclusion,
            "cluster": self.setting.cluster,
            "topic": self.setting.topic,
            "partitions": self.setting.partitions,
            "event_loop": self.setting.event_loop,
            "compression_type": self.setting.compression_type,
            "records": self.setting.records,
            "accepted": sent.accepted,
            "acknowledged": len(sent.places),
            "not_written": sent.not_written,
            "unknown": sent.unknown,
            "seconds": round(sent.seconds, 4),
            "records_per_second": round(self._rate(sent.pipelined)),
            "megabytes_per_second": round(self._rate(sent.pipelined_bytes) / _MEGA, 2),
            "implementation": implementation(),
            "drain_ms": _milliseconds(sent.drain),
            "latency_ms": _milliseconds(sent.latencies),
            "round_trip_ms": _milliseconds(sent.round_trips),
            "raw_bytes": sent.pipelined_bytes,
            "wire_bytes": self._wire_bytes,
            "batches": self._batches,
            "produce_requests": int(numbers.get("produce-request-total", 0)),
            "record_retries": sent.retries,
            "read_back_seconds": round(self.read_back_seconds, 4),
            "read_back": None if self.verdict is None else self.verdict.read,
            "keys_compared": None if self.verdict is None else self.verdict.keys,
            "faults": {
                fault.value: 0 if self.verdict is None else self.verdict.counts.get(fault, 0) for fault in Fault
            },
            "examples": [] if self.verdict is None else list(self.verdict.examples),
        }

    def rows(self) -> Sequence[tuple[str, str]]:
        """The result for people, as pairs of a label and a text."""
        sent, numbers = self.sent, self.sent.metrics
        rows = [
            ("Cluster", self.setting.cluster),
            ("Topic", f"{self.setting.topic}, {self.setting.partitions} partitions"),
            ("Sent", f"{sent.accepted:,} of {self.setting.records:,} records, {len(sent.places):,} acknowledged"),
            (
                "Throughput",
                f"{self._rate(sent.pipelined):,.0f} records/s, {self._rate(sent.pipelined_bytes) / _MEGA:,.1f} MB/s "
                f"({sent.pipelined:,} records in {sent.seconds:.2f} s on {self.setting.event_loop})",
            ),
            ("Time to drain", _drain(sent.drain)),
            (f"Latency at {STEADY_RATE:,}/s", _latency(sent.latencies)),
            ("Latency one by one", _latency(sent.round_trips)),
            ("On the wire", self._wire),
            (
                "Requests",
                f"{int(numbers.get('produce-request-total', 0)):,} with {self._batches:,} batches, "
                f"{numbers.get('records-per-request-avg', 0.0):,.0f} records per request on average",
            ),
            ("Retries", f"{sent.retries:,} records"),
        ]
        if implementation() != _NATIVE:
            rows.append(("Implementation", f"{implementation()}. {_FASTER}"))
        if sent.not_written or sent.unknown:
            rows.append(("Failed", f"{sent.not_written:,} not written, {sent.unknown:,} possibly written"))
        if self.verdict is not None:
            rows.append(
                (
                    "Read back",
                    f"{self.verdict.read:,} records with {self.verdict.keys:,} keys by confluent-kafka's consumer in "
                    f"{self.read_back_seconds:.2f} s",
                )
            )
            rows.append(
                (
                    "Compared",
                    "content, position and order of each record, and each key's partition with the one that "
                    "confluent-kafka's producer chooses",
                )
            )
        return rows

    def _rate(self, amount: float) -> float:
        return amount / self.sent.seconds if self.sent.seconds else 0.0

    @property
    def _wire_bytes(self) -> int:
        return int(self.sent.metrics.get("byte-total", 0))

    @property
    def _batches(self) -> int:
        average = self.sent.metrics.get("batch-size-avg", 0.0)
        return round(self._wire_bytes / average) if average else 0

    @property
    def _wire(self) -> str:
        raw, wire = self.sent.pipelined_bytes, self._wire_bytes
        if not raw or not wire:
            return "nothing"
        return (
            f"{wire / _MEGA:,.1f} MB in record batches for {raw / _MEGA:,.1f} MB of keys, values and headers: "
            f"{wire / raw:.0%} ({self.setting.compression_type})"
        )


def percentile(ordered: Sequence[float], fraction: float) -> float:
    """The value that this fraction of the sorted values does not exceed; 0.0 if there are none."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * fraction))] if ordered else 0.0


def percentiles(ordered: Sequence[float]) -> Mapping[str, float]:
    """p50, p95, p99 and the maximum of sorted values."""
    return {name: percentile(ordered, fraction) for name, fraction in _QUANTILES.items()}


def _milliseconds(ordered: Sequence[float]) -> Mapping[str, float]:
    return {name: round(value * 1e3, 3) for name, value in percentiles(ordered).items()}


def _drain(ordered: Sequence[float]) -> str:
    if not ordered:
        return "not measured"
    return f"{ordered[-1] * 1e3:,.0f} ms at most in the buffer, for records that were enqueued all at once"


def _latency(ordered: Sequence[float]) -> str:
    if not ordered:
        return "not measured"
    return ", ".join(f"{name} {value * 1e3:,.2f} ms" for name, value in percentiles(ordered).items())
