"""The ways from a DataFrame into a topic that are compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks.cases import Case
from benchmarks.job import BATCH_SIZE, Job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["OURS", "WAYS", "Way", "sink_options"]


@dataclass(frozen=True, slots=True)
class Way:
    """One way of writing a DataFrame."""

    name: str
    title: str
    write: Callable[[DataFrame, Job], None]
    #: Whether there is something in the topic afterwards.
    sends: bool = True
    #: Whether it does so with keys, too.
    keyed: bool = True

    def can(self, case: Case) -> bool:
        """Whether the case can be asked of it."""
        return self.keyed or not case.keyed


def sink_options(job: Job) -> dict[str, str]:
    """What our sink is told; the others have the same sizes."""
    found = {"kafka.bootstrap.servers": job.servers, "topic": job.topic}
    if not job.case.defaults:
        found |= {"kafka.batch.size": str(BATCH_SIZE), "kafka.linger.ms": str(job.case.linger_ms)}
    return found


def _sink(rows: DataFrame, job: Job) -> None:
    rows.write.format("aioproducer").mode("append").options(**sink_options(job)).save()


def _confluent_arrow(rows: DataFrame, job: Job) -> None:
    from benchmarks.spark.peers import source_options

    rows.write.format("benchmark-confluent").mode("append").options(**source_options(job)).save()


def _foreach_partition(rows: DataFrame, job: Job) -> None:
    from benchmarks.spark.peers import produce_rows

    rows.foreachPartition(produce_rows(job))


def _counted(rows: DataFrame, job: Job) -> None:
    rows.write.format("benchmark-count").mode("append").save()


def _dropped(rows: DataFrame, job: Job) -> None:
    rows.write.format("noop").mode("append").save()


OURS: Final = "aioproducer"
#: By name, in the order of the reports.
WAYS: Final = {
    way.name: way
    for way in (
        Way(OURS, 'format("aioproducer")', _sink),
        Way("confluent-arrow", "an Arrow writer with confluent-kafka", _confluent_arrow),
        Way("confluent-foreach", "foreachPartition with confluent-kafka", _foreach_partition, keyed=False),
        Way("count", "(Arrow batches only counted)", _counted, sends=False),
        Way("noop", "(Spark's noop, without Python)", _dropped, sends=False),
    )
}
