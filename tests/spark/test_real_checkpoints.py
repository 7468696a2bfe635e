"""Checkpoints that are rolled back, deleted or copied, and files that change, on real Kafka: no row is lost or doubled.

Each ends with all rows there once, or with an error before anything is left out.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.plugin import KafkaFactory
from tests.spark.read_back import read_committed
from tests.spark.streams import PARTITIONS, write_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROWS = 10


@pytest.fixture(params=["4.3.1", pytest.param("3.9.2", marks=pytest.mark.soak)])
def kafka(request: pytest.FixtureRequest, kafka_factory: KafkaFactory) -> KafkaCluster:
    """One broker."""
    return kafka_factory(request.param)


class Stream:
    """A query that writes the files of a directory exactly once, a batch for each file unless the options say otherwise."""

    def __init__(self, spark: SparkSession, kafka: KafkaCluster, directory: Path) -> None:
        self.topic = f"days-{uuid.uuid4().hex[:8]}"
        self.checkpoint = directory / "checkpoint"
        self._spark = spark
        self._kafka = kafka
        self._directory = directory
        self._files = directory / "files"
        self._files.mkdir()
        kafka.create_topic(self.topic, PARTITIONS)

    def write_days(self, *days: int) -> None:
        for day in days:
            write_file(self._files, day, ROWS)

    def change_day(self, day: int) -> None:
        file = self._files / f"{day:04}.txt"
        file.write_text(file.read_text().replace("1\n", "7\n", 1))

    def run(self, options: Mapping[str, str] | None = None, *, files_at_once: int = 1) -> None:
        """Write all files that are there; raises what the query fails with."""
        self.start(options or {}, files_at_once, availableNow=True).awaitTermination()

    def start(
        self,
        options: Mapping[str, str],
        files_at_once: int = 1,
        through: Callable[[Iterable[Any]], Iterator[Any]] | None = None,
        **trigger: Any,
    ) -> StreamingQuery:
        """Start the query; rows go ``through`` a function in the tasks that write them."""
        given = {"delivery.guarantee": "exactly-once", "transactional.id": self.topic, **options}
        days = self._spark.readStream.option("maxFilesPerTrigger", files_at_once).text(str(self._files))
        rows = days.selectExpr("value", f"cast(int(value) % {PARTITIONS} AS int) AS partition")
        divided = rows.repartition(2, "partition")
        return (
            (divided if through is None else divided.mapInArrow(through, "value string, partition int"))
            .writeStream.format("aioproducer")
            .option("kafka.bootstrap.servers", self._kafka.bootstrap_servers)
            .option("topic", self.topic)
            .option("checkpointLocation", str(self.checkpoint))
            .options(**given)
            .trigger(**trigger)
            .start()
        )

    def copy_checkpoint(self, name: str) -> Path:
        return Path(shutil.copytree(self.checkpoint, self._directory / name))

    def restore(self, copy: Path) -> None:
        shutil.rmtree(self.checkpoint)
        shutil.copytree(copy, self.checkpoint)

    def forget_last_commit(self) -> None:
        """As if the driver had died after the commit, before Spark noted it."""
        last = max(self.checkpoint.glob("commits/[0-9]*"), key=lambda each: int(each.name))
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink(missing_ok=True)

    def assert_days(self, *days: int) -> None:
        """Exactly the rows of these days are there, each once."""
        expected = Counter(row for day in days for row in range(day * ROWS, (day + 1) * ROWS))
        assert read_committed(self._kafka.bootstrap_servers, self.topic, PARTITIONS) == expected


@pytest.fixture
def stream(spark: SparkSession, kafka: KafkaCluster, tmp_path: Path) -> Stream:
    return Stream(spark, kafka, tmp_path)


@pytest.mark.parametrize("back", [1, 2, 10])
def test_a_checkpoint_that_is_rolled_back_gives_new_rows_old_numbers_and_is_refused(stream: Stream, back: int) -> None:
    stream.write_days(0)
    stream.run()
    copy = stream.copy_checkpoint("monday")
    stream.write_days(*range(1, back + 1))
    stream.run()
    newest = stream.copy_checkpoint("newest")
    stream.restore(copy)
    stream.write_days(back + 1, back + 2)

    with pytest.raises(Exception, match=r"CommitMarkerMismatch: Batch 1 of query .* was committed before"):
        stream.run(files_at_once=100)  # Spark puts all that is new to it into batch 1
    stream.assert_days(*range(back + 1))

    stream.restore(newest)
    stream.run()
    stream.assert_days(*range(back + 3))


@pytest.mark.parametrize("back", [1, 10])
def test_a_checkpoint_that_is_rolled_back_and_cuts_the_same_batches_goes_on(stream: Stream, back: int) -> None:
    stream.write_days(0)
    stream.run()
    copy = stream.copy_checkpoint("monday")
    stream.write_days(*range(1, back + 1))
    stream.run()
    stream.restore(copy)
    stream.write_days(back + 1, back + 2)

    stream.run()

    stream.assert_days(*range(back + 3))


def test_a_checkpoint_that_is_deleted_is_refused_until_it_is_restored(stream: Stream) -> None:
    stream.write_days(0, 1)
    stream.run()
    copy = stream.copy_checkpoint("copy")
    shutil.rmtree(stream.checkpoint)
    stream.write_days(2)

    with pytest.raises(Exception, match=r"CommitMarkerMissing: .*If the checkpoint was deleted"):
        stream.run()
    stream.assert_days(0, 1)

    stream.restore(copy)
    stream.run()
    stream.assert_days(0, 1, 2)


def test_a_checkpoint_that_is_copied_to_a_second_query_is_refused_there(
    stream: Stream, spark: SparkSession, kafka: KafkaCluster, tmp_path: Path
) -> None:
    stream.write_days(0, 1)
    stream.run()
    copy = stream.copy_checkpoint("copy")
    stream.write_days(2)
    stream.run()
    original = stream.checkpoint

    stream.checkpoint = copy
    stream.write_days(3)
    with pytest.raises(Exception, match="CommitMarkerMismatch"):  # under the same name: it has other rows in batch 2
        stream.run(files_at_once=100)
    with pytest.raises(Exception, match=r"CommitMarkerMissing: .* continues at batch 2, .* is gone"):
        stream.run({"transactional.id": f"{stream.topic}-second"})
    stream.assert_days(0, 1, 2)

    stream.checkpoint = original
    stream.run()
    stream.assert_days(0, 1, 2, 3)


def test_a_file_that_changes_under_the_number_of_its_batch_is_refused(stream: Stream) -> None:
    stream.write_days(0, 1)
    stream.run()
    stream.forget_last_commit()
    stream.change_day(1)
    stream.write_days(2)

    with pytest.raises(Exception, match=r"CommitMarkerMismatch: Batch 1 .*the source cannot be replayed exactly"):
        stream.run()
    stream.assert_days(0, 1)

    stream.run({"commit.marker.mismatch": "skip"})  # what was committed is right
    stream.assert_days(0, 1, 2)


def test_a_batch_whose_driver_died_before_spark_noted_it_is_recognised(stream: Stream) -> None:
    stream.write_days(0, 1)
    stream.run()
    stream.forget_last_commit()
    stream.write_days(2)

    stream.run()

    stream.assert_days(0, 1, 2)


def held(flag: Path) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Rows stop in the middle for as long as the file is there; another one says that they have."""

    def through(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            yield from [batch.slice(row, 1) for row in range(batch.num_rows)]
            flag.with_name("reached").touch()
            while flag.exists():
                time.sleep(0.05)

    return through


def test_a_query_that_is_stopped_in_the_middle_of_a_batch_writes_it_when_it_is_started_again(
    stream: Stream, tmp_path: Path
) -> None:
    stream.write_days(0)
    stream.run()
    stream.write_days(1, 2)
    flag = tmp_path / "held"
    flag.touch()
    query = stream.start({}, through=held(flag), processingTime="0 seconds")
    deadline = time.monotonic() + 120
    while not flag.with_name("reached").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)

    query.stop()

    assert query.exception() is None
    stream.assert_days(0)
    flag.unlink()
    stream.run()
    stream.assert_days(0, 1, 2)


