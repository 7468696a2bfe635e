"""A batch job writes a DataFrame: every column and type, and everything that is refused before a task starts."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from aioproducer.testing import FakeBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"orders": 3, "returns": 2}) as broker:
        yield broker


def writer(df: DataFrame, broker: FakeBroker, **options: str) -> DataFrameWriter:
    return (
        df.write.format("aioproducer")
        .mode("append")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .options(**options)
    )


def test_every_column_arrives_as_it_was(spark: SparkSession, broker: FakeBroker) -> None:
    rows = 10_000
    df = spark.range(rows).selectExpr(
        "CASE WHEN id % 7 = 0 THEN NULL ELSE cast(id AS string) END AS key",
        "CASE WHEN id % 5 = 0 THEN NULL ELSE encode(concat('v', id), 'utf-8') END AS value",
        "CASE WHEN id % 2 = 0 THEN 'orders' ELSE 'returns' END AS topic",
        "cast(id % 2 AS int) AS partition",
        "CASE WHEN id % 3 = 0 THEN NULL ELSE array("
        "  named_struct('key', 'h', 'value', encode(string(id), 'utf-8')), named_struct('key', 'n', 'value', binary(NULL))"
        ") END AS headers",
        "timestamp_millis(1700000000000 + id) AS timestamp",
        "id AS ignored",
    )
    writer(df, broker).save()

    def expected(i: int) -> Any:
        headers = () if i % 3 == 0 else (("h", b"%d" % i), ("n", None))
        topic = "orders" if i % 2 == 0 else "returns"
        key, value = (None if i % 7 == 0 else b"%d" % i), (None if i % 5 == 0 else b"v%d" % i)
        return topic, i % 2, 1_700_000_000_000 + i, key, value, headers

    found = [(r.topic, r.partition, r.timestamp_ms, r.key, r.value, tuple(r.headers)) for r in broker.records()]
    assert Counter(found) == Counter(map(expected, range(rows)))


def test_the_option_topic_wins_over_the_column(spark: SparkSession, broker: FakeBroker) -> None:
    df = spark.createDataFrame([("orders", "a")], "topic string, value string")

    writer(df, broker, topic="returns").save()

    assert [(r.topic, r.value) for r in broker.records()] == [("returns", b"a")]


def test_text_and_bytes_seconds_and_timestamps_are_taken(spark: SparkSession, broker: FakeBroker) -> None:
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=datetime.UTC)
    df = spark.createDataFrame([(at.timestamp(), b"b", "k")], "timestamp double, value binary, key string")

    writer(df, broker, topic="orders").save()

    [record] = broker.records()
    assert (record.timestamp_ms, record.value, record.key) == (int(at.timestamp() * 1000), b"b", b"k")


def test_a_timestamp_without_a_time_zone_is_taken_in_that_of_the_session_when_it_is_cast(
    spark: SparkSession, broker: FakeBroker
) -> None:
    local = spark.sql("SELECT 'v' AS value, TIMESTAMP_NTZ'2026-01-01 00:00:00' AS timestamp")
    was = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        assert "is ambiguous without a time zone" in refused(local, broker, topic="orders")
        cast = local.selectExpr("value", "CAST(timestamp AS TIMESTAMP_LTZ) AS timestamp")
        writer(cast, broker, topic="orders").save()
    finally:
        spark.conf.set("spark.sql.session.timeZone", was or "UTC")

    [record] = broker.records()
    at = datetime.datetime(2026, 1, 1, 5, tzinfo=datetime.UTC)
    assert record.timestamp_ms == at.timestamp() * 1000


def test_all_columns_become_a_json_object(spark: SparkSession, broker: FakeBroker) -> None:
    df = spark.createDataFrame([("k", 1, "x")], "key string, n int, s string")

    writer(df, broker, **{"topic": "orders", "value.format": "json", "headers.source": "Spark"}).save()

    broker.assert_sent("orders", key=b"k", value=b'{"n":1,"s":"x"}', headers=[("source", b"Spark")])


def test_the_name_of_a_header_keeps_its_case_in_the_column_and_not_in_an_option(
    spark: SparkSession, broker: FakeBroker
) -> None:
    df = spark.sql("SELECT 'v' AS value, map('Content-Type', 'text/plain') AS headers")

    writer(df, broker, **{"topic": "orders", "headers.Content-Type": " text "}).save()

    [record] = broker.records()
    assert tuple(record.headers) == (("Content-Type", b"text/plain"), ("content-type", b" text "))


def test_a_rate_limit_is_kept_and_needs_to_know_how_many_tasks_share_it(
    spark: SparkSession, broker: FakeBroker
) -> None:
    df = spark.range(120).repartition(2).selectExpr("string(id) AS value")
    limit = {"topic": "orders", "rate.limit.records.per.second": "100"}

    assert "'rate.limit.tasks'" in refused(df, broker, **limit)
    writer(df, broker, **limit, **{"rate.limit.tasks": "2"}).save()

    stamps = sorted(record.timestamp_ms for record in broker.records())
    assert len(stamps) == 120
    assert stamps[-1] - stamps[0] >= 1000  # 60 rows in each task, 50 a second, in slices of five


def test_no_rows_are_no_records(spark: SparkSession, broker: FakeBroker) -> None:
    writer(spark.createDataFrame([], "value string"), broker, topic="orders").save()

    assert broker.records() == []


def refused(df: DataFrame, broker: FakeBroker, mode: str = "append", **options: str) -> str:
    with pytest.raises(Exception, match="ConfigError") as caught:
        writer(df, broker, **options).mode(mode).save()
    assert broker.requests == [], "nothing starts before the schema is found fit"
    return str(caught.value)


def test_invalid_columns_and_options_are_refused_before_a_task_starts(spark: SparkSession, broker: FakeBroker) -> None:
    values = spark.createDataFrame([("a",)], "value string")

    assert "has no column 'value', only 'text'" in refused(values.toDF("text"), broker, topic="orders")
    assert "'value' has type int" in refused(values.selectExpr("1 AS value"), broker, topic="orders")
    assert "There is no topic" in refused(values, broker)
    assert "cannot be overwritten" in refused(values, broker, mode="overwrite", topic="orders")
    as_json = {"topic": "orders", "value.format": "json"}
    assert "'n.b' has type binary, which JSON cannot represent" in refused(
        spark.sql("SELECT struct(X'00' AS b) AS n"), broker, **as_json
    )
    assert "the option 'topic' overrides it" in refused(spark.sql("SELECT 1 AS n, 'x' AS topic"), broker, **as_json)
    serializers = {"topic": "orders", "kafka.key.serializer": "x"}
    assert "'kafka.key.serializer' is not supported" in refused(values, broker, **serializers)
    assert "needs sasl_mechanism" in refused(values, broker, topic="orders", **{"security.protocol": "SASL_SSL"})
    assert "not a URL" in refused(values, broker, topic="orders", report="s3://bucket/report")


def test_a_row_without_a_topic_fails_the_job(spark: SparkSession, broker: FakeBroker) -> None:
    df = spark.createDataFrame([(None, "a")], "topic string, value string")

    with pytest.raises(Exception, match="null in the column 'topic'"):
        writer(df, broker).save()


def test_the_job_fails_with_the_exception_raised_upstream(spark: SparkSession, broker: FakeBroker) -> None:
    df = spark.range(10).selectExpr("cast(raise_error('the upstream is dry') AS string) AS value")

    with pytest.raises(Exception, match="the upstream is dry"):
        writer(df, broker, topic="orders").save()


def test_reading_fails_and_names_sparks_own_format(spark: SparkSession) -> None:
    for load in (spark.read.format("aioproducer").load, spark.readStream.format("aioproducer").load):
        with pytest.raises(Exception, match=r"'aioproducer\\?' can only write to Kafka\. .* format\(\\?'kafka\\?'\)"):
            load()
