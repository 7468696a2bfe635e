"""The driver is killed at random, again and again, during a read: the reader never has a part of a batch for good."""

from __future__ import annotations

import math
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.plugin import KafkaFactory
from tests.spark import killed_query
from tests.spark.committed_batches import CommittedBatches
from tests.spark.local_spark import ROOT, need
from tests.spark.read_back import read_committed
from tests.spark.streams import PARTITIONS, write_file, write_files

BATCH = 30

#: For how long drivers are killed.
MINUTES = float(os.environ.get("AIOPRODUCER_KILL_MINUTES", "10"))

#: How many seconds after its first batch a driver is killed; one in four has no time for that, and counts from its start.
LIFE = (5.0, 20.0)
HASTE = 0.25

#: New rows come so often, in a file that becomes a batch.
PAUSE = 2.0

#: A batch is committed or it is not: brokers write its markers in this time, however dead the driver is.
AT_ONCE = 5.0


@pytest.fixture(params=["4.3.1", "3.9.2"])
def kafka(request: pytest.FixtureRequest, kafka_factory: KafkaFactory) -> KafkaCluster:
    """One broker."""
    need()
    return kafka_factory(request.param)


class Driver:
    """The program that runs the query, in its own process group."""

    def __init__(self, kafka: KafkaCluster, topic: str, directory: Path) -> None:
        self._commits = directory / "checkpoint" / "commits"
        self._batches = self._count()
        command = [sys.executable, "-m", killed_query.__name__, kafka.bootstrap_servers, topic, str(directory)]
        with (directory / "stderr").open("a") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)

    @property
    def is_at_work(self) -> bool:
        """Whether it has noted a batch as committed."""
        return self._count() > self._batches

    @property
    def has_ended(self) -> bool:
        """Whether it has ended by itself, or failed."""
        return self.process.poll() is not None

    def kill(self) -> None:
        """SIGKILL for the program and its JVM."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def _count(self) -> int:
        return sum(each.name.isdecimal() for each in self._commits.iterdir()) if self._commits.exists() else 0


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_drivers_that_are_killed_at_random_never_show_a_part_of_a_batch(
    kafka: KafkaCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = f"random-{tmp_path.name}"[:200]
    seed = random.SystemRandom().randrange(1 << 32)
    chance = random.Random(seed)
    kafka.create_topic(topic, PARTITIONS)
    write_files(tmp_path / "files", batches=1, rows=BATCH)
    files, kills, codes = 1, 0, Counter[int]()
    began = time.monotonic()

    with CommittedBatches(kafka.bootstrap_servers, topic, PARTITIONS, BATCH) as seen:
        while time.monotonic() < began + 60 * MINUTES:
            driver, life, end = Driver(kafka, topic, tmp_path), chance.uniform(*LIFE), math.inf
            is_hasty = chance.random() < HASTE
            try:
                while not driver.has_ended and time.monotonic() < end:
                    seen.look()
                    if end == math.inf and (is_hasty or driver.is_at_work):
                        end = time.monotonic() + life
                    if time.monotonic() > began + files * PAUSE:
                        write_file(tmp_path / "files", files, BATCH)
                        files += 1
                if driver.has_ended:
                    codes[driver.process.returncode] += 1
                else:
                    kills += 1
            finally:
                driver.kill()
        under_fire = seen.complete
        last = Driver(kafka, topic, tmp_path)
        try:
            while not last.has_ended:
                seen.look()
        finally:
            last.kill()
        seen.look()

    reported = (
        f"seed {seed}: {kills} drivers killed, ended by themselves {dict(codes)}; {under_fire} of {files} batches came "
        f"under fire; {seen.rounds} looks, the newest batch was there in part for {seen.longest_part:.3f} s at most"
    )
    with capsys.disabled():
        print(f"\n{reported}")  # noqa: T201 - what a soak has shown is worth reporting
    assert last.process.returncode == 0, (tmp_path / "stderr").read_text()[-3000:]
    assert seen.seen == Counter(range(files * BATCH)), reported
    assert read_committed(kafka.bootstrap_servers, topic, PARTITIONS) == Counter(range(files * BATCH)), reported
    assert seen.longest_part < AT_ONCE, reported
    assert set(codes) <= {0}, reported
