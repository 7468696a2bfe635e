"""The command line on real Kafka: librdkafka's consumer reads what ``produce`` has sent, killed or not."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from aioproducer.cli.main import main
from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.plugin import KafkaFactory

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PARTITIONS = 3
LINES = 100_000


@pytest.fixture
def kafka(kafka_factory: KafkaFactory, monkeypatch: pytest.MonkeyPatch) -> KafkaCluster:
    cluster = kafka_factory("4.3.1")
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", cluster.bootstrap_servers)
    return cluster


def read(kafka: KafkaCluster, topic: str) -> list[Any]:
    """The records that librdkafka's consumer gets with read_committed, up to each last stable offset."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer: Any = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": topic,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    found: list[Any] = []
    at_end = set[int]()
    try:
        consumer.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
        while len(at_end) < PARTITIONS:
            message = consumer.poll(60)
            assert message is not None, "librdkafka reached no end within a minute"
            if message.error() is None:
                found.append(message)
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                at_end.add(message.partition())
    finally:
        consumer.close()
    return found


def run(*arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "aioproducer", "produce", *arguments], input=given, capture_output=True, check=False
    )


def test_flags_of_kcat_and_of_the_console_producer(kafka: KafkaCluster, tmp_path: Path) -> None:
    kafka.create_topic("flags", PARTITIONS)
    file = tmp_path / "file.bin"
    file.write_bytes(b"\0\n\xff")
    servers = kafka.bootstrap_servers

    runs = [
        run("-P", "-b", servers, "-t", "flags", "-p", "0", given=b"syslog line\n"),
        run("-P", "-b", servers, "-t", "flags", "-K:", "-Z", "-z", "zstd", "-H", "h=1", given=b"key:value\ngone:\n"),
        run("-P", "-b", servers, "-t", "flags", "-X", "transactional.id=flags", "-p", "2", str(file)),
        run("--bootstrap-server", servers, "--topic", "flags", "--property", "parse.key=true", given=b"key\tconsole\n"),
    ]

    assert [(done.returncode, done.stderr) for done in runs if done.returncode] == []
    found = {(each.key(), each.value(), tuple(each.headers() or ())) for each in read(kafka, "flags")}
    assert found == {
        (None, b"syslog line", ()),
        (b"key", b"value", (("h", b"1"),)),
        (b"gone", None, (("h", b"1"),)),
        (None, b"\0\n\xff", ()),
        (b"key", b"console", ()),
    }


@pytest.mark.parametrize("flag", ["--transactional", "--tee"])
def test_a_file_whose_run_is_killed_is_sent_whole_by_the_next_run(
    kafka: KafkaCluster, tmp_path: Path, flag: str
) -> None:
    """With a transaction once, otherwise at least once; the order of each partition is that of the file."""
    topic = f"killed{flag}"
    kafka.create_topic(topic, PARTITIONS)
    file = tmp_path / "lines.txt"
    lines = [b"%06d" % number for number in range(LINES)]
    file.write_bytes(b"\n".join(lines))
    words = [sys.executable, "-m", "aioproducer", "produce", topic, "-q", "-l", "-T", flag]

    with subprocess.Popen([*words, str(file)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(LINES)  # some 14,000 lines are in the buffer by now, and some of them written
        process.kill()
        process.stdout.read()
    done = subprocess.run([*words, str(file)], stdout=subprocess.PIPE, check=False)

    assert done.returncode == 0
    assert done.stdout.splitlines() == lines
    records = read(kafka, topic)
    times = Counter(each.value() for each in records)
    assert set(times) == set(lines)
    if flag == "--transactional":
        assert set(times.values()) == {1}
        for partition in range(PARTITIONS):
            values = [each.value() for each in records if each.partition() == partition]
            assert values == sorted(values)


def test_the_doctor_finds_no_fault_in_a_sound_cluster(kafka: KafkaCluster, capsys: pytest.CaptureFixture[str]) -> None:
    kafka.create_topic("sound", PARTITIONS)

    assert main(["doctor", kafka.bootstrap_servers, "sound", "--send"]) == 0
    assert "FAULT" not in capsys.readouterr().out


def test_kafka_runs_until_it_is_ended_and_meta_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [
        sys.executable,
        "-m",
        "aioproducer",
        "kafka",
        "4.3.1",
        "--topic",
        "orders:3",
        "--port",
        str(port),
        "--property",
        "log.retention.ms=9",
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"Apache Kafka 4.3.1, one broker, at (\S+);", process.stdout.readline())
            assert found is not None
            assert found[1] == f"127.0.0.1:{port}"
            assert main(["meta", "-b", found[1], "orders", "--json"]) == 0
            out = capsys.readouterr().out
            assert main(["meta", "-b", found[1], "missing"]) == 1
        finally:
            process.send_signal(signal.SIGTERM)  # SIGINT may be ignored here, as in a shell's background
        assert process.wait() == 0
    (topic,) = json.loads(out)["topics"]
    assert (topic["topic"], len(topic["partitions"])) == ("orders", PARTITIONS)


@pytest.mark.parametrize(("first", "reason"), [(None, "Address already in use"), (65_535, "ports end at 65535")])
def test_a_port_that_cannot_be_had_is_named(first: int | None, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1] if first is None else first

        assert main(["kafka", "--port", str(port), "--brokers", "2"]) == 2

    assert f"of 127.0.0.1 cannot be used: {reason}.\n" in capsys.readouterr().err


def test_the_end_of_a_broker_ends_kafka_with_its_log() -> None:
    words = [sys.executable, "-m", "aioproducer", "kafka", "4.3.1"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        folder = process.stdout.readline().removeprefix("Data and logs: ").strip()
        for found in Path("/proc").glob("[0-9]*/cmdline"):
            if f"{folder}/broker-1".encode() in found.read_bytes():
                os.kill(int(found.parent.name), signal.SIGKILL)
        error = process.stderr.read()
        assert process.wait() == 1
    assert "broker 1 ended. The end of its log:" in error
