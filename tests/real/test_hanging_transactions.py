"""``aioproducer transactions`` on real Kafka agrees with kafka-transactions.sh, and frees what waits for a hanging one."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable

import pytest

from aioproducer.cli.main import main
from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.kafka.jars import DEFAULT_KAFKA_VERSION, OLDER_KAFKA_VERSION, KafkaJars
from tests.testing.own_kafka import own_kafka
from tests.testing.raw_transactions import OLD, PATIENCE, RawTransactions

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

#: As leaders behaved before Kafka 3.6: they did not ask the coordinator whether a batch belongs to a transaction.
UNVERIFIED = {"transaction.partition.verification.enable": "false"}


def java(kafka: KafkaCluster, *arguments: str) -> str:
    """The output of Kafka's own tool."""
    jars = KafkaJars.get(kafka.version)
    command = [
        jars.java.executable,
        "-XX:TieredStopAtLevel=1",
        "-cp",
        jars.classpath,
        "org.apache.kafka.tools.TransactionsCommand",
        "--bootstrap-server",
        kafka.bootstrap_servers,
        *arguments,
    ]
    return subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, "LC_ALL": "C"}
    ).stdout


def without_duration(table: str) -> list[list[str]]:
    """The cells but for the last column, in which find-hanging has the time since the last record."""
    return [line.split("\t")[:-2] for line in table.splitlines()]


def leave_hanging(kafka: KafkaCluster) -> None:
    """Let a producer write into 'orders', partition 0, without adding it to its transaction; then another one commits."""
    host, port = kafka.bootstrap_servers.rsplit(":", 1)
    hanging, sound = (
        RawTransactions((host, int(port)), OLD, transactional_id, "orders", "group")
        for transactional_id in ("hanging", "sound")
    )
    hanging.find_coordinators()
    hanging.write(hanging.init(), 0, "lost")
    who = sound.init()
    sound.begin(who, 0)
    sound.write(who, 0, "kept")
    sound.commit(who)
    for each in (hanging, sound):
        assert [note[3] for note in each.notes if note[0] == "write"] == ["NONE"], each.notes


def committed(kafka: KafkaCluster) -> list[bytes | None]:
    """The values that librdkafka reads up to the last stable offset."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "group",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    found: list[bytes | None] = []
    try:
        consumer.assign([TopicPartition("orders", 0, 0)])
        while True:
            message = consumer.poll(60)
            assert message is not None, "librdkafka reached no end within a minute"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return found
            found.append(message.value())
    finally:
        consumer.close()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize("version", [DEFAULT_KAFKA_VERSION, OLDER_KAFKA_VERSION])
def test_a_hanging_transaction_is_found_as_by_java_and_aborted(
    version: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with own_kafka(version, properties=UNVERIFIED) as kafka:
        monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
        kafka.create_topic("orders")
        leave_hanging(kafka)
        until(lambda: kafka.admin.list_offsets("orders")[0] == (0, 3))  # two records and a marker

        assert committed(kafka) == []
        for arguments, expected_code in (
            (["describe", "--transactional-id", "hanging"], 0),
            (["find-hanging", "--topic", "orders", "--max-transaction-timeout", "0"], 1),
        ):
            code = main(["transactions", *arguments])
            printed = capsys.readouterr().out
            assert without_duration(printed) == without_duration(java(kafka, *arguments))
            assert code == expected_code
        assert printed.count("orders") == 1

        abort = ["transactions", "abort", "--topic", "orders", "--partition", "0", "--start-offset", "0"]
        assert main(abort) == 0
        assert committed(kafka) == [b"kept"]
        assert main(["transactions", "find-hanging", "--max-transaction-timeout", "0"]) == 0
        assert main(abort) == 1
