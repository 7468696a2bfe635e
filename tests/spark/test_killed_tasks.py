"""Tasks of barrier stages are killed at random; Spark runs the stages again, and each row is there once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from aioproducer.record.reader import RecordBatch, read_batches
from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.plugin import KafkaFactory
from tests.real.open_transactions import open_transactions
from tests.spark import barrier_jobs
from tests.spark.barrier_jobs import ROWS, write_job
from tests.spark.killer import Killer
from tests.spark.local_spark import ROOT
from tests.spark.processes import python_workers_of
from tests.spark.read_back import read_committed
from tests.spark.standalone import StandaloneCluster
from tests.spark.streams import PARTITIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

JOBS: Final = 6


@pytest.fixture(params=["4.3.1", "3.9.2"])
def kafka(request: pytest.FixtureRequest, kafka_factory: KafkaFactory) -> KafkaCluster:
    """One broker."""
    return kafka_factory(request.param)


def test_tasks_that_are_killed_at_random_make_their_stages_run_again(
    spark: SparkSession, kafka: KafkaCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = new_topic(kafka)
    jvm: int = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]

    reported = run_under_fire(
        kafka, topic, lambda: python_workers_of(jvm), lambda job: write_job(spark, kafka.bootstrap_servers, topic, job)
    )

    with capsys.disabled():
        print(f"\n{reported}")  # noqa: T201 - what a soak has shown is worth reporting


def test_tasks_and_executors_of_a_cluster_that_are_killed_at_random_make_their_stages_run_again(
    cluster: StandaloneCluster, kafka: KafkaCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, log = new_topic(kafka), tmp_path / "log"

    def victims() -> Sequence[int]:
        executors = [each.pid for each in cluster.executors()]
        return [*executors, *(worker for pid in executors for worker in python_workers_of(pid))]

    cluster.wait_executors(0)
    program = [sys.executable, "-m", barrier_jobs.__name__, cluster.master, kafka.bootstrap_servers, topic, str(JOBS)]
    with (
        log.open("w") as stderr,
        subprocess.Popen(program, cwd=ROOT, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True) as process,
    ):
        output = process.stdout
        assert output is not None
        try:
            reported = run_under_fire(kafka, topic, victims, lambda _: int(output.readline() or 0))
            assert process.wait(60) == 0, log.read_text()
        except AssertionError:
            sys.stderr.write(log.read_text()[-5000:])
            raise
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)

    with capsys.disabled():
        print(f"\n{reported}")  # noqa: T201 - likewise


def new_topic(kafka: KafkaCluster) -> str:
    topic = f"barrier-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, PARTITIONS)
    return topic


def run_under_fire(
    kafka: KafkaCluster, topic: str, victims: Callable[[], Sequence[int]], run_job: Callable[[int], int]
) -> str:
    """Run the jobs while one or two of the victims are killed in each; returns what came of it."""
    chance = random.Random(topic)
    deaths = 0

    for job in range(JOBS):
        with Killer(victims, lambda: bool(open_transactions(kafka, topic)), chance.choice([1, 2]), chance) as killer:
            rows = run_job(job)
        deaths += killer.deaths
        assert rows == ROWS

    epochs = {batch.producer_epoch for batch in data_batches(kafka, topic)}
    reported = f"{topic} on Kafka {kafka.version}: {deaths} deaths in {JOBS} jobs, {len(epochs)} epochs"
    assert deaths >= JOBS // 2, f"processes die while tasks write; {reported}"
    assert len(epochs) > JOBS, f"each try has its own epoch; {reported}"
    assert read_committed(kafka.bootstrap_servers, topic, PARTITIONS) == Counter(range(JOBS * ROWS)), reported
    assert open_transactions(kafka, topic) == []
    return reported


def data_batches(kafka: KafkaCluster, topic: str) -> Iterator[RecordBatch]:
    """Every record batch in the log, committed or not."""
    for partition in kafka.admin.fetch_all(topic).values():
        for raw in partition:
            yield from (batch for batch in read_batches(raw) if not batch.is_control)
