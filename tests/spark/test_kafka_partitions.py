"""Every row gets the partition that Kafka's default partitioner gives it, and rows move only where they have to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer.errors import ConfigError, InvalidRecord
from aioproducer.record import murmur2
from aioproducer.spark import partition_for_kafka
from aioproducer.spark.sink.kafka_partitions import choose_for_keys, choose_partitions
from aioproducer.spark.sink.key_partitions import partitions_of_keys
from aioproducer.testing import FakeBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Of keys that are text, and of keys that are bytes.
LAYOUTS = {
    str: (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int16(), pa.string())),
    bytes: (pa.binary(), pa.large_binary(), pa.binary_view(), pa.dictionary(pa.int16(), pa.large_binary())),
}
Keys = Sequence[str | None] | Sequence[bytes | None]


def at_home(keys: Keys, count: int) -> list[int | None]:
    """The partition that librdkafka chooses for each key; for no key Kafka defines none."""
    encoded = [key.encode() if isinstance(key, str) else key for key in keys]
    return [None if key is None else confluent_kafka.murmur2(key, count) for key in encoded]


@settings(deadline=None)
@given(
    keys=st.lists(st.none() | st.text(max_size=12)) | st.lists(st.none() | st.binary(max_size=12)),
    count=st.integers(1, 1000),
    layout=st.integers(0, 3),
    data=st.data(),
)
def test_keys_of_every_layout_and_of_slices_go_where_librdkafka_sends_them(
    keys: Keys, count: int, layout: int, data: st.DataObject
) -> None:
    kind = next((type(key) for key in keys if key is not None), str)
    first = data.draw(st.integers(0, len(keys)))
    rows = data.draw(st.integers(0, len(keys) - first))
    column = pa.array(keys, LAYOUTS[kind][layout]).slice(first, rows)

    found = partitions_of_keys(column, count)

    assert found.type == pa.int32()
    assert found.to_pylist() == at_home(keys[first : first + rows], count)


def test_no_keys_at_all_have_no_partition() -> None:
    assert partitions_of_keys(pa.nulls(3), 7).to_pylist() == [None] * 3
    assert partitions_of_keys(pa.array([], pa.string()), 7).to_pylist() == []


def test_rows_without_a_key_take_turns_through_all_of_a_task() -> None:
    columns = iter([pa.array([None, "a", None]), pa.array([], pa.string()), pa.array(["b", None])])

    chosen = [each.to_pylist() for each in choose_for_keys(2)(columns)]

    a, b = at_home(["a", "b"], 2)
    assert chosen == [[0, a, 1], [], [b, 0]]


def test_with_whole_rows_a_partition_that_is_given_stays() -> None:
    given_ones = pa.array([None, 5, None, None, 0], pa.int64())
    table = pa.record_batch({"partition": given_ones, "key": [None, "a", None, "a", "b"], "value": list("abcde")})

    [batch] = choose_partitions(2)([table])

    assert batch.column("partition").to_pylist() == [0, 5, 1, *at_home(["a"], 2), 0]
    assert (batch.schema.names, batch.schema.field("partition").type) == (["partition", "key", "value"], pa.int32())


@pytest.mark.parametrize("partition", [-1, 5_000_000_000])
def test_with_whole_rows_a_partition_that_is_none_is_reported_as_the_rows(partition: int) -> None:
    table = pa.record_batch({"key": ["a", "b"], "partition": pa.array([0, partition], pa.int64())})

    with pytest.raises(InvalidRecord, match=rf"^A row has {partition} in the column 'partition'"):
        list(choose_partitions(2)([table]))


# -- in Spark --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"orders": 4, "few": 1}) as broker:
        yield broker


def is_shuffled(df: DataFrame) -> bool:
    return "Exchange" in plan_of(df)


def goes_through_python(df: DataFrame) -> bool:
    return "Arrow" in plan_of(df)


def plan_of(df: DataFrame) -> str:
    planned: Any = df._jdf  # of classic Spark, which alone is asked here
    return str(planned.queryExecution().executedPlan().toString())


def homes_of(df: DataFrame) -> dict[int, set[int]]:
    """The tasks in which each partition has rows."""
    found: dict[int, set[int]] = {}
    for row in df.selectExpr("partition", "spark_partition_id() AS task").distinct().collect():
        found.setdefault(row.partition, set()).add(row.task)
    return found


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("key", ["string(id)", "CAST(string(id) AS binary)"])
def test_rows_with_keys_are_shuffled_to_one_task_for_each_partition(
    spark: SparkSession, broker: FakeBroker, key: str
) -> None:
    df = spark.range(1000).selectExpr(f"IF(id % 10 = 0, NULL, {key}) AS key", "string(id) AS value")

    placed = partition_for_kafka(df, "orders", broker.bootstrap_servers)

    assert is_shuffled(placed)
    homes = homes_of(placed)
    assert sorted(homes) == [0, 1, 2, 3]
    assert {len(tasks) for tasks in homes.values()} == {1}
    for row in placed.collect():
        if row.key is not None:
            assert row.partition == (murmur2(row.value.encode()) & 0x7FFFFFFF) % 4
    assert placed.count() == 1000


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_rows_without_keys_stay_where_they_are_and_every_task_has_its_own_partitions(
    spark: SparkSession, broker: FakeBroker
) -> None:
    df = spark.range(0, 1000, 1, 3).selectExpr("string(id) AS value")

    placed = partition_for_kafka(df, "orders", broker.bootstrap_servers)

    assert not is_shuffled(placed)
    assert not goes_through_python(placed)
    homes = homes_of(placed)
    assert sorted(homes) == [0, 1, 2, 3]
    assert {len(tasks) for tasks in homes.values()} == {1}
    assert sorted(int(row.value) for row in placed.collect()) == list(range(1000))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("tasks", [1, 2, 3, 4, 9])
def test_however_many_tasks_there_are_none_shares_a_partition(
    spark: SparkSession, broker: FakeBroker, tasks: int
) -> None:
    df = spark.range(0, 600, 1, 5).selectExpr("string(id) AS value")

    placed = partition_for_kafka(df, "orders", broker.bootstrap_servers, tasks, shuffle=False)

    homes = homes_of(placed)
    assert sorted(homes) == [0, 1, 2, 3]
    assert {len(found) for found in homes.values()} == {1}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("topic", "arguments", "shuffled"),
    [
        ("orders", {"shuffle": True}, True),
        ("orders", {"tasks": 1}, True),  # one task is to write, and both are to make the rows
        ("few", {}, True),  # likewise
        ("few", {"shuffle": False}, False),
    ],
)
def test_rows_without_keys_are_shuffled_where_fewer_tasks_write_than_run_at_once(
    spark: SparkSession, broker: FakeBroker, topic: str, arguments: dict[str, Any], shuffled: bool
) -> None:
    df = spark.range(0, 100, 1, 3).selectExpr("string(id) AS value")

    placed = partition_for_kafka(df, topic, broker.bootstrap_servers, **arguments)

    assert is_shuffled(placed) is shuffled
    assert {len(tasks) for tasks in homes_of(placed).values()} == {1}
    assert placed.count() == 100


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_without_a_shuffle_rows_with_keys_get_their_partition_and_stay(spark: SparkSession, broker: FakeBroker) -> None:
    df = spark.range(0, 100, 1, 1).selectExpr("string(id) AS key", "IF(id = 7, 3L, NULL) AS partition", "'v' AS value")

    placed = partition_for_kafka(df, "orders", broker.bootstrap_servers, shuffle=False)

    assert not is_shuffled(placed)
    assert placed.columns == ["key", "partition", "value"]
    for row in placed.collect():
        at = 3 if row.key == "7" else (murmur2(row.key.encode()) & 0x7FFFFFFF) % 4
        assert row.partition == at


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nulls_among_partitions_are_filled_and_what_is_no_partition_is_reported(
    spark: SparkSession, broker: FakeBroker
) -> None:
    df = spark.range(0, 400, 1, 2).selectExpr("IF(id % 2 = 0, 3L, NULL) AS partition", "string(id) AS value")

    placed = partition_for_kafka(df, "orders", broker.bootstrap_servers).collect()

    assert all(row.partition == 3 for row in placed if int(row.value) % 2 == 0)
    assert {row.partition for row in placed if int(row.value) % 2} == {0, 1, 2, 3}
    wrong = partition_for_kafka(
        df.selectExpr("partition - 4 AS partition", "value"), "orders", broker.bootstrap_servers
    )
    with pytest.raises(Exception, match="A row has -1 in the column 'partition'"):
        wrong.collect()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_stream_of_rows_without_keys_is_written_exactly_once_without_a_shuffle(
    spark: SparkSession, broker: FakeBroker, tmp_path: Path
) -> None:
    spark.range(0, 90, 1, 3).selectExpr("string(id) AS value").write.parquet(str(tmp_path / "files"))
    stream = spark.readStream.schema("value string").parquet(str(tmp_path / "files"))
    reported = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "orders"}
    reported |= {
        "delivery.guarantee": "exactly-once",
        "transactional.id": "t",
        "checkpointLocation": str(tmp_path / "c"),
    }

    placed = partition_for_kafka(stream, "orders", broker.bootstrap_servers)
    query = placed.writeStream.format("aioproducer").options(**reported).trigger(availableNow=True).start()
    query.awaitTermination()

    committed = sorted(int(record.value or b"") for record in broker.records("orders", committed=True))
    assert committed == list(range(90))
    execution: Any = query._jsq  # nothing else has the plan
    assert "Exchange" not in execution.explainInternal(False)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("columns", "tasks", "sentence"),
    [
        ("1 AS key", None, "The column 'key' has type int; it must be string or binary"),
        ("'1' AS partition", None, "The column 'partition' has type string; it must be int"),
        ("'k' AS Key", None, "df.withColumnRenamed('Key', 'key')"),
        ("'k' AS key", 0, "invalid tasks=0: must be at least 1"),
    ],
)
def test_rows_that_cannot_be_placed_are_refused_before_kafka_is_asked(
    spark: SparkSession, columns: str, tasks: int | None, sentence: str
) -> None:
    df = spark.sql(f"SELECT {columns}, 'v' AS value")

    with pytest.raises(ConfigError) as caught:
        partition_for_kafka(df, "orders", "127.0.0.1:1", tasks)

    assert sentence in str(caught.value)
