"""The command ``aioproducer load`` and its Spark, which dies, or is interrupted; what it loads is tested beside the sink."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aioproducer.cli.main import main
from aioproducer.testing import FakeBroker
from aioproducer.testing.broker.secured import SecuredBroker
from tests.cli.client_files import profiles_for, properties_for
from tests.cli.dying_spark import run_until_java_dies
from tests.spark.local_spark import need
from tests.spark.processes import java_of, kill

AIOPRODUCER = (sys.executable, "-m", "aioproducer")


def load_of(broker: FakeBroker, directory: Path) -> list[str]:
    """The arguments of ``aioproducer`` to load a file of two lines into the topic ``orders``."""
    lines = directory / "lines.txt"
    lines.write_text("one\ntwo\n")
    what = [str(lines), "--format", "text", "--value-format", "raw", "--topic", "orders"]
    return ["load", *what, "--bootstrap-servers", broker.bootstrap_servers]


def test_a_topic_that_is_not_there_is_reported_before_spark_is_started_and_is_not_made(
    broker: FakeBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    need()
    options = ["--topic", "nothing", "-X", "unknown.topic.timeout.ms=500"]

    assert main([*load_of(broker, tmp_path), *options]) == 2

    output = capsys.readouterr()
    assert output.err.endswith(
        f"aioproducer load: There is no topic 'nothing' at {broker.bootstrap_servers}. Create it, or choose another one "
        "with --topic.\n"
    )
    assert "starting Spark" not in output.out


def test_a_file_gives_it_cluster_tls_and_login_and_x_overrides_it(
    secured_broker: SecuredBroker, broker: FakeBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    need()
    shape = load_of(broker, tmp_path)[:-2]
    serializer = "value.serializer=org.apache.kafka.common.serialization.StringSerializer"
    file = properties_for(secured_broker, tmp_path, "unknown.topic.timeout.ms=500", serializer)
    login = ["-X", "sasl.username=alice", "-X", "sasl.password=wrong"]

    assert main([*shape, "-F", str(file), "--topic", "nothing"]) == 2
    assert f"There is no topic 'nothing' at {secured_broker.bootstrap_servers}." in capsys.readouterr().err

    assert main([*shape, "-F", str(file), "--topic", "nothing", *login]) == 2
    assert "invalid credentials with SASL mechanism SCRAM-SHA-256.\n" in capsys.readouterr().err


def test_so_is_a_cluster_that_does_not_answer(
    broker: FakeBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    need()
    nowhere = ["--bootstrap-servers", "127.0.0.1:1", "-X", "max.block.ms=500"]

    assert main([*load_of(broker, tmp_path), *nowhere]) == 2

    output = capsys.readouterr()
    assert "no broker is connected (bootstrap servers 127.0.0.1:1)" in output.err
    assert output.err.endswith("Is --bootstrap-servers right, and is Kafka running there?\n")
    assert "starting Spark" not in output.out


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_profile_and_a_file_serve_a_load_and_the_audit_of_it(secured_broker: SecuredBroker, tmp_path: Path) -> None:
    need()
    secured_broker.create_topic("orders", 2)
    profiles_for(secured_broker, tmp_path)
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"{number}\n" for number in range(100)))
    shape = [str(lines), "--format", "text", "--value-format", "raw"]
    once = ["--exactly-once", "--id", "lines", "--checkpoint", str(tmp_path / "load")]
    sequence = ["--sequence", "value", "--partitioner", "none", "--records", "100"]
    environ = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path)}

    loaded = subprocess.run(
        [*AIOPRODUCER, "load", *shape, *once, "--topic", "orders", "--profile", "secured"],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    audited = subprocess.run(
        [*AIOPRODUCER, "audit", "--topic", "orders", *sequence, "-F", str(properties_for(secured_broker, tmp_path))],
        capture_output=True,
        text=True,
        check=False,
    )

    assert loaded.returncode == 0, loaded.stderr
    assert len(secured_broker.records("orders", committed=True)) == 100
    assert audited.returncode == 0, (audited.stdout, audited.stderr)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_error_after_spark_dies_while_writing_warns_that_rows_may_be_in_the_topic(
    broker: FakeBroker, tmp_path: Path
) -> None:
    need()

    done = run_until_java_dies([*AIOPRODUCER, *load_of(broker, tmp_path)], broker, "Produce")

    assert done.returncode == 1, done.stderr
    assert done.stderr.splitlines()[-1].startswith(
        "aioproducer load: The load stopped: Spark's Java process ended before its work was done"
    )
    assert "Some of the rows may be in the topic already" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_load_whose_spark_dies_in_a_transaction_can_be_resumed_with_the_same_command(
    broker: FakeBroker, tmp_path: Path
) -> None:
    need()
    once = ["--exactly-once", "--id", "lines", "--checkpoint", str(tmp_path / "load")]

    done = run_until_java_dies([*AIOPRODUCER, *load_of(broker, tmp_path), *once], broker, "Produce")
    again = subprocess.run(
        [*AIOPRODUCER, *load_of(broker, tmp_path), *once], capture_output=True, text=True, check=False
    )

    assert done.returncode == 1, done.stderr
    assert done.stderr.count("ended before its work was done") == 1, "it is not tried again, nor reported for each try"
    assert done.stderr.endswith("and no partial ones. Run the same command again to resume.\n")
    assert again.returncode == 0, again.stderr
    assert [record.value for record in broker.records("orders", committed=True)] == [b"one", b"two"]


#: A shell that has put pytest in the background has set it, and its children, to ignore Ctrl-C.
_MINDING_CTRL_C = """
import signal, sys
from aioproducer.cli.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_ctrl_c_while_spark_starts_leaves_no_jvm_behind(broker: FakeBroker, tmp_path: Path) -> None:
    need()
    command = [sys.executable, "-c", _MINDING_CTRL_C, *load_of(broker, tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        java = _java_once_started(running)
        running.send_signal(signal.SIGINT)
        try:
            _, errors = running.communicate(timeout=100)  # as long as the JVM has its standard error open
        finally:
            kill(java)

    assert running.returncode == 130
    assert errors.splitlines()[-1] == "aioproducer load: interrupted."
    assert "Exception" not in errors


def _java_once_started(running: subprocess.Popen[str]) -> int:
    while (java := java_of(running.pid)) is None:
        assert running.poll() is None
        time.sleep(0.05)
    return java


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_it_is_no_client_of_spark_connect_where_all_others_are(broker: FakeBroker, tmp_path: Path) -> None:
    need()

    done = subprocess.run(
        [*AIOPRODUCER, *load_of(broker, tmp_path)],
        env={**os.environ, "SPARK_CONNECT_MODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert [record.value for record in broker.records("orders")] == [b"one", b"two"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_log_lines_of_pyspark_about_its_exceptions_are_not_printed_beside_the_error(
    broker: FakeBroker, tmp_path: Path
) -> None:
    need()
    rows = tmp_path / "rows.json"
    rows.write_text('{"a":1}\n')
    schema = ["--schema", "a MAP<STRUCT<x: INT>, INT>"]  # which from_json() does not know, and the reader of files does
    target = ["--topic", "orders", "--bootstrap-servers", broker.bootstrap_servers, "--master", "local[1]"]

    done = subprocess.run(
        [*AIOPRODUCER, "load", str(rows), *schema, *target], capture_output=True, text=True, check=False
    )

    assert done.returncode == 1, done.stderr
    assert done.stderr.splitlines()[-1].startswith("aioproducer load: The load stopped: A line of file:")
    assert "QueryContextLogger" not in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_of_a_setting_that_spark_refuses_late_the_reason_is_reported(broker: FakeBroker, tmp_path: Path) -> None:
    need()
    setting = ["--conf", "spark.sql.shuffle.partitions=abc"]

    done = subprocess.run(
        [*AIOPRODUCER, *load_of(broker, tmp_path), *setting], capture_output=True, text=True, check=False
    )

    assert done.returncode == 2, done.stderr
    assert "spark.sql.shuffle.partitions" in done.stderr.splitlines()[-1]
