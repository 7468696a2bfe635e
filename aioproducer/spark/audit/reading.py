"""Reads the topic with the reader that the plan selects, as one digest per record."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from aioproducer.spark.audit.completion import Completion
from aioproducer.spark.audit.facts import DIGEST_COLUMNS, digests
from aioproducer.spark.audit.kafka_source import kafka_records
from aioproducer.spark.audit.offsets import OffsetRange
from aioproducer.spark.audit.plan import AuditPlan, AuditReader
from aioproducer.spark.audit.source import NAME, AuditSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["read_digests"]


def read_digests(spark: SparkSession, plan: AuditPlan, ranges: Sequence[OffsetRange]) -> DataFrame:
    """The `DIGEST_COLUMNS` of the ranges. Raises AuditFailed if the reader is not installed."""
    return _READERS[plan.reader](spark, plan, ranges)


def _by_confluent_kafka(spark: SparkSession, plan: AuditPlan, ranges: Sequence[OffsetRange]) -> DataFrame:
    from pyspark.sql import functions as f

    spark.dataSource.register(AuditSource)
    options = {
        **{f"kafka.{name}": value for name, value in plan.config.items()},
        "topic": plan.topic,
        "headers": str(plan.needs_headers).lower(),
        "gaps": str(plan.can_explain).lower(),
        "ranges": json.dumps(ranges),
        "partitions": str(len(ranges)),
        "patience": str(plan.patience),
        "records.per.range": str(plan.records_per_range),
    }
    records = spark.read.format(NAME).options(**options).load()
    if not plan.checks_partition:
        records = records.withColumn("home", f.lit(None).cast("int"))
    return digests(records, plan.sequence, plan.run)


def _by_spark(spark: SparkSession, plan: AuditPlan, ranges: Sequence[OffsetRange]) -> DataFrame:
    records = kafka_records(
        spark,
        plan.config,
        plan.source_options,
        plan.topic,
        ranges,
        patience=plan.patience,
        with_headers=plan.needs_headers,
    )
    complete: Any = Completion(
        plan.topic,
        ranges,
        config=plan.config if plan.can_explain else None,
        with_home=plan.checks_partition,
    )
    read: Any = digests(records, plan.sequence, plan.run)  # values stay in the JVM, whatever their size
    schema = ", ".join(f"`{name}` {kind}" for name, kind in DIGEST_COLUMNS.items())
    completed: DataFrame = read.mapInArrow(complete, schema)
    return completed


_Read: TypeAlias = "Callable[[SparkSession, AuditPlan, Sequence[OffsetRange]], DataFrame]"

_READERS: Final[Mapping[AuditReader, _Read]] = {
    AuditReader.CONFLUENT_KAFKA: _by_confluent_kafka,
    AuditReader.SPARK: _by_spark,
}
