"""The ways from a DataFrame into a topic that are compared."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks.cases import Case
from benchmarks.job import BATCH_SIZE, Job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["OURS", "WAYS", "Way", "exactly_once", "sink_options", "spark_options"]

_ALL: Final = frozenset({"mock", "kafka"})
_KAFKA: Final = frozenset({"kafka"})
#: What our sink lets batches grow to unless the options say otherwise.
_OUR_BATCHES: Final = {"kafka.batch.size": "262144"}


@dataclass(frozen=True, slots=True)
class Way:
    """One way of writing a DataFrame."""

    name: str
    title: str
    write: Callable[[DataFrame, Job], None]
    #: Whether there is something in the topic afterwards.
    sends: bool = True
    #: Whether it also does so with keys.
    keyed: bool = True
    #: Whether it is asked for what a case does with the settings that it comes with.
    defaults: bool = True
    brokers: frozenset[str] = _ALL
    #: Whether transactions leave offsets in the topic that are no records.
    is_transactional: bool = False
    #: Whether the first job of a session is looked at.
    cold: bool = False

    def can(self, case: Case, broker: str) -> bool:
        """Whether the case can be asked of it, on a broker of this kind."""
        fits = (self.keyed or not case.keyed) and (self.defaults or not case.defaults)
        return fits and broker in self.brokers


def sink_options(job: Job) -> dict[str, str]:
    """The options of our sink; the others have the same sizes."""
    found = {"kafka.bootstrap.servers": job.servers, "topic": job.topic}
    if not job.case.defaults:
        found |= {"kafka.batch.size": str(BATCH_SIZE), "kafka.linger.ms": str(job.case.linger_ms)}
    return found


def spark_options(job: Job) -> dict[str, str]:
    """The options of Spark's own sink: the same, and batches as large as ours."""
    return _OUR_BATCHES | sink_options(job)


def exactly_once(job: Job) -> dict[str, str]:
    """The options of our sink for a transaction."""
    named = {"delivery.guarantee": "exactly-once", "transactional.id": f"benchmark-{uuid.uuid4().hex}"}
    return sink_options(job) | named


def _sink(rows: DataFrame, job: Job) -> None:
    rows.write.format("aioproducer").mode("append").options(**sink_options(job)).save()


def _spark_kafka(rows: DataFrame, job: Job) -> None:
    rows.write.format("kafka").options(**spark_options(job)).save()


def _spark_kafka_plain(rows: DataFrame, job: Job) -> None:
    rows.write.format("kafka").options(**{"kafka.bootstrap.servers": job.servers, "topic": job.topic}).save()


def _divided(rows: DataFrame, job: Job) -> None:
    from aioproducer.spark import partition_for_kafka

    _sink(partition_for_kafka(rows, job.topic, job.servers), job)


def _exactly_once(rows: DataFrame, job: Job) -> None:
    from aioproducer.spark import partition_for_kafka

    placed = partition_for_kafka(rows, job.topic, job.servers)
    placed.write.format("aioproducer").mode("append").options(**exactly_once(job)).save()


def _barrier(rows: DataFrame, job: Job) -> None:
    from aioproducer.spark import write_exactly_once

    options = {key: value for key, value in exactly_once(job).items() if key != "delivery.guarantee"}
    write_exactly_once(rows, options)


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
        Way(OURS, 'format("aioproducer")', _sink, cold=True),
        Way("spark-kafka", 'Spark\'s own format("kafka"), batches as large as ours', _spark_kafka, brokers=_KAFKA,
            cold=True),
        Way("spark-kafka-plain", 'Spark\'s own format("kafka"), default settings', _spark_kafka_plain, brokers=_KAFKA),
        Way("divided", "ours behind partition_for_kafka", _divided, defaults=False, brokers=_KAFKA),
        Way("exactly-once", "the same, exactly once", _exactly_once, defaults=False, brokers=_KAFKA,
            is_transactional=True),
        Way("barrier", "write_exactly_once", _barrier, defaults=False, brokers=_KAFKA, is_transactional=True),
        Way("confluent-arrow", "an Arrow writer with confluent-kafka", _confluent_arrow),
        Way("confluent-foreach", "foreachPartition with confluent-kafka", _foreach_partition, keyed=False),
        Way("count", "(Arrow batches only counted)", _counted, sends=False),
        Way("noop", "(Spark's noop, without Python)", _dropped, sends=False),
    )
}  # fmt: skip
