"""The whole audit: reads the topic, compares it on Spark with what it should hold, and looks up the faults."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from aioproducer.spark.audit.bucket_check import Facts, check_bucket
from aioproducer.spark.audit.facts import NUMBER, content_hash, expected_facts, expected_number, log_facts
from aioproducer.spark.audit.findings import FINDING_COLUMNS, Finding, FindingKind, findings_batch
from aioproducer.spark.audit.gaps import Gap
from aioproducer.spark.audit.kafka_source import check_source_options, jar_trouble
from aioproducer.spark.audit.left_out import explained
from aioproducer.spark.audit.offsets import AuditFailed, OffsetRange, stable_ranges
from aioproducer.spark.audit.plan import NO_ORDER, ORDER_OF_FILES, AuditPlan, AuditReader
from aioproducer.spark.audit.reader import RECORD, RangeReader
from aioproducer.spark.audit.reading import read_digests
from aioproducer.spark.audit.verdict import AuditVerdict, Run, Sample, add_up
from aioproducer.spark.files.files import FileFormat
from aioproducer.spark.session.errors import cause_of
from aioproducer.spark.session.progress import Progress, reporting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["AuditPlan", "AuditReader", "run_audit"]

#: Facts that one Python worker checks at a time; each takes about 300 bytes of its memory.
_BUCKET: Final = 400_000
_TEXT: Final = 200
_LOOKED_UP: Final = 40
_BYTES_PER_ROW: Final = 50


def run_audit(spark: SparkSession, plan: AuditPlan, progress: Progress) -> AuditVerdict:
    """Run the audit and return its verdict. Raises AuditFailed if it cannot run, and FilesRefused for unfit files."""
    clock = _Clock()
    check_source_options(plan.source_options)
    ranges = stable_ranges(plan.config, plan.topic, plan.patience)
    read = read_digests(spark, plan, ranges)
    expected = _expected(spark, plan)
    facts = log_facts(read, by_number=plan.sequence is not None)
    if expected is not None:
        facts = facts.unionByName(expected_facts(expected))
    size = sum(each.size for each in ranges) * (2 if plan.sequence is not None else 1)
    buckets = max(2, -(-(size + (0 if expected is None else _rows(plan, expected))) // _BUCKET))
    clock.lap("planning")
    findings = _check(spark, plan, facts, buckets, progress)
    if plan.can_explain:
        findings += _silent(plan, ranges, findings)
    clock.lap("reading and comparing")
    verdict = add_up(plan.topic, plan.expectation, ranges, findings)
    looked_up = _LookUp(plan, len(ranges), expected).all(verdict)
    clock.lap("looking up")
    return replace(
        looked_up, seconds=clock.laps, cluster=plan.config.get("bootstrap.servers", ""), reader=plan.reader.value
    )


def _silent(plan: AuditPlan, ranges: Sequence[OffsetRange], findings: Sequence[Finding]) -> Sequence[Finding]:
    """Findings for partitions that have offsets but no records: with Spark's source no task reports on those."""
    heard = {finding.partition for finding in findings}
    silent = [each for each in ranges if each.size and each.partition not in heard]
    return [
        Finding(FindingKind(reason.value), each.partition, gap.begin, count=gap.end - gap.begin)
        for each in silent
        for reason, gap in explained(plan.config, plan.topic, each.partition, [Gap(each.begin, each.end)])
    ]


def _expected(spark: SparkSession, plan: AuditPlan) -> DataFrame | None:
    if plan.expected is None:
        return None
    rows = plan.expected.read(spark)
    if plan.order in (ORDER_OF_FILES, NO_ORDER):
        return expected_number(plan.shape.of(rows), None)
    return plan.shape.of(expected_number(rows, plan.order), keep=(NUMBER,))


def _rows(plan: AuditPlan, expected: DataFrame) -> int:
    """The approximate number of rows: from Parquet's footers, or from the size of local files of other formats."""
    files = expected.inputFiles()
    if plan.expected is not None and plan.expected.format is FileFormat.PARQUET:
        return expected.count()
    local = [Path(unquote(urlsplit(name).path)) for name in files if urlsplit(name).scheme == "file"]
    if len(local) < len(files):
        return expected.count()
    return sum(path.stat().st_size for path in local) // _BYTES_PER_ROW


