"""Exactly once even if Spark retries failing tasks: a stream with `foreach_batch`, a job with `write_exactly_once`."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from _broker import bootstrap_servers
from _spark import local_spark

from aioproducer.spark import foreach_batch, write_exactly_once


def main() -> None:
    spark = local_spark()
    options = {"kafka.bootstrap.servers": bootstrap_servers(), "topic": "events"}
    directory = Path(tempfile.mkdtemp(prefix="spark-foreach-batch-"))
    (directory / "files").mkdir()
    for day in range(2):
        (directory / "files" / f"day-{day}.txt").write_text("".join(f"event {day}.{number}\n" for number in range(100)))

    events = spark.readStream.option("maxFilesPerTrigger", 1).text(str(directory / "files"))
    query = (
        events.selectExpr("value AS key", "value")
        .writeStream.foreachBatch(foreach_batch({**options, "transactional.id": "events-stream"}))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print("the stream is written")

    job = {**options, "transactional.id": "events-job", "job.id": "2026-01-31"}
    table = spark.range(1000).selectExpr("string(id) AS key", "string(id) AS value")
    print(f"the job wrote {write_exactly_once(table, job).rows} rows")
    print(f"the same job again wrote {write_exactly_once(table, job).rows} rows")
    spark.stop()
    shutil.rmtree(directory)


if __name__ == "__main__":
    main()
