"""``aioproducer meta`` shows brokers, topics and partitions, and marks partitions that lack replicas or a leader."""

from __future__ import annotations

import argparse
import json
import socket
from typing import Any

import pytest

from aioproducer.cli.meta.cluster import CONFIGS
from aioproducer.cli.meta.command import VERB
from aioproducer.cli.verb import ExitCode, Trouble
from aioproducer.protocol import ErrorCode
from aioproducer.protocol.messages import DescribeConfigsResponse, DescribeConfigsResult
from aioproducer.testing import FakeBroker, Logins, TopicConfig, TopicSpec


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)


def run(*arguments: str) -> ExitCode:
    parser = argparse.ArgumentParser()
    VERB.configure(parser)
    return VERB.run(parser.parse_args(arguments))


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[ExitCode, dict[str, Any]]:
    code = run("--json", *arguments)
    return code, json.loads(capsys.readouterr().out)


def test_the_report_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    topics: dict[str, int | TopicSpec] = {
        "orders": TopicSpec(2, 3, TopicConfig(max_message_bytes=5000, min_insync_replicas=2))
    }
    topics["events"] = 1
    with FakeBroker(brokers=3, topics=topics) as broker:
        broker.cluster.nodes[2].rack = "east"
        broker.shrink_isr("orders", 0, [1, 2])
        broker.shrink_isr("orders", 1, [2])
        broker.move_leader("orders", 1, -1)

        assert run("-L", "-b", broker.bootstrap_servers) is ExitCode.BAD

        addresses = [f"{host}:{port}" for host, port in broker.addresses.values()]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"Cluster aioproducer-fake-cluster, asked at {addresses[0]}"
    assert lines[2] == "3 brokers"
    assert [line.split()[:2] for line in lines[3:6]] == [[str(i), each] for i, each in enumerate(addresses, 1)]
    assert "rack east" in lines[4]
    assert sum("controller" in line for line in lines) == 1
    assert lines[7] == "2 topics"
    assert lines[9] == "  events: 1 partition"
    orders = lines[lines.index("  orders: 2 partitions") + 1 :]
    assert orders[0].split()[:2] == ["max.message.bytes=5000", "min.insync.replicas=2"]
    assert orders[1].split() == ["partition", "leader", "replicas", "in", "sync"]
    assert orders[2].split() == ["0", "1", "1,2,3", "1,2", "UNDER-REPLICATED"]
    assert orders[3].split() == ["1", "none", "2,3,1", "2", "LEADERLESS", "UNDER-REPLICATED"]


def test_json_has_the_shape_of_kcat(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeBroker(brokers=2, topics={"orders": 2, "events": 1}) as broker:
        code, found = report(capsys, "-b", broker.bootstrap_servers, "orders", "-t", "orders")

        addresses = [f"{host}:{port}" for host, port in broker.addresses.values()]
    assert code is ExitCode.OK
    assert found["originating_broker"] == {"id": 1, "name": f"{addresses[0]}/1"}
    assert found["controllerid"] in (1, 2)
    assert found["clusterid"] == "aioproducer-fake-cluster"
    assert [(each["id"], each["name"]) for each in found["brokers"]] == list(enumerate(addresses, 1))
    (orders,) = found["topics"]
    assert orders["topic"] == "orders"
    assert orders["configs"]["message.timestamp.type"] == "CreateTime"
    assert orders["partitions"][1] == {
        "partition": 1,
        "leader": 2,
        "replicas": [{"id": 2}, {"id": 1}],
        "isrs": [{"id": 2}, {"id": 1}],
        "under_replicated": False,
    }


def test_a_topic_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeBroker(topics={"orders": 1}) as broker:
        servers = broker.bootstrap_servers

        assert run("-b", servers, "orders", "payments") is ExitCode.BAD
        assert "  payments: UNKNOWN_TOPIC_OR_PARTITION" in capsys.readouterr().out

        code, found = report(capsys, "-b", servers, "payments")
        assert code is ExitCode.BAD
        assert found["topics"][0]["error"] == "UNKNOWN_TOPIC_OR_PARTITION"
        assert set(broker.cluster.topics) == {"orders"}


def test_a_cluster_without_topics(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeBroker() as broker:
        assert run("-b", broker.bootstrap_servers) is ExitCode.OK

    assert capsys.readouterr().out.splitlines()[-1] == "0 topics"


def test_a_configuration_that_may_not_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    denied = DescribeConfigsResult(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        error_message=None,
        resource_type=2,
        resource_name="orders",
        configs=[],
    )
    with FakeBroker(topics={"orders": 1}) as broker:
        broker.control("DescribeConfigs", lambda request: DescribeConfigsResponse(results=[denied]), times=None)

        assert run("-b", broker.bootstrap_servers) is ExitCode.OK
        assert "its configuration cannot be read" in capsys.readouterr().out

        assert report(capsys, "-b", broker.bootstrap_servers)[1]["topics"][0]["configs"] is None


def test_a_login_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    login = ["security_protocol=SASL_PLAINTEXT", "sasl_mechanism=SCRAM-SHA-256", "sasl_username=alice"]
    flags = [part for each in login for part in ("-X", each)]
    with FakeBroker(topics={"orders": 1}, logins=Logins({"alice": "wonderland-7"})) as broker:
        servers = broker.bootstrap_servers

        assert run("-b", servers, *flags, "-X", "sasl_password=wonderland-7") is ExitCode.OK
        with pytest.raises(Trouble, match=r"aioproducer doctor(.|\n)*credentials") as refused:
            run("-b", servers, *flags, "-X", "sasl_password=guessed-8")

    assert "guessed-8" not in str(refused.value)


def test_another_bootstrap_server_is_used_if_one_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as reserved, FakeBroker() as broker:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]

        assert run("-b", f"127.0.0.1:{port},{broker.bootstrap_servers}") is ExitCode.OK
        with pytest.raises(Trouble, match="No bootstrap server can be used"):
            run("-b", f"127.0.0.1:{port}")


def test_a_silent_broker_has_a_time_limit() -> None:
    with FakeBroker() as broker:
        broker.swallow("Metadata")
        # A slow machine may not even connect in this time.
        with pytest.raises(Trouble, match=r"After 0.1 s|No bootstrap server can be used"):
            run("-b", broker.bootstrap_servers, "--timeout", "0.1")


def test_a_silent_server_is_a_case_for_the_doctor() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(Trouble, match="aioproducer doctor finds the cause"):
            run("-b", f"127.0.0.1:{port}", "--timeout", "0.3")


def test_the_help_names_the_configurations_that_are_shown() -> None:
    parser = argparse.ArgumentParser()
    VERB.configure(parser)

    assert all(name in parser.format_help() for name in CONFIGS)


@pytest.mark.parametrize("text", ["0", "nan", "1e9", "soon"])
def test_a_time_limit_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(SystemExit):
        run("-b", "localhost:9092", "--timeout", text)
