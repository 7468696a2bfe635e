"""The driver is killed at every point where it hurts, and the query started again: each row is there once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Collection
from pathlib import Path

import pytest

from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.plugin import KafkaFactory
from tests.spark import killed_query
from tests.spark.local_spark import ROOT, need
from tests.spark.read_back import read_committed
from tests.spark.streams import PARTITIONS, write_files

BATCH = 30

#: How a program ends whose driver is killed: it follows its JVM.
KILLED = -signal.SIGKILL


@pytest.fixture(params=["4.3.1", *(pytest.param(each, marks=pytest.mark.soak) for each in ("4.3.1 TV1", "3.9.2"))])
def kafka(request: pytest.FixtureRequest, kafka_factory: KafkaFactory) -> KafkaCluster:
    """One broker; TV1 stands for transaction.version 1."""
    need()
    version, _, older = request.param.partition(" ")
    return kafka_factory(version, features={"transaction.version": 1} if older else None)


class Runs:
    """One query, run again and again on the same checkpoint."""

    def __init__(self, kafka: KafkaCluster, topic: str, directory: Path) -> None:
        self.kafka = kafka
        self.topic = topic
        self.directory = directory

    def start(self, *kill: str) -> int:
        """Run it; returns its exit code."""
        program = [sys.executable, "-m", killed_query.__name__]
        command = [*program, self.kafka.bootstrap_servers, self.topic, str(self.directory), *kill]
        log = self.directory / "stderr"
        with log.open("w") as stderr:  # a pipe would be held open by any process that outlives the program
            process = subprocess.Popen(command, cwd=ROOT, stdout=stderr, stderr=stderr, start_new_session=True)
        try:
            code = process.wait(500)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self.reported = log.read_text()[-3000:]
        return code

    def visible(self) -> Counter[int]:
        """The records that a read_committed consumer gets now."""
        return read_committed(self.kafka.bootstrap_servers, self.topic, PARTITIONS)


def run_killed(
    kafka: KafkaCluster,
    directory: Path,
    topic: str,
    batches: range,
    last: int,
    points: Collection[str] = killed_query.POINTS,
) -> None:
    kafka.create_topic(topic, PARTITIONS)
    write_files(directory / "files", batches=last + 1, rows=BATCH)
    runs = Runs(kafka, topic, directory)
    for batch in batches:
        for point in points:
            if point == "after EndTxn":
                continue  # it ends this batch, so it comes last
            assert runs.start(point, str(batch)) == KILLED, runs.reported
            assert not (directory / "jvm.pid").exists(), f"{point} was not reached: {runs.reported}"
            assert runs.visible() == Counter(range(batch * BATCH)), point
        assert runs.start("after EndTxn", str(batch)) == KILLED, runs.reported
        assert runs.visible() == Counter(range((batch + 1) * BATCH))
    assert runs.start() == 0, runs.reported

    assert runs.visible() == Counter(range((last + 1) * BATCH))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_driver_that_is_killed_around_its_commit_loses_and_repeats_nothing(
    kafka: KafkaCluster, tmp_path: Path
) -> None:
    points = ("mid-write", "before EndTxn", "after EndTxn")
    run_killed(kafka, tmp_path, f"killed-{tmp_path.name}"[:200], range(1, 2), last=2, points=points)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_driver_that_is_killed_anywhere_in_three_batches_loses_and_repeats_nothing(
    kafka: KafkaCluster, tmp_path: Path
) -> None:
    run_killed(kafka, tmp_path, f"soaked-{tmp_path.name}"[:200], range(3), last=3)
