"""The verb audit as the shell sees it: what it writes, and its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from aioproducer import SyncProducer
from aioproducer.cli.main import main
from aioproducer.testing import FakeBroker
from aioproducer.testing.broker.secured import SecuredBroker
from tests.cli.client_files import profiles_for, properties_for
from tests.cli.dying_spark import run_until_java_dies
from tests.conftest import opened
from tests.spark.kafka_source import kafka_source_jars

#: Starts sooner, and is fast enough for a hundred records.
JAVA = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.mark.usefixtures("java_that_only_names_its_version")
def test_a_topic_that_is_not_there_is_reported_before_spark_is_started(
    broker: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", "--topic", "nothing", "--bootstrap-servers", broker.bootstrap_servers]) == 2

    output = capsys.readouterr()
    assert output.err.endswith("aioproducer audit: There is no topic 'nothing' on this cluster.\n")
    assert "starting Spark" not in output.out


@pytest.mark.usefixtures("java_that_only_names_its_version")
@pytest.mark.parametrize("where", ["file", "profile"])
def test_a_file_or_a_profile_gives_its_clients_cluster_tls_and_login(
    where: str,
    secured_broker: SecuredBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    profiles_for(secured_broker, tmp_path)
    source = ["--profile", "secured"] if where == "profile" else ["-F", str(properties_for(secured_broker, tmp_path))]

    assert main(["audit", "--topic", "nothing", *source]) == 2
    assert capsys.readouterr().err.endswith("aioproducer audit: There is no topic 'nothing' on this cluster.\n")

    wrong = ["-X", "sasl.password=wrong"]  # -X overrides both, by librdkafka's names
    assert main(["audit", "--topic", "nothing", *source, *wrong]) == 2
    assert "uthentication failed" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_the_verdict_is_reported_by_exit_code_file_page_and_story(broker: FakeBroker, tmp_path: Path) -> None:
    expected = tmp_path / "rows.jsonl"
    expected.write_text("".join(f'{{"id":{number},"who":"k{number % 3}"}}\n' for number in range(100)))
    async with opened(broker) as producer:
        for number in range(99):
            await producer.enqueue("orders", f'{{"id":{number},"who":"k{number % 3}"}}', key=f"k{number % 3}")
    out, report = tmp_path / "verdict.json", tmp_path / "report.html"
    options = options_for(broker)
    files = ["--expected", str(expected), "--key", "who", "--out", str(out), "--report", str(report)]

    bad = audit(*options, *files)
    good = audit(*options, "--sequence", "json:id", "--json")
    full = audit(*options, "--sequence", "json:id", "--out", "/dev/full")

    assert (bad.returncode, good.returncode, full.returncode) == (1, 0, 2), (bad, good, full)
    assert "VERDICT: CLEAN" in full.stdout
    assert full.stderr.endswith(
        "aioproducer audit: --out /dev/full: could not write the file: [Errno 28] No space left on device.\n"
    )
    assert "VERDICT: FAULTS - 100 records expected, 99 read: 1 lost." in bad.stdout
    assert json.loads(out.read_text())["faults"]["lost"] == 1
    assert "FAULTS FOUND" in report.read_text()
    assert json.loads(good.stdout)["verdict"] == "clean"


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_spark_s_own_source_reads_where_its_jar_is_and_else_it_is_reported_how_to_bring_it(
    broker: FakeBroker,
) -> None:
    async with opened(broker) as producer:
        for number in range(100):
            await producer.enqueue("orders", f'{{"id":{number}}}', key=f"k{number % 3}")
    options = [*options_for(broker), "--reader", "spark", "--sequence", "json:id", "--json"]

    without = audit(*options)
    reported = audit(*options, "--conf", f"spark.jars={','.join(kafka_source_jars())}")

    assert without.returncode == 2
    assert "aioproducer audit: Spark has no Kafka source here" in without.stderr
    assert (
        f"--conf spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:{version('pyspark')}" in without.stderr
    )
    assert reported.returncode == 0, reported
    verdict = json.loads(reported.stdout)
    assert (verdict["verdict"], verdict["reader"], verdict["read"]) == ("clean", "spark", 100)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (["--driver-memory", "1x"], ""),
        (["--master", "bogus"], "bogus"),
        (["--master", "spark://127.0.0.1:1"], "No master answered at spark://127.0.0.1:1."),
        (["--conf", "spark.memory.fraction=a"], ""),
    ],
)
async def test_without_a_startable_spark_a_sentence_replaces_the_verdict(
    wrong: list[str], why: str, broker: FakeBroker
) -> None:
    reported = audit(*options_for(broker), "--sequence", "value", *wrong)

    assert reported.returncode == 2, reported
    assert "aioproducer audit: Spark could not be started" in reported.stderr
    assert why in reported.stderr
    assert "Traceback" not in reported.stderr


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_death_of_spark_is_reported_in_a_sentence(broker: FakeBroker) -> None:
    with SyncProducer(broker.bootstrap_servers) as producer:
        producer.send("orders", "0")
    command = [sys.executable, "-m", "aioproducer", "audit", *options_for(broker), "--sequence", "value"]

    done = run_until_java_dies(command, broker, "Fetch")

    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1].startswith(
        "aioproducer audit: Spark's Java process ended before its work was done"
    )
    assert "Traceback" not in done.stderr


def options_for(broker: FakeBroker) -> list[str]:
    target = ["--topic", "orders", "--bootstrap-servers", broker.bootstrap_servers]
    return [*target, "--master", "local[2]", "--conf", JAVA]


def audit(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "aioproducer", "audit", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)
