"""The demo as a whole: it succeeds against a broker that does its work, and says no to one that lies."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Collection, Generator, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiokafka.partitioner import murmur2  # type: ignore[import-untyped]

from aioproducer._twin import implementation
from aioproducer.cli.flights import flights
from aioproducer.cli.main import main
from aioproducer.cli.opinion import partitions_of
from aioproducer.protocol.messages import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from aioproducer.testing import FakeBroker, RequestContext
from aioproducer.testing.admin import Admin
from aioproducer.testing.broker.secured import SecuredBroker
from tests.cli.client_files import properties_for
from tests.needs import not_here

RECORDS = 2000


@pytest.fixture
def broker() -> Generator[FakeBroker, None, None]:
    with FakeBroker() as broker:
        yield broker


def demo(capsys: pytest.CaptureFixture[str], *arguments: str, records: int = RECORDS) -> tuple[int, dict[str, Any]]:
    code = main(["demo", "--json", "--records", str(records), *arguments])
    output: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, output


def test_every_record_comes_back_as_it_was_sent(capsys: pytest.CaptureFixture[str]) -> None:
    code, reported = demo(capsys)

    assert code == 0
    assert reported["verdict"] == "ok"
    assert reported["accepted"] == reported["acknowledged"] == reported["read_back"] == RECORDS
    assert set(reported["faults"].values()) == {0}
    assert reported["records_per_second"] > 0
    assert 0 < reported["drain_ms"]["p50"] <= reported["drain_ms"]["max"]
    assert 0 < reported["latency_ms"]["p50"] <= reported["latency_ms"]["p99"] <= reported["latency_ms"]["max"]
    assert 0 < reported["round_trip_ms"]["p50"] <= reported["round_trip_ms"]["max"]
    assert reported["batches"] >= reported["produce_requests"] > 0
    assert reported["wire_bytes"] > reported["raw_bytes"] > 0
    assert reported["record_retries"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("pure", [False, True], ids=["as built", "pure"])
def test_a_flood_is_called_a_flood_and_pure_python_shows_the_gain_of_native_code(pure: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "aioproducer", "demo", "--records", "1000"],
        env={**os.environ, "COLUMNS": "200", **({"AIOPRODUCER_PURE": "1"} if pure else {})},
        capture_output=True,
        text=True,
        check=True,
    )

    assert "Time to drain" in done.stdout
    assert "Latency at 5,000/s" in done.stdout
    assert "Latency one by one" in done.stdout
    assert ("about 7 times" in done.stdout) is (pure or implementation() != "native")


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_records_come_back_as_they_were_sent(codec: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, reported = demo(capsys, "--compression-type", codec)

    assert code == 0
    assert reported["compression_type"] == codec
    assert reported["wire_bytes"] < reported["raw_bytes"]


def test_the_codec_of_the_topic_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    code, reported = demo(capsys, "--compression-type", "other:gzip,*:lz4")

    assert code == 0
    assert reported["compression_type"] == "lz4"


def test_a_cluster_that_is_given_is_used_and_keeps_the_topic(
    broker: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    code, reported = demo(
        capsys,
        "--bootstrap-servers",
        broker.bootstrap_servers,
        "--topic",
        "flights",
        "--partitions",
        "4",
        "--no-uvloop",
    )

    assert code == 0
    assert reported["event_loop"] == "asyncio"
    written = broker.records("flights")
    assert sorted((r.key, r.value, r.timestamp_ms) for r in written if r.key) == sorted(
        (f.key, f.value, f.timestamp_ms) for f in flights(RECORDS) if f.key
    )
    assert {record.partition for record in written} == {0, 1, 2, 3}
    assert all(record.partition == (murmur2(record.key) & 0x7FFFFFFF) % 4 for record in written if record.key)


def test_another_client_is_asked_where_the_keys_belong(broker: FakeBroker) -> None:
    keys = [f"N{number}".encode() for number in range(100)] + [b"", b"\xff\x00"]
    broker.create_topic("keys", 7)

    homes = partitions_of(keys, {"bootstrap.servers": broker.bootstrap_servers}, "keys")

    assert homes == {key: (murmur2(key) & 0x7FFFFFFF) % 7 for key in keys}


def test_a_producer_that_puts_keys_elsewhere_than_other_clients_is_detected(
    broker: FakeBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def differently(keys: Collection[bytes], connection: Mapping[str, str], topic: str) -> Mapping[bytes, int]:
        right = partitions_of(keys, connection, topic)
        return {key: (partition + 1) % 6 for key, partition in right.items()}

    # Patched: clients that disagree on where a key belongs are not to be had.
    monkeypatch.setattr("aioproducer.cli.demo.partitions_of", differently)

    code, reported = demo(capsys, "--bootstrap-servers", broker.bootstrap_servers)

    assert code == 1
    assert reported["faults"]["misplaced"] == sum(record.key is not None for record in flights(RECORDS))


def test_the_topic_of_the_keys_is_gone_afterwards(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    code, reported = demo(capsys, "--bootstrap-servers", broker.bootstrap_servers, "--topic", "flights")

    assert code == 0
    assert reported["keys_compared"] == len({record.key for record in flights(RECORDS)} - {None})
    assert Admin(broker.bootstrap_servers).topics() == {"flights"}


def test_keys_that_no_other_client_can_place_prevent_a_good_verdict(
    broker: FakeBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(keys: Collection[bytes], connection: Mapping[str, str], topic: str) -> Mapping[bytes, int]:
        broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", times=None)
        return partitions_of(keys, connection, topic)

    # Patched, to begin the fault after the demo's own records, which the broker is to take.
    monkeypatch.setattr("aioproducer.cli.demo.partitions_of", refused)

    code, reported = demo(capsys, "--bootstrap-servers", broker.bootstrap_servers)

    assert code == 1
    assert "could not confirm the keys' partitions" in reported["conclusion"]


def test_a_file_configures_all_three_clients_for_tls_and_login(
    secured_broker: SecuredBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = properties_for(secured_broker, tmp_path, "linger.ms=11")

    code, reported = demo(capsys, "-F", str(file))

    assert code == 0, reported
    assert (reported["read_back"], reported["keys_compared"] > 0) == (RECORDS, True)


def test_the_environment_counts_only_where_a_cluster_is_chosen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, broker: FakeBroker
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv("KAFKA_ACKS", "0")

    code, reported = demo(capsys, records=10)

    assert (code, reported["cluster"]) == (0, "FakeBroker in this process")
    assert main(["demo", "-b", broker.bootstrap_servers]) == 2
    assert "acks=0" in capsys.readouterr().err


def test_servers_given_by_x_are_used(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    code, reported = demo(capsys, "-X", f"bootstrap.servers={broker.bootstrap_servers}", records=10)

    assert (code, reported["cluster"]) == (0, f"Kafka at {broker.bootstrap_servers}")


def test_a_kafka_of_the_demo_itself_has_no_file_or_profile(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--kafka", "--profile", "prod"]) == 2

    assert "cannot be combined with -F, --profile or other servers" in capsys.readouterr().err


def test_a_login_that_the_reader_cannot_repeat_is_refused_before_anything_is_sent(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "bootstrap.servers=b-1.x.kafka.eu-west-1.amazonaws.com:9098\nsecurity.protocol=SASL_SSL\n"
        "sasl.mechanism=AWS_MSK_IAM\n"
    )

    assert main(["demo", "-F", str(file)]) == 2

    assert "Use a login by PLAIN, SCRAM, GSSAPI or a certificate." in capsys.readouterr().err


def test_a_partitioner_of_another_kind_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--records", "10", "-X", "partitioner.ignore.keys=true"]) == 2

    assert "leave out the partitioner's options" in capsys.readouterr().err


def test_a_topic_that_exists_is_left_alone(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    broker.create_topic("flights", 1)

    assert main(["demo", "--bootstrap-servers", broker.bootstrap_servers, "--topic", "flights", "--records", "10"]) == 2

    assert "TOPIC_ALREADY_EXISTS" in capsys.readouterr().err
    assert broker.records("flights") == []


def test_an_unreachable_cluster_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]

    assert main(["demo", "--bootstrap-servers", f"127.0.0.1:{port}", "--records", "10"]) == 2

    error = capsys.readouterr().err
    assert f"No broker answers at 127.0.0.1:{port}" in error
    assert "Connection refused" in error
    assert "--kafka" in error


def test_lost_answers_cost_retries_and_no_record(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    broker.drop_connection("Produce", when="after", times=2)

    code, reported = demo(capsys, "--bootstrap-servers", broker.bootstrap_servers)

    assert code == 0
    assert reported["record_retries"] > 0
    assert reported["read_back"] == RECORDS


@pytest.mark.slow
def test_a_broker_that_acknowledges_without_writing_is_detected(
    broker: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    def pretend(context: RequestContext) -> ProduceResponse:
        request = context.request.body
        assert isinstance(request, ProduceRequest)
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[
                        PartitionProduceResponse(index=partition.index, error_code=0, base_offset=0)
                        for partition in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )

    broker.control("Produce", pretend, times=1)

    code, reported = demo(
        capsys, "--bootstrap-servers", broker.bootstrap_servers, "-X", "enable.idempotence=false"
    )  # else the broker would miss the sequence numbers

    assert code == 1
    assert reported["verdict"] == "bad"
    assert reported["faults"]["lost"] > 0
    assert reported["read_back"] == RECORDS - reported["faults"]["lost"]
    assert "is not in the log" in reported["examples"][0] or "is at" in reported["examples"][0]


def test_a_producer_that_fails_in_the_middle_is_reported_about(
    broker: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", times=None)

    code, reported = demo(capsys, "--bootstrap-servers", broker.bootstrap_servers)

    assert code == 1
    assert reported["verdict"] == "bad"
    assert reported["read_back"] is None
    assert reported["not_written"] > 0
    assert reported["unknown"] == 0
    assert "TOPIC_AUTHORIZATION_FAILED" in reported["conclusion"]


def test_a_damaged_response_fails_the_check_by_the_independent_consumer(
    broker: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.fail("ListOffsets", "UNKNOWN_SERVER_ERROR", times=None)

    code, reported = demo(capsys, "--bootstrap-servers", broker.bootstrap_servers, records=100)

    assert code == 1
    assert reported["acknowledged"] == 100
    assert "The consumer could not read the offsets" in reported["conclusion"]


@pytest.mark.parametrize("rich", [True, False], ids=["with rich", "without rich"])
def test_a_person_reads_the_numbers_and_the_verdict(
    rich: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    if not rich:
        monkeypatch.setitem(sys.modules, "rich", None)

    assert main(["demo", "--records", "500"]) == 0

    reported, aside = capsys.readouterr()
    for word in ("FakeBroker", "records/s", "p99", "On the wire", "Read back", "VERDICT: OK", "none lost"):
        assert word in reported
    assert ("pip install 'aioproducer[demo]'" in aside) is not rich


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "aioproducer", "demo", *arguments]


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_hundred_thousand_records_survive_the_whole_demo() -> None:
    done = subprocess.run(command("--json"), capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    output = json.loads(done.stdout)
    assert output["read_back"] == output["acknowledged"] == 100_000
    assert set(output["faults"].values()) == {0}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_hundred_thousand_records_survive_real_kafka() -> None:
    done = subprocess.run(
        command("--json", "--kafka", "--compression-type", "zstd"), capture_output=True, text=True, check=False
    )
    if done.returncode == 2:
        not_here(done.stderr)

    assert done.returncode == 0, done.stderr
    output = json.loads(done.stdout)
    assert output["read_back"] == output["acknowledged"] == 100_000
    assert set(output["faults"].values()) == {0}


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_ctrl_c_ends_it_with_130_and_without_a_traceback() -> None:
    with subprocess.Popen(
        [*command("--records", "300000"), "--no-uvloop"],
        env={**os.environ, "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        next(line for line in running.stdout if "sending" in line)
        running.send_signal(signal.SIGINT)
        _, error = running.communicate(timeout=150)

    assert running.returncode == 130
    assert "interrupted" in error
    assert "Traceback" not in error
