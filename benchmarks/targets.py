"""The speed targets of aioproducer, and whether a run of the benchmarks reaches them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.clients import OURS
from benchmarks.results import Results

__all__ = ["TARGETS", "Target", "Verdict"]

_PYTHON_PEERS: Final = ("confluent", "confluent-aio", "aiokafka", "kafka-python", "java")
_CONFLUENT: Final = ("confluent", "confluent-batch", "confluent-aio")


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target beside what was measured; ``measured`` is None where a client or a case was left out."""

    target: Target
    measured: float | None

    @property
    def reached(self) -> bool:
        """Whether the measured figure is on the right side of the goal."""
        if self.measured is None:
            return False
        return self.measured <= self.target.goal if self.target.at_most else self.measured >= self.target.goal

    @property
    def words(self) -> str:
        """The verdict for people: reached, or by which factor it is missed."""
        if self.measured is None:
            return "not measured"
        if self.reached:
            return "reached"
        worse, better = sorted((self.measured, self.target.goal), reverse=self.target.at_most)
        return f"not reached, by a factor of {max(worse, better) / max(min(worse, better), 1e-9):.2f}"


@dataclass(frozen=True, slots=True)
class Target:
    """A figure that is to be at least, or at most, so large."""

    broker: str
    text: str
    goal: float
    measure: Callable[[Results, str], float | None]
    at_most: bool = False
    unit: str = "x"

    def judge(self, results: Results) -> Verdict:
        """Compare the goal with what was measured."""
        return Verdict(self, self.measure(results, self.broker))


_Measure = Callable[[Results, str], float | None]


def _ratio(
    case: str, other: str, figure: str = "records_per_s", *, other_case: str = "", client: str = OURS
) -> _Measure:
    """Our figure over the other client's."""
    return lambda results, broker: results.ratio(broker, case, client, other, figure, other_case)


def _to_best(case: str, others: Sequence[str], other_case: str = "") -> _Measure:
    """Our records a second over those of whichever of the others is the quickest."""

    def measure(results: Results, broker: str) -> float | None:
        ratios = [results.ratio(broker, case, OURS, other, "records_per_s", other_case) for other in others]
        return min((ratio for ratio in ratios if ratio is not None), default=None)

    return measure


def _to_cheapest(case: str, others: Sequence[str]) -> _Measure:
    """Our CPU a record over that of whichever of the others takes the least."""

    def measure(results: Results, broker: str) -> float | None:
        ratios = [results.ratio(broker, case, OURS, other, "cpu_us") for other in others]
        return max((ratio for ratio in ratios if ratio is not None), default=None)

    return measure


def _inverse(measure: _Measure) -> _Measure:
    """Of a ratio of rates: the ratio of times."""

    def inverted(results: Results, broker: str) -> float | None:
        value = measure(results, broker)
        return 1 / value if value else None

    return inverted


def _median(case: str, figure: str) -> _Measure:
    """Our figure itself."""
    return lambda results, broker: results.median(broker, case, OURS, figure)


