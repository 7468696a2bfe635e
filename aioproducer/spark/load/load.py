"""Loads files into a topic with Spark: in one job, or exactly once in resumable transactions of a few files each."""

from __future__ import annotations

import asyncio
import json
import logging
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aioproducer.config import ProducerConfig
from aioproducer.errors import KafkaError
from aioproducer.spark.exactly_once.commit_marker import CommitMarkerMismatch
from aioproducer.spark.exactly_once.task_attempt import job_query
from aioproducer.spark.files.files import ORDER, RecordShape, SourceFiles
from aioproducer.spark.files.listing import FoundFile
from aioproducer.spark.load.log import LoadLog, Slice
from aioproducer.spark.load.marker import check_marker, job_of, last_commit
from aioproducer.spark.load.state import LoadRefused, LoadState
from aioproducer.spark.session.errors import is_of_bad_row, spark_errors
from aioproducer.spark.session.progress import Progress, reporting
from aioproducer.spark.session.session import end_message

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["LoadFailed", "LoadPlan", "LoadResult", "run_load"]

logger = logging.getLogger("aioproducer.spark")

#: A failed task aborts its transaction; the same files are tried this many times before the load gives up.
_ATTEMPTS: Final = 3


class LoadFailed(Exception):
    """The load stopped before everything was written; the message says what was written and how to resume."""


class _BadRow(LoadFailed):
    """A task stopped at a bad row of the files, so nothing of their slice can have been committed."""


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """The source and destination of a load. ``producer``: options of the producer, by Kafka's names.

    With ``load_name`` each row is written exactly once, with that name as transactional id; ``checkpoint`` is the directory
    that stores the progress, and ``max_files`` the number of files per transaction. ``is_again``: write everything that
    the checkpoint does not list, even if a load of that name has committed, or may have committed, before.
    """

    files: SourceFiles
    topic: str
    producer: Mapping[str, str]
    shape: RecordShape = field(default_factory=RecordShape)
    load_name: str | None = None
    checkpoint: Path = field(default_factory=Path)
    max_files: int = 1
    is_again: bool = False

    def sink_options(self) -> dict[str, str]:
        """Options for the data source ``aioproducer``."""
        options = {f"kafka.{name}": value for name, value in self.producer.items()} | {"topic": self.topic}
        if self.load_name is not None:
            options |= {"delivery.guarantee": "exactly-once", "transactional.id": self.load_name}
        return options


@dataclass(slots=True)
class LoadResult:
    """The totals of this run: rows, bytes of keys and values, transactions, seconds."""

    rows: int = 0
    size: int = 0
    transactions: int = 0
    seconds: float = 0.0
    is_resumed: bool = False

    def as_json(self) -> dict[str, Any]:
        """All fields, and the rate."""
        return {
            "rows": self.rows,
            "bytes": self.size,
            "transactions": self.transactions,
            "resumed": self.is_resumed,
            "seconds": round(self.seconds, 3),
            "rows_per_second": round(self.rows / self.seconds) if self.seconds else 0,
        }


def run_load(spark: SparkSession, plan: LoadPlan, progress: Progress) -> LoadResult:
    """Write the files, or the rest of them; blocks until that is done.

    Records of one key keep the order of the files' rows, older files first. Raises FilesRefused and LoadRefused if
    nothing was started, and LoadFailed later.
    """
    from aioproducer.spark import AioProducerSource

    spark.dataSource.register(AioProducerSource)
    began = time.monotonic()
    result = LoadResult()
    try:
        if plan.load_name is None:
            _load_once_or_more(spark, plan, progress, result)
        else:
            _load_exactly_once(spark, plan, progress, result)
    finally:
        result.seconds = time.monotonic() - began
    return result


def _load_once_or_more(spark: SparkSession, plan: LoadPlan, progress: Progress, result: LoadResult) -> None:
    files = plan.files.find(spark)
    schema = plan.files.schema_of(spark, files)
    records = plan.shape.of(plan.files.rows(spark, schema, files))
    try:
        with reporting(spark, progress):
            _write(records, plan, result, {})
    except spark_errors() as error:
        why = end_message(spark) or plan.files.why(spark, error, files, schema)
        raise LoadFailed(
            f"The load stopped: {why} Some of the rows may be in the topic already, and the same command would write them "
            "again. (--exactly-once resumes without duplicates.)"
        ) from error


