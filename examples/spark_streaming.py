"""A stream to Kafka, exactly once: files become micro-batches, each of them one transaction. Then the driver "crashes".

Readers with ``isolation_level=read_committed`` see a micro-batch as a whole or not at all. A committed micro-batch that
is run again is recognised by the marker that was committed with it.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from _broker import bootstrap_servers
from _spark import local_spark

from aioproducer.spark import partition_for_kafka


def main() -> None:
    spark = local_spark()
    servers = bootstrap_servers()
    directory = Path(tempfile.mkdtemp(prefix="spark-streaming-"))
    files, checkpoint = directory / "files", directory / "checkpoint"
    files.mkdir()
    for day in range(3):
        (files / f"day-{day}.txt").write_text("".join(f"event {day}.{number}\n" for number in range(100)))

    events = spark.readStream.option("maxFilesPerTrigger", 1).text(str(files)).selectExpr("value AS key", "value")

    def run() -> None:
        query = (
            partition_for_kafka(events, "events", servers)  # each Kafka partition belongs to one task
            .writeStream.format("aioproducer")
            .option("kafka.bootstrap.servers", servers)
            .option("topic", "events")
            .option("delivery.guarantee", "exactly-once")
            .option("transactional.id", "events-query")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        print(f"batches up to {query.lastProgress['batchId']} are committed" if query.lastProgress else "nothing to do")

    run()
    (checkpoint / "commits" / "2").unlink()  # as if Spark had died between Kafka's commit and its own note of it
    (checkpoint / "commits" / ".2.crc").unlink(missing_ok=True)
    run()
    print("batch 2 was run again, and wrote nothing: its marker was there")
    spark.stop()
    shutil.rmtree(directory)


if __name__ == "__main__":
    main()
