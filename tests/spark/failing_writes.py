"""A program whose writes fail, one after the other, with Spark's default settings; it prints what a user reads, as JSON.

``python -m tests.spark.failing_writes BOOTSTRAP TOPIC DIRECTORY`` prints an object with the text of each exception. What
Spark and the workers log goes to standard error, and Spark's event log to DIRECTORY/events.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aioproducer.spark import AioProducerSource, write_exactly_once
from aioproducer.testing.kafka import Kafka
from tests.real.open_transactions import open_transactions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["TIMEOUT_MS", "main"]

TIMEOUT_MS: Final = 1000

#: How long a row may wait for its transaction to begin, and to end, on the slowest machine.
_PATIENCE_S: Final = 20.0

_SHAPE: Final = "value string, partition int"


def _too_large(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("if(value = '7', repeat('x', 3000000), value) AS value", "partition")


def _slow(rows: DataFrame, bootstrap_servers: str, transactional_id: str) -> DataFrame:
    def wait(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            yield from [batch] * 2000  # more than Spark hands over at once, so that some are written now
            until(time.monotonic() + _PATIENCE_S, is_open=True)
            until(
                time.monotonic() + _PATIENCE_S, is_open=False
            )  # brokers look only now and then whether its time is over
            yield batch

    def until(deadline: float, *, is_open: bool) -> None:
        while bool(open_transactions(Kafka(bootstrap_servers), transactional_id)) != is_open:
            if time.monotonic() > deadline:
                return  # another attempt at the task, whose transaction was over before
            time.sleep(0.05)

    return rows.mapInArrow(wait, _SHAPE)


def _broken(rows: DataFrame) -> DataFrame:
    def fail(batches: Iterable[Any]) -> Iterator[Any]:
        yield from batches
        raise ValueError("a mistake in the user's own function")

    return rows.mapInArrow(fail, _SHAPE)


def _dying(rows: DataFrame) -> DataFrame:
    def die(batches: Iterable[Any]) -> Iterator[Any]:
        yield from batches
        os._exit(7)

    return rows.mapInArrow(die, _SHAPE)


def main(bootstrap_servers: str, topic: str, directory: str) -> None:
    """Let them fail."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    events = Path(directory, "events")
    events.mkdir()
    builder = SparkSession.builder.master("local[2,4]")  # ,4: task failures as on a cluster
    builder = builder.config("spark.eventLog.enabled", "true").config("spark.eventLog.dir", str(events))
    builder = builder.config("spark.eventLog.compress", "false")
    spark = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.dataSource.register(AioProducerSource)
    options = {
        "kafka.bootstrap.servers": bootstrap_servers,
        "topic": topic,
        "delivery.guarantee": "exactly-once",
        "transactional.id": topic,
        "report": str(Path(directory, "report")),
    }
    slow = partial(_slow, bootstrap_servers=bootstrap_servers, transactional_id=topic)
    brief = options | {"transaction.timeout.ms": str(TIMEOUT_MS)}
    writes: dict[str, Callable[[], object]] = {
        "batch, too large": lambda: _batch(_too_large(_numbers(spark)), options),
        "stream, too large": lambda: _stream(spark, _too_large, options, Path(directory, "too-large")),
        "helper, too large": lambda: write_exactly_once(_too_large(_numbers(spark)), options),
        "batch, timeout": lambda: _batch(slow(_numbers(spark)), brief),
        "stream, timeout": lambda: _stream(spark, slow, brief, Path(directory, "timeout")),
        "batch, upstream": lambda: _batch(_broken(_numbers(spark)), options),
        "batch, worker dies": lambda: _batch(_dying(_numbers(spark)), options),
        "batch, job": lambda: _batch(_numbers(spark), options | {"job.id": "1"}),
        "batch, job again": lambda: _batch(_numbers(spark), options | {"job.id": "1"}),
    }
    print(json.dumps({name: _why(write) for name, write in writes.items()}))  # noqa: T201 - what this is for
    spark.stop()


def _numbers(spark: SparkSession) -> DataFrame:
    rows = spark.range(20).selectExpr("cast(id AS string) AS value", "cast(id % 4 AS int) AS partition")
    return rows.repartition(2, "partition")


def _batch(rows: DataFrame, options: dict[str, str]) -> None:
    rows.write.format("aioproducer").mode("append").options(**options).save()


def _stream(
    spark: SparkSession, change: Callable[[DataFrame], DataFrame], options: dict[str, str], directory: Path
) -> None:
    _numbers(spark).coalesce(1).write.parquet(str(directory / "files"))
    rows = spark.readStream.schema(_SHAPE).parquet(str(directory / "files")).repartition(2, "partition")
    query = change(rows).writeStream.format("aioproducer").options(**options)
    query.option("checkpointLocation", str(directory / "checkpoint")).trigger(
        availableNow=True
    ).start().awaitTermination()


def _why(write: Callable[[], object]) -> str:
    try:
        write()
    except Exception as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main(*sys.argv[1:])
