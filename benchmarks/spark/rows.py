"""The rows to write: a cached DataFrame, and the same kind of rows in files that a stream reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.cases import Case, Workload
from benchmarks.unavailable import optional

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["CASES", "COLD", "MICRO_BATCHES", "PARTITIONS", "TASKS", "cached_rows", "made_rows", "write_files"]

#: Tasks that run at once: ``local[2]``.
TASKS: Final = 2
PARTITIONS: Final = 12
_ROWS: Final = 1_000_000
_KEYS: Final = 10_000
_LONG_AGO: Final = 1_000_000_000

#: A stream; ``records`` is what one micro-batch has. The mock cluster does not know the OffsetFetch that exactly-once asks.
MICRO_BATCHES: Final = Case(
    "micro-batches", "micro-batches of 100,000 rows of 100 B", Workload.TABLE, 100_000, spread=True,
    brokers=frozenset({"kafka"}),
)  # fmt: skip

#: Each time in a session that was just started, where the rows are made as they are written.
COLD: Final = Case(
    "cold", "the first job of a session: 1,000,000 rows of 100 B, no key, default settings", Workload.TABLE, _ROWS,
    defaults=True, brokers=frozenset({"kafka"}),
)  # fmt: skip

#: Without "default settings", all producers have batches of up to 1,000,000 bytes and a linger of 5 ms.
CASES: Final = {
    case.name: case
    for case in (
        Case("rows", "1,000,000 rows of 100 B, no key", Workload.TABLE, _ROWS),
        Case("keyed", "1,000,000 rows of 100 B, keyed over 12 partitions", Workload.TABLE, _ROWS, keyed=True),
        Case("defaults", "1,000,000 rows of 100 B, no key, default settings", Workload.TABLE, _ROWS, defaults=True),
        MICRO_BATCHES,
        COLD,
    )
}

_VALUE: Final = "substr(concat(sha2(cast(id AS string), 256), sha2(cast(-id AS string), 256)), 1, 100) AS value"


def cached_rows(spark: SparkSession, case: Case, count: int) -> DataFrame:
    """So many rows in two partitions, held by the JVM: their creation is not measured."""
    rows = made_rows(spark, case, count).cache()
    rows.count()
    return rows


def made_rows(spark: SparkSession, case: Case, count: int) -> DataFrame:
    """The same rows, which are made where they are asked for."""
    columns = [_VALUE] if not case.keyed else [f"concat('key-', id % {_KEYS}) AS key", _VALUE]
    return spark.range(0, count, 1, TASKS).selectExpr(*columns)


def write_files(directory: Path, batches: int, count: int) -> None:
    """Parquet files for so many micro-batches of ``count`` rows, one for each task, which a stream reads in this order.

    They name Kafka's partitions, and no two files of a micro-batch the same ones, as exactly-once demands.
    """
    pa, parquet = optional("pyarrow"), optional("pyarrow.parquet")
    share = count // TASKS
    for number in range(batches * TASKS):
        task = number % TASKS
        table = {
            "value": [f"{number:010d}{row:090d}" for row in range(share)],
            "partition": pa.array([task + TASKS * (row % (PARTITIONS // TASKS)) for row in range(share)], pa.int32()),
        }
        file = directory / f"{number:06d}.parquet"
        parquet.write_table(pa.table(table), file, compression="none")
        os.utime(file, (_LONG_AGO + number, _LONG_AGO + number))  # by which Spark takes the older ones first
