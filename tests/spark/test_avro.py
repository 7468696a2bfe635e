"""DataFrames and streams as Avro, with a registry and without one, read back by others."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from aioproducer.errors import ConfigError
from aioproducer.testing import FakeBroker
from aioproducer.testing.plugin import KafkaFactory
from tests.spark.load_program import result_of
from tests.spark.read_back import committed
from tests.spark.registry import Registry
from tests.spark.streams import EXACTLY_ONCE, numbers, write_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SCHEMA = (
    "key STRING, id BIGINT NOT NULL, price DECIMAL(12,3), day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, raw BINARY, "
    "tags ARRAY<STRING>, counts MAP<STRING, INT>, place STRUCT<name: STRING, points: ARRAY<STRUCT<x: DOUBLE, y: FLOAT>>>"
)
AT = datetime(2026, 1, 31, 12, 0, 0, 123_456, UTC)
FULL = {
    "id": 2**62,
    "price": Decimal("-123456789.125"),
    "day": date(1815, 6, 18),
    "at": AT,
    "local": AT.replace(tzinfo=None),
    "raw": b"\x00\xff",
    "tags": ["a", None],
    "counts": {"b": 1, "a": None},
    "place": {"name": "Zoë", "points": [{"x": 1.5, "y": None}, None]},
}
EMPTY = dict.fromkeys(FULL) | {"id": 0}


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"orders": 4}) as broker:
        yield broker


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry(login="me:secret") as registry:
        yield registry


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([("k1", *FULL.values()), ("k2", *EMPTY.values())], SCHEMA)


def with_registry(registry: Registry) -> dict[str, str]:
    login = {"schema.registry.basic.auth.user.info": "me:secret"}
    return {"value.format": "avro", "schema.registry.url": registry.url, **login}


def write(df: DataFrame, servers: str, topic: str, **options: str) -> None:
    target = {"kafka.bootstrap.servers": servers, "topic": topic}
    df.write.format("aioproducer").mode("append").options(**target, **options).save()


def in_three_tasks(rows: DataFrame) -> DataFrame:
    """The rows in one of them, so that no two tasks write the same partition; the keys are of one length."""
    return rows.repartition(3, rows.key.substr(1, 1))


def decoded(schema: str, value: bytes) -> Any:
    return fastavro.schemaless_reader(io.BytesIO(value), fastavro.parse_schema(json.loads(schema)), None)


def consumed(servers: str, topic: str, partitions: int) -> Sequence[bytes]:
    return [message.value() or b"" for message in committed(servers, topic, partitions)]


@pytest.mark.parametrize("version", [pytest.param("3.9.2", marks=pytest.mark.soak), "4.3.1"])
@pytest.mark.parametrize("guarantee", [{}, EXACTLY_ONCE], ids=["at least once", "exactly once"])
def test_rows_read_by_another_client_equal_the_rows_written(
    rows: DataFrame, registry: Registry, kafka_factory: KafkaFactory, version: str, guarantee: dict[str, str]
) -> None:
    kafka = kafka_factory(version)
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, 3)
    once = {**guarantee, "transactional.id": topic} if guarantee else {}

    write(in_three_tasks(rows), kafka.bootstrap_servers, topic, **with_registry(registry), **once)

    values = consumed(kafka.bootstrap_servers, topic, 3)
    assert registry.subjects == {f"{topic}-value": [100]}
    assert len(registry.requests) == 1, "by the driver, not by its three tasks"
    assert {value[:5] for value in values} == {b"\0" + (100).to_bytes(4, "big")}
    found = [decoded(registry.schemas[100], value[5:]) for value in values]
    assert sorted(found, key=lambda row: int(row["id"])) == [EMPTY, FULL]


@pytest.mark.parametrize("version", [pytest.param("3.9.2", marks=pytest.mark.soak), "4.3.1"])
def test_files_are_loaded_and_audited_by_the_command_line(
    rows: DataFrame, registry: Registry, kafka_factory: KafkaFactory, version: str, tmp_path: Path
) -> None:
    kafka = kafka_factory(version)
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, 3)
    rows.withColumnRenamed("key", "who").coalesce(1).write.parquet(str(tmp_path / "rows"))
    target = ["--topic", topic, "--bootstrap-servers", kafka.bootstrap_servers, "--master", "local[2]", "--json"]
    avro = ["--value-format", "avro", "--schema-registry", f"http://me:secret@{registry.address}", "--key", "who"]
    once = ["--exactly-once", "--id", topic, "--checkpoint", str(tmp_path / "load")]
    files = [str(tmp_path / "rows"), "--format", "parquet"]

    loaded = result_of("load", *files, *target, *avro, *once)
    verdict = result_of("audit", "--expected", *files, *target, *avro)

    assert loaded["rows"] == 2
    assert (verdict["verdict"], verdict["read"]) == ("clean", 2), verdict
    assert registry.subjects == {f"{topic}-value": [100]}
    values = consumed(kafka.bootstrap_servers, topic, 3)
    assert {value[:5] for value in values} == {b"\0" + (100).to_bytes(4, "big")}
    found = [decoded(registry.schemas[100], value[5:]) for value in values]
    assert sorted(found, key=lambda row: str(row["who"])) == [{"who": "k1"} | FULL, {"who": "k2"} | EMPTY]


def test_without_a_registry_values_are_bare(rows: DataFrame, broker: FakeBroker) -> None:
    given = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
            {"name": "id", "type": "long"},
        ],
    }

    write(
        rows.select("key", "id", "day"),
        broker.bootstrap_servers,
        "orders",
        **{"value.format": "avro", "avro.schema": json.dumps(given)},
    )

    found = {record.key: decoded(json.dumps(given), record.value or b"") for record in broker.records("orders")}
    assert found == {b"k1": {"day": FULL["day"], "id": 2**62}, b"k2": {"day": None, "id": 0}}


def test_a_column_that_does_not_fit_avro_is_reported_before_any_task_starts(
    rows: DataFrame, broker: FakeBroker
) -> None:
    avro = {"value.format": "avro"}
    given = json.dumps({"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]})
    stages = rows.sparkSession.sparkContext.statusTracker().getJobIdsForGroup(None)

    with pytest.raises(Exception, match="The column name 'a b' is invalid in Avro"):
        write(rows.withColumn("a b", rows.id), broker.bootstrap_servers, "orders", **avro)
    with pytest.raises(Exception, match="'d' has type interval day, which Avro does not support"):
        write(rows.selectExpr("INTERVAL '1' DAY AS d"), broker.bootstrap_servers, "orders", **avro)
    with pytest.raises(Exception, match="has no field for 'day'"):
        write(rows.select("id", "day"), broker.bootstrap_servers, "orders", **avro, **{"avro.schema": given})

    assert rows.sparkSession.sparkContext.statusTracker().getJobIdsForGroup(None) == stages
    assert broker.requests == []


def test_a_refusal_by_the_registry_stops_the_job_before_anything_is_sent(rows: DataFrame, broker: FakeBroker) -> None:
    with Registry(login="me:secret", compatible=False) as registry:
        registry.subjects["orders-value"] = [7]
        login = with_registry(registry)
        wrong = login | {"schema.registry.basic.auth.user.info": "me:wrong"}

        with pytest.raises(Exception, match="incompatible with the versions of subject 'orders-value'"):
            write(rows, broker.bootstrap_servers, "orders", **login, **EXACTLY_ONCE)
        with pytest.raises(Exception, match="rejects the login") as caught:
            write(rows, broker.bootstrap_servers, "orders", **wrong)

    assert "me:wrong" not in str(caught.value)
    with pytest.raises(Exception, match=f"Could not connect to the schema registry at {registry.url}"):
        write(rows, broker.bootstrap_servers, "orders", **login)
    assert broker.requests == []


@pytest.mark.parametrize("guarantee", [{}, EXACTLY_ONCE], ids=["at least once", "exactly once"])
def test_rows_name_their_topics_and_each_has_a_subject(
    rows: DataFrame, broker: FakeBroker, registry: Registry, guarantee: dict[str, str]
) -> None:
    broker.create_topic("returns", 1)
    named = rows.selectExpr("*", "if(key = 'k1', 'orders', 'returns') AS topic")
    target = {"kafka.bootstrap.servers": broker.bootstrap_servers, **guarantee}
    marker = {"commit.marker.topic": "orders"} if guarantee else {}

    named.coalesce(1).write.format("aioproducer").mode("append").options(
        **target, **marker, **with_registry(registry)
    ).save()

    assert registry.subjects == {"orders-value": [100], "returns-value": [100]}
    for topic, row in (("orders", FULL), ("returns", EMPTY)):
        [record] = broker.records(topic, committed=True)
        assert decoded(registry.schemas[100], (record.value or b"")[5:]) == row


def test_micro_batches_have_one_schema(
    spark: SparkSession, broker: FakeBroker, registry: Registry, tmp_path: Path
) -> None:
    write_files(tmp_path / "files", batches=3, rows=30)
    stream = numbers(spark, tmp_path / "files").selectExpr("partition", "int(value) AS number")
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "orders"}

    query = (
        stream.writeStream.format("aioproducer")
        .options(**options, **with_registry(registry), **EXACTLY_ONCE)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    records = broker.records("orders", committed=True)
    found = [decoded(registry.schemas[100], (record.value or b"")[5:])["number"] for record in records]
    assert sorted(found) == list(range(90))
    assert registry.subjects == {"orders-value": [100]}
    assert len(registry.requests) == 3, "once for each batch: not by its two tasks, and not again to commit"


@pytest.mark.parametrize("kind", ["a job", "a barrier stage"])
def test_each_job_asks_the_registry_again_and_its_tasks_do_not(
    rows: DataFrame, broker: FakeBroker, registry: Registry, kind: str
) -> None:
    from aioproducer.spark import write_exactly_once

    def run() -> None:
        if kind == "a job":
            write(in_three_tasks(rows), broker.bootstrap_servers, "orders", **with_registry(registry))
        else:
            options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "orders", "transactional.id": "t"}
            write_exactly_once(rows, {**options, **with_registry(registry)})

    run()
    registry.subjects.clear()  # the subject is deleted, and the id is that of another schema
    registry.schemas = {100: "another"}
    run()

    assert registry.subjects == {"orders-value": [101]}
    ids = [int.from_bytes((record.value or b"")[1:5]) for record in broker.records("orders", committed=True)]
    assert sorted(ids) == [100, 100, 101, 101]
    assert len(registry.requests) == 2, "the driver, for each of the two"


def test_a_barrier_stage_writes_avro(rows: DataFrame, broker: FakeBroker, registry: Registry) -> None:
    from aioproducer.spark import write_exactly_once

    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "orders", "transactional.id": "t"}

    summary = write_exactly_once(rows, {**options, **with_registry(registry)})

    values = [(record.value or b"")[5:] for record in broker.records("orders", committed=True)]
    assert summary.rows == 2
    assert sorted((decoded(registry.schemas[100], value) for value in values), key=lambda row: int(row["id"])) == [
        EMPTY,
        FULL,
    ]
    with pytest.raises(ConfigError, match="'a b'"):
        write_exactly_once(rows.withColumn("a b", rows.id), {**options, **with_registry(registry)})