def _write(records: DataFrame, plan: LoadPlan, result: LoadResult, options: Mapping[str, str]) -> None:
    from aioproducer.spark.sink.kafka_partitions import partition_for_kafka

    config = ProducerConfig.from_properties(dict(plan.producer))
    placed = partition_for_kafka(records, plan.topic, config).sortWithinPartitions("partition", *ORDER)
    rows = placed.select("key", "value", "partition")
    with tempfile.TemporaryDirectory(prefix="aioproducer-load-") as directory:
        report = Path(directory, "report")
        chosen = {**plan.sink_options(), **options, "report": str(report)}
        rows.write.format("aioproducer").mode("append").options(**chosen).save()
        written: Mapping[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    result.rows += written["rows"]
    result.size += written["bytes"]
    result.transactions += not written["skipped"]  # if an earlier run has committed them


# -- exactly once ----------------------------------------------------------------------------------------------------------


def _load_exactly_once(spark: SparkSession, plan: LoadPlan, progress: Progress, result: LoadResult) -> None:
    from pyspark.sql.types import StructType

    files = plan.files.find(spark)
    state = LoadState.open(plan.checkpoint, _what(plan), lambda: _checked_schema(spark, plan, files))
    result.is_resumed = not state.is_new
    schema = StructType.fromJson(dict(state.schema))
    plan.shape.check(schema)
    with LoadLog.open(plan.checkpoint) as log:
        _check_unchanged(log, files)
        if not plan.is_again:
            config = ProducerConfig.from_properties(dict(plan.producer))
            marker = asyncio.run(last_commit(config, plan.load_name or "", plan.topic))
            check_marker(marker, log, state.load_id, plan.load_name or "", plan.checkpoint)
        slices = _Slices(spark, plan, state, schema, result)
        known = log.files
        new = [file for file in files if file.path not in known]
        if result.is_resumed:
            plan.files.check_added(spark, schema, new)
        begun: list[Slice | Sequence[FoundFile]] = [slice_ for slice_ in log.slices if slice_.is_open]
        left = begun + [new[at : at + plan.max_files] for at in range(0, len(new), plan.max_files)]
        for done, each in enumerate(left, 1):
            slice_ = each if isinstance(each, Slice) else log.plan(each)
            try:
                slices.write(slice_)
            except _BadRow:
                log.give_up(slice_)
                raise
            log.commit(slice_)
            progress(done, len(left), f"{result.rows:,} rows in {result.transactions} transactions")


def _check_unchanged(log: LoadLog, files: Sequence[FoundFile]) -> None:
    known = log.files
    for file in files:
        before = known.get(file.path)
        if before is not None and before.size != file.size:
            raise LoadRefused(
                f"{file.path} had {before.size:,} bytes when it was loaded, and has {file.size:,} now. A load writes each "
                "file once: put new rows into another file, and move this one away."
            )


def _checked_schema(spark: SparkSession, plan: LoadPlan, files: Sequence[FoundFile]) -> Mapping[str, Any]:
    """The schema of the files, if records can be created with it."""
    schema = plan.files.schema_of(spark, files)
    plan.shape.check(schema)
    found: Mapping[str, Any] = json.loads(schema.json())
    return found


class _Slices:
    """Writes each slice of the files in its own transaction."""

    def __init__(
        self, spark: SparkSession, plan: LoadPlan, state: LoadState, schema: StructType, result: LoadResult
    ) -> None:
        self._spark = spark
        self._plan = plan
        self._state = state
        self._schema = schema
        self._result = result

    def write(self, slice_: Slice) -> None:
        """Raises LoadFailed. The job's id keeps a committed slice from being written again."""
        job_id = job_of(self._state.load_id, slice_.number)
        job = {"job.id": job_id, "load.slice": "true"}
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                rows = self._plan.files.rows(self._spark, self._schema, slice_.files)
                _write(self._plan.shape.of(rows), self._plan, self._result, job)
                break
            except Exception as error:  # from Spark, Java, Kafka or the file system; the transaction is aborted
                is_bad_row = is_of_bad_row(error)
                is_committed = self._is_committed(job_id) if is_bad_row else None
                if is_committed or CommitMarkerMismatch.__name__ in str(error):
                    raise LoadRefused(_changed_since(slice_)) from error
                end = end_message(self._spark)
                why = end or self._plan.files.why(self._spark, error, slice_.files, self._schema)
                if attempt == _ATTEMPTS or end or is_bad_row:
                    raise (_BadRow if is_committed is False else LoadFailed)(
                        f"The load stopped: {why} This run has committed {self._result.transactions} transactions with "
                        f"{self._result.rows:,} rows, and no partial ones. Run the same command again to resume."
                    ) from error
                logger.warning("Slice %d of the load, attempt %d of %d: %s", slice_.number, attempt, _ATTEMPTS, why)

    def _is_committed(self, job_id: str) -> bool | None:
        """Whether an earlier run has committed this slice; None if unknown."""
        plan = self._plan
        config = ProducerConfig.from_properties(dict(plan.producer))
        try:
            marker = asyncio.run(last_commit(config, plan.load_name or "", plan.topic))
        except KafkaError as error:
            logger.debug("Unknown whether job %r was committed: %s", job_id, error)
            return None
        return marker is not None and marker.query == job_query(job_id)


def _changed_since(slice_: Slice) -> str:
    names = ", ".join(file.path for file in slice_.files)
    return (
        f"Slice {slice_.number} of the load ({names}) was committed by a run that was killed before it could record that, "
        "and its rows differ now: a file has changed, or an option that affects its rows. Nothing was written. Restore the "
        "loaded state and run the same command again; then load new rows from another file."
    )


def _what(plan: LoadPlan) -> Mapping[str, Any]:
    avro = plan.shape.avro
    of_avro = {
        "avro_schema": avro.schema,
        "schema_registry": None if avro.registry is None else avro.registry.url,
    }
    return {
        "topic": plan.topic,
        "format": plan.files.format.value,
        "options": dict(plan.files.options),
        "key": plan.shape.key,
        "value": plan.shape.value.value,
        "value_column": plan.shape.value_column,
        **{name: what for name, what in of_avro.items() if what is not None},
    }
