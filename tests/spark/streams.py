"""Streams for tests: numbers in files, one file for each micro-batch, and the programs that write them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
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


def write_to_the_end(
    rows: DataFrame, bootstrap_servers: str, topic: str, directory: Path, transactional_id: str
) -> None:
    """Write this stream exactly once until there are no more files, with the data source that was registered last."""
    query = (
        rows.writeStream.format("aioproducer")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("kafka.max.block.ms", "240000")  # the busiest machine has the time that it needs
        .option("topic", topic)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .options(**{**EXACTLY_ONCE, "transactional.id": transactional_id})
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    rows.sparkSession.stop()


def run_program(main: Callable[..., None]) -> None:
    """Run it with the arguments of the command line; what it raises goes to standard error, and its process group dies.

    So the caller that starts the program gives it its own session.
    """
    try:
        main(*sys.argv[1:])
    except BaseException as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        sys.stderr.flush()
        os.killpg(0, signal.SIGKILL)  # an ordinary exit would wait for the JVM
