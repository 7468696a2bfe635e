"""The Spark sink's targets for speed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from benchmarks.results import Results
from benchmarks.spark.ways import OURS
from benchmarks.targets import Target

__all__ = ["TARGETS"]


def _faster_than(case: str, other: str) -> Callable[[Results, str], float | None]:
    return lambda results, broker: results.ratio(broker, case, OURS, other, "records_per_s")


def _transfer_share(results: Results, broker: str) -> float | None:
    """The share of our job's time that Spark takes to hand the rows over."""
    return _percent(results.ratio(broker, "rows", "count", OURS, "ms"), 0)


def _price_of_exactly_once(results: Results, broker: str) -> float | None:
    return _percent(results.ratio(broker, "micro-batches", "exactly-once", "at-least-once", "batch_ms"), 1)


def _share_of(results: Results, broker: str, goal: float) -> float | None:
    """The rate of exactly-once writes, as a share of Spark's own sink."""
    ratio = results.ratio(broker, "rows", "exactly-once", "spark-kafka", "records_per_s")
    return None if ratio is None else ratio / goal


def _percent(ratio: float | None, whole: float) -> float | None:
    return None if ratio is None else (ratio - whole) * 100


_PEERS: Final = (("confluent-arrow", "an Arrow writer", 2.0), ("confluent-foreach", "foreachPartition", 6.0))

#: In the order of the report.
TARGETS: Final = (
    *(
        Target("mock", f"rows/s of {title} with confluent-kafka{settings}", goal, _faster_than(case, other))
        for case, settings in (("rows", ""), ("defaults", ", default settings"))
        for other, title, goal in _PEERS
    ),
    Target("mock", "Spark's handing over of the rows, of our time", 50, _transfer_share, True, "%"),
    Target("mock", "the same, the better aim", 25, _transfer_share, True, "%"),
    Target("kafka", "Spark's handing over of the rows, of our time with Kafka", 50, _transfer_share, True, "%"),
    *(
        Target("kafka", f"rows/s of Spark's own sink, {settings}", 1.3, _faster_than(case, other))
        for case, other, settings in (
            ("defaults", "spark-kafka", "batches of 256 KiB as ours"),
            ("defaults", "spark-kafka-plain", "default settings"),
            ("rows", "spark-kafka", "batches of 1,000,000 bytes and a linger of 5 ms"),
            ("keyed", "spark-kafka", "the same, with keys"),
        )
    ),
    Target("kafka", "exactly once, where no row has to be moved, of at least once (rows/s)", 0.85,
           lambda results, broker: results.ratio(broker, "rows", "exactly-once", OURS, "records_per_s")),
    Target("kafka", "the same, of 1.3 x Spark's own sink (rows/s)", 0.85,
           lambda results, broker: _share_of(results, broker, 1.3)),
    Target("kafka", "exactly once in micro-batches of 100,000 rows, of at least once (rows/s)", 0.85,
           lambda results, broker: results.ratio(broker, "micro-batches", "exactly-once", "at-least-once",
                                                 "records_per_s")),
    Target("kafka", "the first job of a session, of that with Spark's own sink (time)", 1.0,
           lambda results, broker: results.ratio(broker, "cold", OURS, "spark-kafka", "ms"), True),
    Target("kafka", "exactly-once over at-least-once, micro-batches of 100,000 rows", 25, _price_of_exactly_once, True,
           "% more"),
)  # fmt: skip
