"""A stream writes micro-batch after micro-batch: nothing is lost, and with exactly-once nothing comes twice."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aioproducer.cli.main import main
from aioproducer.spark.exactly_once.commit_marker import marker_group
from aioproducer.testing import FakeBroker
from tests.spark.streams import EXACTLY_ONCE, numbers, values_of, write_file, write_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"orders": 4, "letters": 4}) as broker:
        yield broker


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return tmp_path / "files"


def run(df: DataFrame, broker: FakeBroker, checkpoint: Path, **options: str) -> None:
    """Write everything that is there, and raise what the query failed with."""
    query = (
        df.writeStream.format("aioproducer")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("topic", "orders")
        .option("checkpointLocation", str(checkpoint))
        .options(**options)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def visible(broker: FakeBroker) -> Counter[int]:
    return Counter(int(record.value or b"") for record in broker.records("orders", committed=True))


def die_once(flag: Path) -> Any:
    """A function for mapInArrow that kills its Python worker in the middle of the first batch that it sees."""

    def through(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch
            if not flag.exists():
                flag.touch()
                os._exit(1)

    return through


def test_twenty_batches_and_a_task_that_is_killed_lose_nothing(
    spark: SparkSession, broker: FakeBroker, files: Path, tmp_path: Path
) -> None:
    write_files(files, batches=20, rows=30)
    df = numbers(spark, files).mapInArrow(die_once(tmp_path / "died"), "value string, partition int")

    run(df, broker, tmp_path / "checkpoint")

    assert (tmp_path / "died").exists()
    assert set(visible(broker)) == set(range(600))


def test_each_batch_is_one_transaction(spark: SparkSession, broker: FakeBroker, files: Path, tmp_path: Path) -> None:
    write_files(files, batches=3, rows=30)

    run(numbers(spark, files), broker, tmp_path / "checkpoint", **EXACTLY_ONCE)

    assert visible(broker) == Counter(range(90))
    # The writer that Spark creates again to commit must not begin a transaction: it would abort the one to be committed.
    assert (broker.count("InitProducerId"), broker.count("EndTxn")) == (3, 3)
    assert broker.open_transactions() == []
    [marker] = broker.committed_offsets(marker_group("query-1")).values()
    assert marker.offset == 3


@pytest.mark.parametrize("guarantee", [{}, EXACTLY_ONCE], ids=["at least once", "exactly once"])
def test_the_report_names_the_place_of_each_batch(
    spark: SparkSession, broker: FakeBroker, files: Path, tmp_path: Path, guarantee: dict[str, str]
) -> None:
    write_files(files, batches=2, rows=30)

    run(numbers(spark, files), broker, tmp_path / "checkpoint", report=str(tmp_path / "report.jsonl"), **guarantee)

    lines = [json.loads(line) for line in (tmp_path / "report.jsonl").read_text().splitlines()]
    assert [(line["batch"], line["rows"], line["skipped"]) for line in lines] == [(0, 30, False), (1, 30, False)]
    assert len({line["query"] for line in lines}) == 1
    for line, rows in zip(lines, [range(30), range(30, 60)], strict=True):
        ends = {each["partition"]: (each["first_offset"], each["last_offset"]) for each in line["partitions"]}
        found = [r for r in broker.records("orders", committed=True) if int(r.value or b"") in rows]
        assert all(ends[record.partition][0] <= record.offset <= ends[record.partition][1] for record in found)
        assert {record.partition for record in found} == set(ends)


def test_rows_that_are_too_large_are_dead_letters_of_the_same_transactions(
    spark: SparkSession, broker: FakeBroker, files: Path, tmp_path: Path
) -> None:
    write_files(files, batches=2, rows=30)
    some_large = "CASE WHEN value IN ('7', '31', '32') THEN repeat('x', 5000) ELSE value END AS value"
    letters = {"on.record.error": "dead-letter:letters", "kafka.max.request.size": "2000"}

    run(
        numbers(spark, files).selectExpr(some_large, "partition"),
        broker,
        tmp_path / "checkpoint",
        **EXACTLY_ONCE,
        **letters,
    )

    assert visible(broker) == Counter({*range(60)} - {7, 31, 32})
    assert [len(letter.value or b"") for letter in broker.records("letters", committed=True)] == [5000] * 3
    assert (broker.count("EndTxn"), broker.open_transactions()) == (2, [])
    assert broker.count("DescribeConfigs") == 2, "the driver asks once for each micro-batch, and no task does"


def test_a_partition_that_two_tasks_write_is_refused_and_nothing_of_it_is_visible(
    spark: SparkSession, broker: FakeBroker, files: Path, tmp_path: Path
) -> None:
    write_files(files, batches=1, rows=30)
    df = values_of(spark, files).selectExpr("value", "0 AS partition").repartition(2)

    with pytest.raises(Exception, match="partition"):
        run(df, broker, tmp_path / "checkpoint", **EXACTLY_ONCE)

    assert visible(broker) == Counter()
    assert broker.open_transactions() == []


def test_a_batch_whose_task_died_is_aborted_and_runs_again_as_a_whole(
    spark: SparkSession, broker: FakeBroker, files: Path, tmp_path: Path
) -> None:
    write_files(files, batches=2, rows=30)
    df = numbers(spark, files).mapInArrow(die_once(tmp_path / "died"), "value string, partition int")

    with pytest.raises(Exception, match=r"Spark ran a task of this batch again \(attempt \d\)"):
        run(df, broker, tmp_path / "checkpoint", **EXACTLY_ONCE)
    assert visible(broker) == Counter()
    run(df, broker, tmp_path / "checkpoint", **EXACTLY_ONCE)

    assert visible(broker) == Counter(range(60))


def test_a_checkpoint_that_was_rolled_back_repeats_nothing(
    spark: SparkSession, broker: FakeBroker, files: Path, tmp_path: Path
) -> None:
    write_files(files, batches=3, rows=30)
    checkpoint = tmp_path / "checkpoint"
    run(numbers(spark, files), broker, checkpoint, **EXACTLY_ONCE)
    for batch in (1, 2):
        for name in (f"{batch}", f".{batch}.crc"):
            (checkpoint / "commits" / name).unlink(missing_ok=True)

    run(numbers(spark, files), broker, checkpoint, **EXACTLY_ONCE)

    assert visible(broker) == Counter(range(90))
    assert broker.count("EndTxn") == 3


def test_a_checkpoint_that_was_rolled_back_writes_its_batches_again_once_the_marker_is_set_back(
    spark: SparkSession, broker: FakeBroker, files: Path, tmp_path: Path
) -> None:
    write_files(files, batches=1, rows=30)
    checkpoint, earlier = tmp_path / "checkpoint", tmp_path / "earlier"
    run(numbers(spark, files), broker, checkpoint, **EXACTLY_ONCE)
    shutil.copytree(checkpoint, earlier)
    for batch in (1, 2):
        write_file(files, batch, 30)
    run(numbers(spark, files), broker, checkpoint, **EXACTLY_ONCE)
    assert visible(broker) == Counter(range(90))
    shutil.rmtree(checkpoint)
    shutil.copytree(earlier, checkpoint)
    query = ["--transactional-id", EXACTLY_ONCE["transactional.id"], "--topic", "orders", "--batch", "0"]

    assert main(["spark", "reset-marker", "--bootstrap-servers", broker.bootstrap_servers, *query, "--yes"]) == 0
    run(numbers(spark, files), broker, checkpoint, **EXACTLY_ONCE)

    assert visible(broker) == Counter(range(90)) + Counter(range(30, 90))


def test_a_query_that_idles_while_its_marker_is_set_back_fails_at_its_next_batch(
    spark: SparkSession, broker: FakeBroker, files: Path, tmp_path: Path
) -> None:
    write_files(files, batches=2, rows=30)
    target = ["--bootstrap-servers", broker.bootstrap_servers, "--transactional-id", EXACTLY_ONCE["transactional.id"]]
    idle = (
        numbers(spark, files)
        .writeStream.format("aioproducer")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("topic", "orders")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .options(**EXACTLY_ONCE)
        .start()
    )
    try:
        idle.processAllAvailable()

        assert main(["spark", "reset-marker", *target, "--topic", "orders", "--batch", "0", "--yes"]) == 0
        write_file(files, 2, 30)

        with pytest.raises(Exception, match="continues at batch 2, but its commit marker was reset from batch 1"):
            idle.processAllAvailable()
    finally:
        idle.stop()
    assert visible(broker) == Counter(range(60))


def test_an_output_that_replaces_what_was_there_is_refused(
    spark: SparkSession, broker: FakeBroker, files: Path, tmp_path: Path
) -> None:
    write_files(files, batches=1, rows=1)
    counted = values_of(spark, files).groupBy("value").count().select("value")

    with pytest.raises(Exception, match="cannot be overwritten"):
        counted.writeStream.format("aioproducer").outputMode("complete").option(
            "kafka.bootstrap.servers", broker.bootstrap_servers
        ).option("topic", "orders").option(
            "checkpointLocation", str(tmp_path / "checkpoint")
        ).start().awaitTermination()
