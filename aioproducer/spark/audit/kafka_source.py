"""Reads a topic with Spark's own Kafka source, whose jar PySpark does not include: one task per partition, in order."""

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

#: Options of the source that the audit sets itself, or that would split a partition among several tasks.
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
    """Raise AuditFailed for an option of the source that the audit sets itself."""
    for name in options:
        if name.lower() in _OURS:
            raise AuditFailed(
                f"The option {name!r} of Spark's Kafka source cannot be set: the audit reads the whole topic, committed "
                "records only, with one task per partition. Leave it out."
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
    """The committed records of the ranges, which cover all partitions, in `COLUMNS` without ``home``.

    ``config`` is librdkafka's; the source gets its connection options. ``options`` are the source's own, and override
    them. Offsets without a record are not explained. Raises AuditFailed if the source is not installed.
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
    except Exception as error:  # from Java or Python, depending on which parts of the source are there
        why = jar_trouble(error, spark.version)
        if why is None:
            raise
        raise AuditFailed(why) from error
    made = {
        "kind": f.lit(RECORD),
        "count": f.lit(1),
        "timestamp": f.unix_millis("timestamp"),
        "headers": f.col("headers") if with_headers else f.lit(None),
        "home": f.lit(None),
    }
    return read.select(*(made.get(name, f.col(name)).cast(kind).alias(name) for name, kind in COLUMNS.items()))


def jar_trouble(error: BaseException, version: str) -> str | None:
    """The message if the source, or a part of it, is missing or does not fit the ``version`` of Spark."""
    text = str(error)
    broken = _NOT_WHOLE.search(text)
    if _NOT_THERE.search(text):
        what = "Spark has no Kafka source here, because PySpark comes without its jar"
    elif broken is not None:
        what = f"Spark's Kafka source does not fit this Spark version, or needs another jar ({broken[1]}: {broken[2]})"
    else:
        return None
    return (
        f"{what}. Start Spark with --conf spark.jars.packages={_PACKAGE}:{version} (downloads it and its dependencies), "
        "or with --conf spark.jars=FILE,... for local jars, or use --reader confluent-kafka."
    )
