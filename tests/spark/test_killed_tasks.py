"""Tasks of barrier stages are killed at random; Spark runs the stages again, and each row is there once."""

from __future__ import annotations

import random
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Self

import pytest

from aioproducer.record.reader import RecordBatch, read_batches
from aioproducer.spark import write_exactly_once
from aioproducer.testing.kafka import Kafka
from tests.real.open_transactions import open_transactions
from tests.spark.processes import kill, python_workers_of
from tests.spark.read_back import read_committed
from tests.spark.streams import PARTITIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_tasks_that_are_killed_at_random_make_their_stages_run_again(spark: SparkSession, kafka: Kafka) -> None:
    topic, jobs, rows = f"barrier-{uuid.uuid4().hex[:8]}", 6, 100_000
    kafka.create_topic(topic, PARTITIONS)
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    chance = random.Random(topic)
    deaths = 0

    for job in range(jobs):
        df = spark.range(job * rows, (job + 1) * rows).selectExpr("string(id) AS key", "string(id) AS value")
        with Killer(spark, lambda: bool(open_transactions(kafka, topic)), chance.choice([1, 2]), chance) as killer:
            summary = write_exactly_once(df, {**servers, "topic": topic, "transactional.id": topic, "job.id": f"{job}"})
        deaths += killer.deaths
        assert summary.rows == rows

    epochs = {batch.producer_epoch for batch in data_batches(kafka, topic)}
    assert deaths >= jobs // 2, "tasks die while they write"
    assert len(epochs) > jobs, f"each try has an epoch of its own: {sorted(epochs)} after {deaths} deaths"
    assert read_committed(kafka.bootstrap_servers, topic, PARTITIONS) == Counter(range(jobs * rows))
    assert open_transactions(kafka, topic) == []


class Killer:
    """SIGKILL for Python workers of this Spark, so many of them, at random moments at which ``is_time``."""

    def __init__(self, spark: SparkSession, is_time: Callable[[], bool], most: int, chance: random.Random) -> None:
        self.deaths = 0
        self._jvm: int = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
        self._is_time = is_time
        self._most = most
        self._chance = chance
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._kill)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _kill(self) -> None:
        while self.deaths < self._most and not self._stopping.wait(self._chance.uniform(0.01, 0.3)):
            workers = python_workers_of(self._jvm)
            if workers and self._is_time():
                kill(self._chance.choice(workers))
                self.deaths += 1


def data_batches(kafka: Kafka, topic: str) -> Iterator[RecordBatch]:
    """Every record batch in the log, committed or not."""
    for partition in kafka.admin.fetch_all(topic).values():
        for raw in partition:
            yield from (batch for batch in read_batches(raw) if not batch.is_control)
