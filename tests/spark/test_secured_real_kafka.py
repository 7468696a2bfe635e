"""The sink on real Kafka with TLS and a login: rows read back, and a password that is found nowhere but where it was put."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from aioproducer.testing.certificates import CertificateAuthority
from aioproducer.testing.kafka import KafkaCluster, KafkaUnavailable
from aioproducer.testing.kafka.security import KafkaSecurity
from tests.needs import not_here
from tests.spark import secured_writes
from tests.spark.local_spark import ROOT, need
from tests.spark.read_back import read_committed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CANARY = "canary-in-the-mine"
TOPIC = "secured"
PARTITIONS = 2

#: Python imports it at its start: drivers and workers say all that the package has to say.
TALKATIVE = "import logging\nlogging.basicConfig()\nlogging.getLogger('aioproducer').setLevel(logging.DEBUG)\n"

#: Spark says less by default.
LOG4J = """\
rootLogger.level = warn
logger.spark.name = org.apache.spark
logger.spark.level = debug
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c: %m%n%ex
"""


class Run(NamedTuple):
    """A run of the program: what it printed, and what it left."""

    reported: Mapping[str, str]
    rows: Mapping[str, Counter[int]]
    files: Mapping[str, bytes]


@pytest.fixture(scope="module", params=["4.3.1", pytest.param("3.9.2", marks=pytest.mark.soak)])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    need()
    directory = tmp_path_factory.mktemp("secured")
    authority = CertificateAuthority()
    authority.write(directory / "ca.pem")
    (directory / "log4j2.properties").write_text(LOG4J)
    (directory / "site").mkdir()
    (directory / "site" / "sitecustomize.py").write_text(TALKATIVE)
    try:
        with KafkaCluster(request.param, security=KafkaSecurity(authority, {"alice": CANARY}, ["alice"])) as kafka:
            for name in ("batch", "stream"):
                kafka.create_topic(f"{TOPIC}-{name}", PARTITIONS)
            output = run_program(kafka.bootstrap("SASL_SSL"), directory)
            rows = {
                name: read_committed(kafka.bootstrap_servers, f"{TOPIC}-{name}", PARTITIONS)
                for name in ("batch", "stream")
            }
    except KafkaUnavailable as error:
        not_here(str(error))
    left = {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    return Run(output, rows, left)


def run_program(servers: str, directory: Path) -> Mapping[str, str]:
    program = [sys.executable, "-m", secured_writes.__name__, servers, TOPIC, str(directory)]
    path = os.pathsep.join([str(directory / "site"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, secured_writes.PASSWORD: CANARY}
    with (directory / "stderr").open("w") as stderr:
        done = subprocess.run(
            program,
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            timeout=500,
            check=False,
        )
    assert done.returncode == 0, (directory / "stderr").read_text()[-3000:]
    output: dict[str, str] = json.loads(done.stdout)
    return output


@pytest.mark.parametrize("name", ["batch", "stream"])
def test_each_row_is_there_once(run: Run, name: str) -> None:
    assert run.reported[name] == ""
    assert run.rows[name] == Counter(range(secured_writes.ROWS))


@pytest.mark.parametrize("name", ["batch, wrong password", "stream, wrong password"])
def test_a_wrong_password_is_reported(run: Run, name: str) -> None:
    assert "SCRAM-SHA-512 login failed: broker 127.0.0.1:" in run.reported[name]
    assert "refused the credentials" in run.reported[name]


def test_the_password_is_found_nowhere(run: Run) -> None:
    places = {**{f"printed: {what}": text.encode() for what, text in run.reported.items()}, **run.files}
    assert [place for place, content in places.items() if CANARY.encode() in content] == []


def test_it_was_looked_for_where_it_could_have_been(run: Run) -> None:
    events = b"".join(content for name, content in run.files.items() if name.startswith("events/"))
    assert events.count(b"SparkListenerSQLExecutionStart") >= 3
    assert b"QueryStartedEvent" in events
    assert b"AppendData" in events
    assert "WriteToMicroBatchDataSource aioproducer" in run.reported["explain"]
    assert "AppendData" in run.reported["plans"]
    assert b"DEBUG:aioproducer" in run.files["stderr"]
    assert b"DEBUG org.apache.spark." in run.files["stderr"]
    assert any(name.startswith("report") for name in run.files)
    assert any(name.startswith("checkpoint/") for name in run.files)
