"""What the Spark sink promises about its speed."""

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
    """How long Spark takes to hand the rows over, of the time that our job takes."""
    return _percent(results.ratio(broker, "rows", "count", OURS, "ms"), 0)


def _price_of_exactly_once(results: Results, broker: str) -> float | None:
    return _percent(results.ratio(broker, "micro-batches", "exactly-once", "at-least-once", "batch_ms"), 1)


def _percent(ratio: float | None, whole: float) -> float | None:
    return None if ratio is None else (ratio - whole) * 100


_PEERS: Final = (("confluent-arrow", "an Arrow writer", 2.0), ("confluent-foreach", "foreachPartition", 6.0))

#: In the order of the report.
TARGETS: Final = (
    *(
        Target("mock", f"rows/s of {title} with confluent-kafka{settings}", goal, _faster_than(case, other))
        for case, settings in (("rows", ""), ("defaults", ", all as it comes"))
        for other, title, goal in _PEERS
    ),
    Target("mock", "Spark's handing over of the rows, of our time", 50, _transfer_share, True, "%"),
    Target("mock", "the same, the better aim", 25, _transfer_share, True, "%"),
    Target("kafka", "Spark's handing over of the rows, of our time with Kafka", 50, _transfer_share, True, "%"),
    Target("kafka", "exactly-once over at-least-once, micro-batches of 100,000 rows", 25, _price_of_exactly_once, True,
           "% more"),
)  # fmt: skip
