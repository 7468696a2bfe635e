"""A program that writes to Kafka as a client of Spark Connect, which has neither a JVM nor a SparkContext.

``python -m tests.spark.connect_client SERVER BOOTSTRAP DIRECTORY`` prints, as JSON, what was refused and why. Each kind of
job writes the numbers below `ROWS` to the topic of its name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aioproducer.spark import AioProducerSource, foreach_batch, partition_for_kafka, write_exactly_once
from tests.spark.streams import run_program, values_of, write_files, write_to_the_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["BATCHES", "ROWS", "TOPICS"]

#: How many rows each job writes, the stream in so many batches.
ROWS: Final = 200
BATCHES: Final = 4

#: The topics, by what writes to them.
TOPICS: Final[Sequence[str]] = ("at-least-once", "exactly-once", "stream", "refused")


class Client:
    """The jobs of one client."""

    def __init__(self, server: str, bootstrap_servers: str, directory: Path) -> None:
        from pyspark.sql import SparkSession

        self._spark: SparkSession = SparkSession.builder.remote(server).getOrCreate()
        self._bootstrap_servers = bootstrap_servers
        self._directory = directory
        if self._spark.version.startswith("4.0."):  # which also finds no data source that can be registered
            self._spark.dataSource.register(AioProducerSource)
        self._rows = self._spark.range(ROWS).selectExpr("string(id) AS key", "string(id) AS value")

    def write_files(self) -> None:
        """The files that the streams read."""
        write_files(self._directory / "files", BATCHES, ROWS // BATCHES)

    def write(self) -> None:
        """Writes that work. Spark first finds the data source by itself, and then by its registration."""
        self._save(self._rows, "at-least-once")
        self._spark.dataSource.register(AioProducerSource)
        for _ in range(2):  # the second job has the same id, so it finds that all is done
            once = {"delivery.guarantee": "exactly-once", "transactional.id": "job", "job.id": "monday"}
            self._save(partition_for_kafka(self._rows, "exactly-once", self._bootstrap_servers), "exactly-once", **once)
        keyed = self._stream().selectExpr("value AS key", "value")
        placed = partition_for_kafka(keyed, "stream", self._bootstrap_servers)
        write_to_the_end(placed, self._bootstrap_servers, "stream", self._directory, "stream")

    def refusals(self) -> dict[str, str]:
        """The errors of the helpers with a barrier stage, and of the data source for rows that it cannot write."""
        options = {"kafka.bootstrap.servers": self._bootstrap_servers, "topic": "refused", "transactional.id": "r"}
        return {
            "write_exactly_once": _raised_by(lambda: write_exactly_once(self._rows, options)),
            "foreach_batch": _raised_by(lambda: foreach_batch(options)),
            "rows without a value": _raised_by(lambda: self._save(self._rows.select("key"), "refused")),
        }

    def _save(self, df: DataFrame, topic: str, **options: str) -> None:
        servers = {"kafka.bootstrap.servers": self._bootstrap_servers}
        df.write.format("aioproducer").mode("append").options(**servers, topic=topic, **options).save()

    def _stream(self) -> DataFrame:
        return values_of(self._spark, self._directory / "files")


def _raised_by(call: Callable[[], Any]) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main(server: str, bootstrap_servers: str, directory: str) -> None:
    """Tell what is refused, and do the rest."""
    client = Client(server, bootstrap_servers, Path(directory))
    client.write_files()
    print(json.dumps(client.refusals()), flush=True)  # noqa: T201 - the answer
    client.write()


if __name__ == "__main__":
    run_program(main)
