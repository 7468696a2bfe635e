"""A cluster loses executors, or starts twins of slow tasks, in the middle of a batch: each row is there once."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pytest

from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.plugin import KafkaFactory
from tests.real.open_transactions import open_transactions
from tests.spark import held_query
from tests.spark.held_query import HELD_BATCH, Attempt, TaskFiles
from tests.spark.load_program import kill_when_committed, result_of
from tests.spark.local_spark import ROOT
from tests.spark.read_back import read_committed
from tests.spark.standalone import StandaloneCluster
from tests.spark.streams import PARTITIONS, write_files

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

BATCH = 60
BATCHES = 3

SPECULATION: Final = (
    "spark.speculation=true",
    "spark.speculation.interval=100ms",
    "spark.speculation.quantile=0.5",
    "spark.speculation.multiplier=1.1",
    "spark.speculation.minTaskRuntime=100ms",
)

#: The busiest machine has the time that it needs.
PATIENCE: Final = 300.0


@pytest.fixture(params=["4.3.1", pytest.param("3.9.2", marks=pytest.mark.soak)])
def kafka(request: pytest.FixtureRequest, kafka_factory: KafkaFactory) -> KafkaCluster:
    """One broker."""
    return kafka_factory(request.param)


class HeldQuery:
    """The program that runs the query on the cluster, in a block that ends it."""

    def __init__(self, *arguments: str, log: Path) -> None:
        self._arguments = arguments
        self._log = log

    def __enter__(self) -> Self:
        with self._log.open("w") as log:
            command = [sys.executable, "-m", held_query.__name__, *self._arguments]
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def reported(self) -> str:
        """Its output, with the error of the query at the end."""
        return self._log.read_text()

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait for that while the query runs."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert self.process.poll() is None, f"The query ended too soon: {self.reported()}"
            assert time.monotonic() < deadline, f"It did not come to that: {self.reported()}"
            time.sleep(0.05)

    def ends(self) -> bool:
        """Wait for its end; returns whether everything was written."""
        return self.process.wait(PATIENCE) == 0


class OnCluster:
    """A topic, and the query that writes files to it on the cluster, again and again on one checkpoint."""

    def __init__(self, cluster: StandaloneCluster, kafka: KafkaCluster, directory: Path) -> None:
        self.kafka = kafka
        self.topic = f"standalone-{uuid.uuid4().hex[:8]}"
        self.reported = TaskFiles(directory)
        self._cluster = cluster
        self._directory = directory
        kafka.create_topic(self.topic, PARTITIONS)
        write_files(directory / "files", BATCHES, BATCH)

    def query(self, *settings: str) -> HeldQuery:
        """The query, to be started by ``with``; executors of an earlier one are not in its way."""
        self._cluster.wait_executors(0)
        arguments = (self._cluster.master, self.kafka.bootstrap_servers, self.topic, str(self._directory))
        return HeldQuery(*arguments, *settings, log=self._directory / "log")

    def visible(self) -> Counter[int]:
        """The records that a read_committed consumer gets now."""
        return read_committed(self.kafka.bootstrap_servers, self.topic, PARTITIONS)

    def open(self) -> list[str]:
        """Whether its transaction is open."""
        return open_transactions(self.kafka, self.topic)

    def held_rows(self) -> int:
        """The number of rows of the held batch in the log, committed or not, after one marker in each partition."""
        ends = self.kafka.admin.list_offsets(self.topic)
        return sum(end for _, end in ends.values()) - HELD_BATCH * (BATCH + PARTITIONS)


@pytest.fixture
def on(cluster: StandaloneCluster, kafka: KafkaCluster, tmp_path: Path) -> OnCluster:
    return OnCluster(cluster, kafka, tmp_path)


def rows(batches: int) -> Counter[int]:
    return Counter(range(batches * BATCH))


def test_an_executor_that_dies_with_the_shuffled_rows_makes_the_query_run_the_batch_again(
    on: OnCluster, cluster: StandaloneCluster
) -> None:
    on.reported.hold(0, 1)

    with on.query() as query:
        query.wait(lambda: {each.partition for each in on.reported.attempts()} == {0, 1} and on.held_rows() >= 6)
        host = on.reported.mapped_on()
        [lost] = [each for each in on.reported.attempts() if each.host == host]
        cluster.kill_executor(host)
        # The rows that it had shuffled are gone with it, so Spark submits the stage again, where it counts from 0 again.
        query.wait(lambda: len(firsts(on.reported.attempts(), lost.partition)) == 2)
        on.reported.release()
        is_done = query.ends()
    assert (is_done, on.visible()) == (False, rows(HELD_BATCH)), query.reported()
    # One attempt meets the rows of the other; whichever fails first ends the transaction for the other.
    causes = "an executor was lost, and Spark ran its tasks again|another attempt of one of its tasks failed"
    assert re.search(causes, query.reported())
    with on.query() as query:
        assert query.ends(), query.reported()

    assert on.visible() == rows(BATCHES)
    assert on.open() == []


def firsts(attempts: list[Attempt], partition: int) -> list[Attempt]:
    """The processes that claim to be the first attempt at that task."""
    return [each for each in attempts if (each.partition, each.number) == (partition, 0)]


def test_the_twin_of_a_slow_task_is_refused_and_the_slow_task_goes_on(on: OnCluster) -> None:
    on.reported.hold(0)

    with on.query(*SPECULATION) as query:
        query.wait(lambda: any(each.number > 0 for each in on.reported.attempts()))
        on.reported.release()
        assert query.ends(), query.reported()

    assert on.visible() == rows(BATCHES)
    assert on.open() == []


@pytest.mark.soak
def test_a_twin_that_may_not_fail_stops_the_query_and_leaves_no_transaction_open(on: OnCluster) -> None:
    on.reported.hold(0)

    with on.query(*SPECULATION, "spark.task.maxFailures=1") as query:
        assert not query.ends()
        assert "spark.speculation=false" in query.reported()
    assert on.open() == []
    assert on.visible() in (rows(0), rows(HELD_BATCH))  # on a busy machine a task of the first batch may be slow enough
    on.reported.release()
    with on.query() as query:
        assert query.ends(), query.reported()

    assert on.visible() == rows(BATCHES)
    assert on.open() == []


@pytest.mark.soak
def test_a_load_on_the_cluster_that_is_killed_twice_brings_each_row_once(
    cluster: StandaloneCluster, kafka: KafkaCluster, tmp_path: Path
) -> None:
    topic, files, count = f"loaded-{uuid.uuid4().hex[:8]}", 6, 2000
    kafka.create_topic(topic, PARTITIONS)
    write_csv(tmp_path / "files", files, count)
    what = [str(tmp_path / "files"), "--topic", topic, "--bootstrap-servers", kafka.bootstrap_servers]
    how = ["--format", "csv", "--key", "who", "--json", "--conf", "spark.driver.extraJavaOptions=-XX:+UseSerialGC"]
    on_cluster = ["--master", cluster.master, "--conf", "spark.driver.host=127.0.0.1"]
    once = ["--exactly-once", "--id", topic, "--checkpoint", str(tmp_path / "load")]
    load = ["load", *what, *how, *on_cluster, "--conf", "spark.executor.memory=512m", *once]

    for number in (0, 2):
        cluster.wait_executors(0)
        kill_when_committed(number, tmp_path / "load", load)
    finished = result_of(*load)
    again = result_of(*load)
    verdict = result_of("audit", "--expected", *what, *how, "--master", "local[2]")

    assert finished["resumed"]
    assert 0 < finished["rows"] < files * count
    assert (again["rows"], again["transactions"]) == (0, 0)
    assert verdict["verdict"] == "clean", verdict
    assert (verdict["expected"], verdict["read"]) == (files * count, files * count)
    assert not any(verdict["faults"].values())
    assert open_transactions(kafka, topic) == []


def write_csv(directory: Path, files: int, rows: int) -> None:
    directory.mkdir()
    for number in range(files):
        lines = [f"{row},k{row % 50},text {row}" for row in range(number * rows, (number + 1) * rows)]
        file = directory / f"{number}.csv"
        file.write_text("\n".join(["id,who,text", *lines, ""]))
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
