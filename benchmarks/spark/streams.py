"""One streaming query through our sink or Spark's own, and how long each of its micro-batches took."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.job import Job
from benchmarks.measure import Figures
from benchmarks.spark.rows import TASKS
from benchmarks.spark.ways import exactly_once, sink_options, spark_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["COUNT", "GUARANTEES", "run_query"]

#: Spark's way to Python and back, and nothing behind it.
COUNT: Final = "count"

#: What our sink promises in a query; and Spark's own sink, which promises the first.
GUARANTEES: Final = ("at-least-once", "exactly-once", "spark-kafka", COUNT)

_SINKS: Final[Mapping[str, Callable[[Job], tuple[str, dict[str, str]]]]] = {
    "at-least-once": lambda job: ("aioproducer", sink_options(job)),
    "exactly-once": lambda job: ("aioproducer", exactly_once(job)),
    "spark-kafka": lambda job: ("kafka", spark_options(job)),
    COUNT: lambda _: ("benchmark-count", {}),
}


def run_query(spark: SparkSession, files: Path, job: Job, guarantee: str) -> Figures:
    """Write all files; the figures are medians over the micro-batches without the first one, which prepares the query."""
    sink, options = _SINKS[guarantee](job)
    with tempfile.TemporaryDirectory(prefix="aioproducer-benchmark-") as checkpoint:
        stream = spark.readStream.schema("value string, partition int").option("maxFilesPerTrigger", TASKS)
        rows = stream.parquet(str(files))
        query = (
            rows.writeStream.format(sink)
            .options(**options, checkpointLocation=checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        batches = [progress for progress in query.recentProgress if progress["numInputRows"]][1:]
    seconds = [progress["durationMs"]["triggerExecution"] / 1000 for progress in batches]
    return {
        "batch_ms": statistics.median(seconds) * 1000,
        "add_ms": statistics.median(progress["durationMs"]["addBatch"] for progress in batches),
        "records_per_s": job.case.records / statistics.median(seconds),
    }