@pytest.mark.parametrize("trigger", [{"once": True}, {"processingTime": "1 second"}])
def test_every_trigger_writes_each_batch_once(stream: Stream, trigger: dict[str, Any]) -> None:
    stream.write_days(0, 1)

    for _ in range(2):  # in the second run there is nothing new
        query = stream.start({}, files_at_once=2, **trigger)
        query.processAllAvailable()
        query.stop()

    stream.assert_days(0, 1)


def test_two_queries_with_one_transactional_id_do_not_write_over_each_other(stream: Stream, tmp_path: Path) -> None:
    stream.write_days(0, 1)
    stream.run()
    stream.checkpoint = tmp_path / "second"

    with pytest.raises(Exception, match=r"If both queries should run, give each its own transactional\.id"):
        stream.run()

    stream.assert_days(0, 1)


@pytest.mark.soak
def test_a_marker_that_expired_stops_the_query(
    spark: SparkSession, kafka_factory: KafkaFactory, tmp_path: Path
) -> None:
    soon = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"}
    stream = Stream(spark, kafka_factory("4.3.1", properties=soon), tmp_path)
    stream.write_days(0, 1)
    stream.run()
    stream.write_days(2)
    time.sleep(75)

    with pytest.raises(Exception, match=r"CommitMarkerMissing: .* continues at batch 2, .* is gone"):
        stream.run()
    stream.assert_days(0, 1)
    stream.run({"commit.marker.missing": "trust-checkpoint"})
    stream.assert_days(0, 1, 2)