def _check(spark: SparkSession, plan: AuditPlan, facts: DataFrame, buckets: int, progress: Progress) -> list[Finding]:
    schema = ", ".join(f"`{name}` {kind}" for name, kind in FINDING_COLUMNS.items())
    check: Any = partial(_check_bucket, by_order=plan.order != NO_ORDER, first=plan.first, records=plan.records)
    bucketed: Any = facts.repartition(buckets, "bucket")
    found: DataFrame = bucketed.mapInArrow(check, schema)
    with reporting(spark, progress):
        try:
            rows: list[Any] = found.collect()
        except Exception as error:  # Spark's, with a Java stack trace around our own error
            raise AuditFailed(jar_trouble(error, spark.version) or cause_of(error)) from error
    return [Finding(*row) for row in rows]


def _check_bucket(batches: Iterator[Any], *, by_order: bool, first: int, records: int | None) -> Iterator[Any]:
    """Runs in a Spark worker: one partition of the facts is one bucket."""
    pa: Any = import_module("pyarrow")
    found = list(batches)
    if found:
        facts = Facts.of(pa.Table.from_batches(found))
        yield findings_batch(check_bucket(facts, by_order=by_order, first=first, records=records))


class _LookUp:
    """Looks up the records of a verdict's samples in the topic and in the files."""

    def __init__(self, plan: AuditPlan, partitions: int, expected: DataFrame | None) -> None:
        self._plan = plan
        self._expected = expected
        self._reader = RangeReader(plan.config, plan.topic, partitions, patience=plan.patience)

    def all(self, verdict: AuditVerdict) -> AuditVerdict:
        wanted = [sample.content for sample in verdict.samples if sample.kind in _OF_FILES]
        rows = self._from_files(wanted)
        return replace(
            verdict,
            samples=[self._with_record(sample, rows, number) for number, sample in enumerate(verdict.samples)],
            runs=[self._with_name(run) for run in verdict.runs[:_LOOKED_UP]] + list(verdict.runs[_LOOKED_UP:]),
        )

    def _from_files(self, contents: Sequence[int]) -> Mapping[int, tuple[bytes | None, bytes | None]]:
        if self._expected is None or not contents:
            return {}
        rows = self._expected.withColumn("content", content_hash())
        found = rows.where(rows.content.isin(list(contents))).select("content", "key", "value").collect()
        return {row[0]: (row[1], row[2]) for row in found}

    def _with_record(
        self, sample: Sample, rows: Mapping[int, tuple[bytes | None, bytes | None]], number: int
    ) -> Sample:
        key, value = rows.get(sample.content, (None, None)) if sample.kind in _OF_FILES else (None, None)
        if sample.kind is FindingKind.LOST:
            return replace(sample, key=_text(key), value=_text(value))
        record = self._record(sample.partition, sample.offset) if number < _LOOKED_UP else None
        if record is not None:
            sample = replace(sample, key=_text(record["key"]), value=_text(record["value"]))
        return replace(sample, expected_value=_text(value))

    def _with_name(self, run: Run) -> Run:
        where = self._plan.run
        if where is None or min(run.place) < 0:
            return run
        record = self._record(*run.place)
        if record is None:
            return run
        return replace(run, name=where.text_of(record["value"], record["headers"] or ()) or "")

    def _record(self, partition: int, offset: int) -> Mapping[str, Any] | None:
        for batch in self._reader.read(OffsetRange(partition, offset, offset + 1)):
            for row in batch.to_pylist():
                if row["kind"] == RECORD:
                    return dict(row)
        return None


#: Kinds of samples whose ``content`` is the hash of a record in the files.
_OF_FILES: Final = frozenset({FindingKind.LOST, FindingKind.ALTERED})


def _text(data: bytes | None) -> str | None:
    if data is None:
        return None
    text = bytes(data).decode(errors="backslashreplace")
    return text if len(text) <= _TEXT else f"{text[:_TEXT]}..."


class _Clock:
    """The duration of each part, in seconds."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._began = self._last = time.monotonic()

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.laps[name] = now - self._last
        self.laps["total"] = now - self._began
        self._last = now
