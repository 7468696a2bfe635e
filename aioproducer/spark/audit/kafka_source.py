"""Reads a topic with Spark's own Kafka source, whose jar PySpark does not bring: one task for each partition, in order."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from aioproducer.spark.audit.connection import java_security
from aioproducer.spark.audit.offsets import AuditFailed, OffsetRange
from aioproducer.spark.audit.reader import COLUMNS, RECORD

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["check_source_options", "jar_trouble", "kafka_records"]

_PACKAGE: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13"

#: Options of the source that the audit sets itself, or that would divide a partition among several tasks.
_OURS: Final = frozenset(
    {
        "assign",
        "endingoffsets",
        "endingoffsetsbytimestamp",
        "endingtimestamp",
        "failondataloss",
        "includeheaders",
        "kafka.isolation.level",
        "maxrecordsperpartition",
        "minpartitions",
        "startingoffsets",
        "startingoffsetsbytimestamp",
        "startingtimestamp",
        "subscribe",
        "subscribepattern",
    }
)

_NOT_THERE: Final = re.compile(r"Failed to find (?:the )?data source: kafka")
_NOT_WHOLE: Final = re.compile(
    r"(NoClassDefFoundError|ClassNotFoundException|NoSuchMethodError|NoSuchFieldError|AbstractMethodError"
    r"|IncompatibleClassChangeError): (.+)"
)


def check_source_options(options: Mapping[str, str]) -> None:
    """Raise AuditFailed for an option of the source that is the audit's own to set."""
    for name in options:
        if name.lower() in _OURS:
            raise AuditFailed(
                f"The option {name!r} of Spark's Kafka source cannot be chosen: the audit sets what is read, all of it "
                "and committed records only, with one task for each partition. Leave it out."
            )


def kafka_records(
    spark: SparkSession,
    config: Mapping[str, str],
    options: Mapping[str, str],
    topic: str,
    ranges: Sequence[OffsetRange],
    *,
    patience: float = 60.0,
    with_headers: bool = True,
) -> DataFrame:
    """The committed records of the ranges, which are all partitions of the topic, in `COLUMNS`, but without ``home``.

    ``config`` is librdkafka's, of which the source gets what says how to connect; ``options`` are its own, and win.
    Nothing is said of offsets without a record. Raises AuditFailed where the source is not there.
    """
    from pyspark.sql import functions as f

    given = {
        "kafkaConsumer.pollTimeoutMs": str(int(patience * 1000)),
        **{f"kafka.{name}": value for name, value in java_security(config).items()},
        **options,
        "subscribe": topic,
        "startingOffsets": json.dumps({topic: {str(each.partition): each.begin for each in ranges}}),
        "endingOffsets": json.dumps({topic: {str(each.partition): each.end for each in ranges}}),
        "kafka.isolation.level": "read_committed",
        "includeHeaders": str(with_headers).lower(),
        "failOnDataLoss": "true",
    }
    try:
        read = spark.read.format("kafka").options(**given).load()
    except Exception as error:  # of Java or of Python: it depends on how much of the source is there
        told = jar_trouble(error, spark.version)
        if told is None:
            raise
        raise AuditFailed(told) from error
    made = {
        "kind": f.lit(RECORD),
        "count": f.lit(1),
        "timestamp": f.unix_millis("timestamp"),
        "headers": f.col("headers") if with_headers else f.lit(None),
        "home": f.lit(None),
    }
    return read.select(*(made.get(name, f.col(name)).cast(kind).alias(name) for name, kind in COLUMNS.items()))


def jar_trouble(error: BaseException, version: str) -> str | None:
    """What to say where the source, or a part of it, is not there or does not fit the ``version`` of Spark."""
    text = str(error)
    broken = _NOT_WHOLE.search(text)
    if _NOT_THERE.search(text):
        what = "Spark has no Kafka source here, as PySpark comes without its jar"
    elif broken is not None:
        what = f"Spark's Kafka source does not fit this Spark, or a jar that it needs is missing ({broken[1]}: {broken[2]})"
    else:
        return None
    return (
        f"{what}. Start Spark with --conf spark.jars.packages={_PACKAGE}:{version} (which fetches it and what it needs), "
        "or with --conf spark.jars=FILE,... of jars that you have, or let confluent-kafka read."
    )
