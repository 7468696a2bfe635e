"""Streams for tests: numbers in files, one file for each micro-batch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 4

EXACTLY_ONCE = {"delivery.guarantee": "exactly-once", "transactional.id": "query-1"}


def write_files(directory: Path, batches: int, rows: int) -> None:
    """The numbers from 0, so many in a file."""
    directory.mkdir()
    for batch in range(batches):
        write_file(directory, batch, rows)


def write_file(directory: Path, batch: int, rows: int) -> None:
    """The numbers of one file; a query that runs finds it whole, or not yet."""
    file = directory / f"{batch:04}.txt"
    hidden = directory / f".{file.name}"
    hidden.write_text("".join(f"{number}\n" for number in range(batch * rows, (batch + 1) * rows)))
    os.utime(hidden, (1_700_000_000 + batch, 1_700_000_000 + batch))  # Spark takes the oldest file first
    hidden.rename(file)


def values_of(spark: SparkSession, directory: Path) -> DataFrame:
    """The numbers as they are in the files, in the column ``value``."""
    return spark.readStream.option("maxFilesPerTrigger", 1).text(str(directory))


def numbers(spark: SparkSession, directory: Path) -> DataFrame:
    """The numbers with the partition of each; two tasks write them, each partition in one task."""
    keyed = values_of(spark, directory).selectExpr("value", f"cast(int(value) % {PARTITIONS} AS int) AS partition")
    return keyed.repartition(2, "partition")
