"""A DataFrame to Kafka: a local Spark writes 10,000 rows, with keys and a header.

Needs Java 17 and `pip install 'aioproducer[spark-local]'`.
"""

from __future__ import annotations

from _broker import bootstrap_servers
from _spark import local_spark


def main() -> None:
    spark = local_spark()
    events = spark.range(10_000).selectExpr(
        "concat('user-', id % 100) AS user", "id AS event", "current_timestamp() AS at"
    )
    (
        events.selectExpr("user AS key", "to_json(struct(event, user)) AS value", "at AS timestamp")
        .write.format("aioproducer")
        .mode("append")
        .option("kafka.bootstrap.servers", bootstrap_servers())
        .option("kafka.compression.type", "zstd")
        .option("topic", "events")
        .option("headers.source", "spark_batch.py")
        .save()
    )
    print(f"{events.count():,} rows are in the topic events")
    spark.stop()


if __name__ == "__main__":
    main()