def _targets() -> list[Target]:
    first = "pipelined-100b"
    return [
        Target("mock", "pipelined: records/s of confluent-kafka produce()", 3.0, _ratio(first, "confluent")),
        Target("mock", "pipelined: CPU a record of confluent-kafka produce()", 0.35,
               _ratio(first, "confluent", "cpu_us"), at_most=True),
        Target("mock", "pipelined: records/s of aiokafka", 15, _ratio(first, "aiokafka")),
        Target("mock", "pipelined: records/s of AIOProducer", 8, _ratio(first, "confluent-aio")),
        Target("mock", "pipelined, keyed over 12 partitions: records/s of confluent-kafka", 2.5,
               _ratio("pipelined-keyed", "confluent")),
        Target("mock", "1,000 tasks awaiting send(): records/s of aiokafka", 4, _ratio("concurrent", "aiokafka")),
        Target("kafka", "a lone send(): p50 of a bare socket's ping-pong", 1.25, _ratio("lone", "socket", "p50_us"),
               at_most=True),
        Target("kafka", "a lone send(): p50 of confluent-kafka produce() and flush()", 1.0,
               _ratio("lone", "confluent", "p50_us"), at_most=True),
        Target("kafka", "a lone send(): p99 of aiokafka without linger", 1.0, _ratio("lone", "aiokafka", "p99_us"),
               at_most=True),
        *(
            Target("kafka", f"transactions of 100 records, linger {linger_ms} ms: transactions/s of {title}", goal,
                   _ratio(f"transactions-100-linger-{linger_ms}", other, "per_s"))
            for linger_ms in (5, 0)
            for other, title, goal in (("confluent", "confluent-kafka", 1.0), ("aiokafka", "aiokafka", 3.0))
        ),
        Target("kafka", "a transaction of one record: p50 of Java's", 1.2, _ratio("transactions-1", "java", "p50_us"),
               at_most=True),
        *(
            Target("mock", f"{what}: CPU a record of confluent-kafka{other}", goal, _ratio(case, "confluent", "cpu_us"),
                   at_most=True)
            for case, what, other, goal in (
                ("sync-enqueue", "enqueue() from a thread", "", 2.0),
                ("sync-enqueue-16", "enqueue() from 16 threads", "", 2.0),
                ("sync-send", "send() from a thread", "'s produce() and flush()", 1.5),
                ("sync-send-16", "send() from 16 threads", "'s produce() and flush()", 1.5),
            )
        ),
        Target("mock", "send_many: records/s of confluent-kafka's best", 6, _to_best("send-many", _CONFLUENT)),
        Target("mock", "send_table: records/s of confluent-kafka's best", 10,
               _to_best("send-table", _CONFLUENT)),
        Target("mock", "send_table: million records/s", 8,
               lambda results, broker: _millions(_median("send-table", "records_per_s")(results, broker)), unit="M"),
        Target("mock", "send_table: time of writing the encoded batches to a socket", 1.6,
               _inverse(_ratio("send-table", "socket")), at_most=True),
        Target("mock", "1 KiB JSON, lz4: records/s of confluent-kafka", 1.2, _ratio("json-lz4", "confluent")),
        Target("mock", "1 KiB JSON, zstd: records/s of confluent-kafka", 1.2, _ratio("json-zstd", "confluent")),
        Target("mock", "the event loop's worst gap", 10, _median("heartbeat-none", "worst_gap_ms"), True, "ms"),
        Target("mock", "the event loop's worst gap, zstd", 10, _median("heartbeat-zstd", "worst_gap_ms"), True, "ms"),
        Target("mock", "pure Python: records/s of aiokafka", 1.5, _ratio(first, "aiokafka", client="aioproducer-pure")),
        Target("mock", "CPU a record with 10,000 partitions, of that with 10", 1.5,
               _ratio("partitions-10000", OURS, "cpu_us", other_case="partitions-10"), at_most=True),
        Target("mock", "the same, written to evenly", 1.5,
               _ratio("spread-10000", OURS, "cpu_us", other_case="spread-10"), at_most=True),
        Target("mock", "an idle producer's wake-ups a second", 1, _median("idle", "wake_ups_per_s"), True, ""),
        Target("mock", "memory of 1,000,000 records in flight, of their encoded bytes", 1.3,
               _median("memory", "times_encoded"), at_most=True),
        Target("kafka", "pipelined: CPU a record of franz-go", 1.0, _ratio(first, "franz-go", "cpu_us"), at_most=True),
        Target("kafka", "pipelined: CPU a record of the most frugal of Java and the Python clients", 1.0,
               _to_cheapest(first, _PYTHON_PEERS), at_most=True),
        Target("kafka", "send_many: CPU a record of franz-go, pipelined", 0.6,
               _ratio("send-many", "franz-go", "cpu_us", other_case=first), at_most=True),
        Target("kafka", "send_table: CPU a record of franz-go, pipelined", 0.4,
               _ratio("send-table", "franz-go", "cpu_us", other_case=first), at_most=True),
    ]  # fmt: skip


def _millions(value: float | None) -> float | None:
    return None if value is None else value / 1e6


#: In the order of the report.
TARGETS: Final = tuple(_targets())
