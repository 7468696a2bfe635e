"""``aioproducer doctor`` names each planted fault, with its cause and the change; a sound cluster has none."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from aioproducer.cli.doctor import meaning
from aioproducer.cli.doctor.causes import Speech, certificate_days, speech, unreached
from aioproducer.cli.doctor.report import Outcome
from aioproducer.cli.main import main
from aioproducer.core.cluster import Node
from aioproducer.protocol import ErrorCode
from aioproducer.protocol.messages import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    InitProducerIdResponse,
    MetadataResponse,
)
from aioproducer.testing import FakeBroker, Logins, RequestContext, TopicConfig, TopicSpec
from aioproducer.testing.broker.msk_iam import AwsKeys
from aioproducer.testing.broker.versions import RELEASES
from aioproducer.testing.certificates import CertificateAuthority
from aioproducer.types import TimestampType
from tests.net.proxy_server import ProxyServer, proxy_server

WRITE, DESCRIBE = 1 << 4, 1 << 8
PASSWORD = "wonderland-7"


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return CertificateAuthority()


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)


class Examined:
    """The report of one run in JSON, and its exit code."""

    def __init__(self, code: int, report: dict[str, Any]) -> None:
        self.code = code
        self.report = report

    def step(self, name: str) -> dict[str, Any]:
        return next(each for each in self.report["steps"] if each["name"] == name)

    @property
    def outcomes(self) -> dict[str, str]:
        return {each["name"]: each["outcome"] for each in self.report["steps"]}

    def assert_sound(self) -> None:
        assert self.code == 0, self.report
        assert self.report["ok"]
        assert "fault" not in self.outcomes.values()

    def fault(self, step: str) -> dict[str, Any]:
        """The only fault, which is of this step."""
        assert self.code == 1, self.report
        assert not self.report["ok"]
        found = [each for one in self.report["steps"] for each in one["problems"] if each["outcome"] == "fault"]
        assert len(found) == 1, found
        assert self.step(step)["outcome"] == "fault", self.outcomes
        assert found[0]["cause"]
        assert found[0]["change"]
        assert found[0]["sentence"].rstrip(".") in self.report["verdict"]
        result: dict[str, Any] = found[0]
        return result


class Doctor:
    """Runs the verb."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def text(self, *arguments: str) -> tuple[int, str]:
        code = main(["doctor", *arguments])
        printed = self._capsys.readouterr()
        assert not printed.err
        assert PASSWORD not in printed.out
        return code, printed.out

    def __call__(self, *arguments: str, **options: str) -> Examined:
        given = [part for name, value in options.items() for part in ("-X", f"{name}={value}")]
        code, out = self.text("--json", *arguments, *given)
        return Examined(code, json.loads(out))


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]) -> Doctor:
    return Doctor(capsys)


def tls(authority: CertificateAuthority) -> dict[str, str]:
    return {"security_protocol": "SSL", "ssl_truststore_certificates": authority.pem}


def login(**others: str) -> dict[str, str]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_username": "alice",
        "sasl_password": PASSWORD,
        **others,
    }


# -- sound clusters ----------------------------------------------------------------------------------------------------


def test_a_sound_cluster_has_no_fault(doctor: Doctor) -> None:
    with FakeBroker(brokers=3, topics={"orders": 3}) as broker:
        found = doctor(broker.bootstrap_servers, "orders")

    found.assert_sound()
    assert found.report["verdict"] == "A producer with this configuration would work."
    assert found.outcomes["TLS"] == found.outcomes["clock"] == "skipped"
    assert "3 partitions, 3 replicas, at least 3 in sync" in found.step("topic")["sentence"]
    assert found.step("brokers")["sentence"].count("is ready") == 3


def test_a_sound_cluster_with_tls_has_no_fault(doctor: Doctor, authority: CertificateAuthority) -> None:
    with FakeBroker(topics={"orders": 1}, tls=authority.server_context()) as broker:
        found = doctor(broker.bootstrap_servers, "orders", **tls(authority))

    found.assert_sound()
    assert "TLSv1.3" in found.step("TLS")["sentence"]
    assert "ends in 30 days" in found.step("TLS")["sentence"]


def test_a_sound_cluster_with_a_login_has_no_fault(doctor: Doctor) -> None:
    with FakeBroker(topics={"orders": 1}, logins=Logins({"alice": PASSWORD})) as broker:
        found = doctor(broker.bootstrap_servers, "orders", **login())

    found.assert_sound()
    assert "accepts the SCRAM-SHA-256 login" in found.step("login")["sentence"]


def test_a_sound_cluster_with_a_login_by_aws_keys_has_no_fault(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("ACCESS_KEY_ID", "AKIDEXAMPLE"), ("SECRET_ACCESS_KEY", PASSWORD), ("REGION", "eu-central-1")):
        monkeypatch.setenv(f"AWS_{name}", value)
    iam = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "AWS_MSK_IAM"}
    keys, others = (AwsKeys("AKIDEXAMPLE", secret, "eu-central-1", None) for secret in (PASSWORD, "another"))

    with FakeBroker(topics={"orders": 1}, logins=Logins(aws=keys)) as broker:
        doctor(broker.bootstrap_servers, "orders", "--send", **iam).assert_sound()
    with FakeBroker(topics={"orders": 1}, logins=Logins(aws=others)) as broker:
        assert "AWS" in doctor(broker.bootstrap_servers, "orders", **iam).fault("login")["change"]


def test_a_test_record_is_acknowledged_and_shows_the_brokers_clock(doctor: Doctor) -> None:
    config = TopicConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    with FakeBroker(topics={"orders": TopicSpec(config=config)}) as broker:
        found = doctor(broker.bootstrap_servers, "orders", "--send")
        broker.assert_sent("orders", value=b"test record of aioproducer doctor")

    found.assert_sound()
    assert "partition 0 at offset 0 of topic 'orders'" in found.step("send")["sentence"]
    assert found.outcomes["clock"] == "ok"


def test_a_topic_with_the_clients_timestamps_is_the_reason_to_skip_the_clock(doctor: Doctor) -> None:
    with FakeBroker(topics={"orders": 1}) as broker:
        found = doctor(broker.bootstrap_servers, "orders", "--send")

    found.assert_sound()
    assert "1 partition, 1 replica, at least" in found.step("topic")["sentence"]
    assert found.outcomes["clock"] == "skipped"
    assert "topic 'orders' has message.timestamp.type=CreateTime" in found.step("clock")["sentence"]


def test_a_test_transaction_is_aborted(doctor: Doctor) -> None:
    with FakeBroker(topics={"orders": 1}) as broker:
        found = doctor(broker.bootstrap_servers, "orders", "--transaction", transactional_id="orders-1")
        assert not broker.records("orders", committed=True)

    found.assert_sound()
    assert "was aborted" in found.step("abort")["sentence"]
    assert "coordinates the transactions of 'orders-1'" in found.step("transaction")["sentence"]


def test_one_usable_bootstrap_server_is_enough(doctor: Doctor) -> None:
    with FakeBroker() as broker, closed_port() as port:
        found = doctor(f"{broker.bootstrap_servers},127.0.0.1:{port}")

    found.assert_sound()
    assert found.outcomes["connection"] == "warning"
    assert found.report["verdict"] == "A producer with this configuration would work, with 1 warning."


# -- the text ----------------------------------------------------------------------------------------------------------


def test_the_text_has_a_line_for_each_step_then_the_verdict_then_cause_and_change(doctor: Doctor) -> None:
    with closed_port() as port:
        code, out = doctor.text(f"127.0.0.1:{port}")

    lines = out.splitlines()
    assert code == 1
    assert lines[0].startswith("ok    names")
    assert lines[1].startswith("FAULT connection")
    end = lines.index("")
    assert lines[end + 1] == (
        f"A producer with this configuration would not work: 127.0.0.1:{port} refused the connection."
    )
    assert lines[-2].startswith("  Cause:  ")
    assert lines[-1].startswith("  Change: ")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["127.0.0.1:9092", "--send"],
        ["127.0.0.1:9092", "orders", "--transaction"],
        ["127.0.0.1:9092", "orders", "-b", "127.0.0.1:9092"],
        ["127.0.0.1:9092", "-X", "acks=7"],
    ],
)
def test_without_what_it_needs_it_does_not_run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", *arguments]) == 2
    assert capsys.readouterr().err.startswith("aioproducer doctor: ")


def test_a_lone_argument_beside_b_is_the_topic(doctor: Doctor) -> None:
    with FakeBroker(topics={"orders": 1}) as broker:
        found = doctor("-b", broker.bootstrap_servers, "orders")

    assert found.outcomes["topic"] == "ok"


# -- names and connections ---------------------------------------------------------------------------------------------


@contextmanager
def closed_port() -> Generator[int]:
    """A port that refuses connections: bound, and not listening."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def test_a_closed_port_is_named(doctor: Doctor) -> None:
    with closed_port() as port:
        fault = doctor(f"127.0.0.1:{port}").fault("connection")

    assert f"127.0.0.1:{port} refused the connection" in fault["sentence"]
    assert f"nothing listens on port {port}" in fault["cause"]
    assert f"set its option listeners to a reachable address with port {port}." in fault["change"]


def test_a_bootstrap_host_that_does_not_resolve_is_named(doctor: Doctor) -> None:
    fault = doctor("kafka.invalid:9092").fault("names")

    assert "kafka.invalid does not resolve" in fault["sentence"]
    assert "bootstrap_servers" in fault["change"]


def test_timeouts_refusals_and_missing_routes_are_distinguished() -> None:
    node = Node(-1, "kafka", 9092)

    assert "did not answer within 3 s" in unreached(node, [TimeoutError()], 3).sentence
    assert "refused the connection" in unreached(node, [ConnectionRefusedError(111, "refused")], 3).sentence
    assert "is unreachable" in unreached(node, [OSError(113, "No route to host")], 3).sentence
    assert "No route" in unreached(node, [OSError(113, "No route to host")], 3).cause


# -- another protocol on the port --------------------------------------------------------------------------------------


@contextmanager
def http_server(*, refuses_tls: bool = False) -> Generator[int]:
    """A web server that, like many, waits for the end of a line; ``refuses_tls``: it answers a TLS handshake at once."""

    class Handler(BaseHTTPRequestHandler):
        def handle(self) -> None:
            if refuses_tls and self.connection.recv(1, socket.MSG_PEEK) == b"\x16":
                self.connection.recv(4096)
                self.wfile.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            else:
                super().handle()

        def do_GET(self) -> None:
            self.send_error(400)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name in the base class
            pass

    with accepting(HTTPServer(("127.0.0.1", 0), Handler)) as port:
        yield port


@contextmanager
def accepting(server: HTTPServer) -> Generator[int]:
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that hangs up
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def answering(answer: bytes) -> Generator[int]:
    """A server that answers the first bytes of each connection with these, and closes it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        done = threading.Event()

        def serve() -> None:
            while True:
                accepted, _ = listening.accept()
                with accepted:
                    if done.is_set():
                        return
                    if accepted.recv(4096):
                        accepted.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        port: int = listening.getsockname()[1]
        try:
            yield port
        finally:
            done.set()
            socket.create_connection(("127.0.0.1", port)).close()
            thread.join()


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_a_web_server_on_the_port_is_named(doctor: Doctor, authority: CertificateAuthority, protocol: str) -> None:
    with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        options = tls(authority) if protocol == "SSL" else {}
        fault = doctor(f"127.0.0.1:{port}", **options).fault("TLS" if options else "API versions")

    assert f"127.0.0.1:{port} is a web server, not Kafka" in fault["sentence"]


def test_a_web_server_that_waits_for_a_line_is_named(doctor: Doctor) -> None:
    with http_server() as port:
        fault = doctor(f"127.0.0.1:{port}", "--timeout", "1").fault("API versions")

    assert "is a web server, not Kafka" in fault["sentence"]


def test_a_web_server_that_waits_for_a_line_is_named_with_tls(doctor: Doctor, authority: CertificateAuthority) -> None:
    with http_server(refuses_tls=True) as port:
        fault = doctor(f"127.0.0.1:{port}", "--timeout", "1", **tls(authority)).fault("TLS")

    assert "is a web server, not Kafka" in fault["sentence"]


def test_tls_to_a_plaintext_broker_is_named(doctor: Doctor, authority: CertificateAuthority) -> None:
    with FakeBroker() as broker:
        fault = doctor(broker.bootstrap_servers, **tls(authority)).fault("TLS")

    assert "is a Kafka port without TLS, and this configuration uses TLS" in fault["sentence"]
    assert "Set security_protocol to PLAINTEXT" in fault["change"]


def test_plaintext_to_a_tls_broker_is_named(doctor: Doctor, authority: CertificateAuthority) -> None:
    with FakeBroker(tls=authority.server_context()) as broker:
        fault = doctor(broker.bootstrap_servers).fault("API versions")

    assert "is a port with TLS, and this configuration does not use TLS" in fault["sentence"]
    assert "Set security_protocol to SSL" in fault["change"]


def test_the_first_bytes_show_the_protocol() -> None:
    assert speech(b"\0\0\0\x0a\0\0\0\1") is Speech.KAFKA
    assert speech(b"\x15\x03\x03\0\2\2F") is Speech.TLS
    assert speech(b"SSH-2.0-") is Speech.SSH
    assert speech(b"") is Speech.UNKNOWN


def test_a_broker_that_hangs_is_named(doctor: Doctor) -> None:
    with FakeBroker() as broker:
        broker.mute(1)
        fault = doctor(broker.bootstrap_servers, "--timeout", "1").fault("API versions")

    assert "accepted the connection and then said nothing within 1 s" in fault["sentence"]


def test_a_broker_that_hangs_in_tls_is_named(doctor: Doctor, authority: CertificateAuthority) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        fault = doctor(address, "--timeout", "1", **tls(authority)).fault("TLS")

    assert "said nothing within 1 s (TLS handshake)" in fault["sentence"]


def test_a_broker_that_stops_to_answer_is_named(doctor: Doctor) -> None:
    with FakeBroker() as broker:
        broker.swallow("InitProducerId")
        found = doctor(broker.bootstrap_servers, "--timeout", "2")

    assert "InitProducerIdRequest" in json.dumps(found.step("idempotence")["problems"])
    assert found.code == 1


# -- certificates ------------------------------------------------------------------------------------------------------


def test_an_unknown_authority_is_named(doctor: Doctor, authority: CertificateAuthority) -> None:
    with FakeBroker(tls=CertificateAuthority().server_context()) as broker:
        fault = doctor(broker.bootstrap_servers, **tls(authority)).fault("TLS")

    assert "has a certificate of an unknown authority" in fault["sentence"]
    assert "ssl_cafile" in fault["change"]


def test_an_expired_certificate_is_named(doctor: Doctor, authority: CertificateAuthority) -> None:
    with FakeBroker(tls=authority.server_context(expired=True)) as broker:
        fault = doctor(broker.bootstrap_servers, **tls(authority)).fault("TLS")

    assert "has an expired certificate" in fault["sentence"]
    assert "Renew" in fault["change"]


def test_a_certificate_for_another_host_is_named(doctor: Doctor, authority: CertificateAuthority) -> None:
    with FakeBroker(tls=authority.server_context("kafka.example.com")) as broker:
        fault = doctor(broker.bootstrap_servers, **tls(authority)).fault("TLS")

    assert "has a certificate for other host names" in fault["sentence"]
    assert "'127.0.0.1'" in fault["cause"]
    assert "advertised.listeners" in fault["change"]


def test_a_missing_client_certificate_is_named(doctor: Doctor, authority: CertificateAuthority) -> None:
    with FakeBroker(tls=authority.server_context(client_authority=authority)) as broker:
        fault = doctor(broker.bootstrap_servers, **tls(authority)).fault("API versions")

    assert "agreed on TLS and then refused this client" in fault["sentence"]
    assert "Set ssl_certfile" in fault["change"]


def test_a_certificate_that_ends_soon_is_a_warning() -> None:
    node = Node(-1, "kafka", 9093)

    found = certificate_days(node, 3.2, "kafka:9093 uses TLSv1.3")
    assert found is not None
    assert found.outcome is Outcome.WARNING
    assert "ends in 3 days." in found.cause
    assert certificate_days(node, 30, "") is None


def test_an_unreadable_file_of_authorities_is_named(doctor: Doctor) -> None:
    with FakeBroker() as broker:
        fault = doctor(broker.bootstrap_servers, security_protocol="SSL", ssl_cafile="/nonexistent.pem").fault("TLS")

    assert "/nonexistent.pem" in fault["cause"]


# -- logins ------------------------------------------------------------------------------------------------------------


def test_a_wrong_password_is_named(doctor: Doctor) -> None:
    with FakeBroker(logins=Logins({"alice": "another"})) as broker:
        fault = doctor(broker.bootstrap_servers, **login()).fault("login")

    assert fault["sentence"].startswith("The SCRAM-SHA-256 login to 127.0.0.1:")
    assert "refused the credentials" in fault["cause"]
    assert "sasl_password" in fault["change"]


def test_a_mechanism_that_is_not_offered_is_named_with_those_that_are(doctor: Doctor) -> None:
    logins = Logins({"alice": PASSWORD}, mechanisms=("PLAIN", "SCRAM-SHA-512"))
    with FakeBroker(logins=logins) as broker:
        fault = doctor(broker.bootstrap_servers, **login()).fault("login")

    assert "does not offer the login mechanism SCRAM-SHA-256; it offers PLAIN, SCRAM-SHA-512" in fault["sentence"]
    assert "sasl.enabled.mechanisms" in fault["change"]


def test_a_login_that_is_required_is_named(doctor: Doctor) -> None:
    with FakeBroker(logins=Logins({"alice": PASSWORD}, mechanisms=("PLAIN",))) as broker:
        fault = doctor(broker.bootstrap_servers).fault("login")

    assert "requires a login, and this configuration has none" in fault["sentence"]
    assert "SASL (PLAIN)" in fault["cause"]


def test_a_login_that_is_not_expected_is_named(doctor: Doctor) -> None:
    with FakeBroker() as broker:
        fault = doctor(broker.bootstrap_servers, **login()).fault("login")

    assert "does not expect a login at this port" in fault["sentence"]


# -- advertised addresses ----------------------------------------------------------------------------------------------


def test_an_advertised_host_that_does_not_resolve_is_named(doctor: Doctor) -> None:
    with FakeBroker() as broker:
        servers = broker.bootstrap_servers
        broker.cluster.nodes[1].host = "b1.invalid"
        fault = doctor(servers).fault("brokers")

    assert "Broker 1 advertises b1.invalid:" in fault["sentence"]
    assert "does not resolve" in fault["sentence"]
    assert "Set advertised.listeners of broker 1" in fault["change"]


def test_an_advertised_port_that_is_closed_is_named(doctor: Doctor) -> None:
    with FakeBroker(brokers=2) as broker, closed_port() as port:
        servers = broker.bootstrap_servers
        broker.cluster.nodes[2].port = port
        fault = doctor(servers).fault("brokers")

    assert f"Broker 2 (127.0.0.1:{port}) refused the connection" in fault["sentence"]
    assert "advertised.listeners of broker 2" in fault["change"]


def test_an_advertised_broker_that_hangs_is_named(doctor: Doctor) -> None:
    with FakeBroker(brokers=2) as broker:
        broker.mute(2)
        first = broker.bootstrap_servers.split(",")[0]
        fault = doctor(first, "--timeout", "2").fault("brokers")

    assert "Broker 2" in fault["sentence"]
    assert "said nothing within 2 s" in fault["sentence"]


def test_an_advertised_address_of_another_cluster_is_named(doctor: Doctor) -> None:
    with FakeBroker() as broker, FakeBroker() as other:
        servers = broker.bootstrap_servers
        other.cluster.cluster_id = "another-cluster"
        broker.cluster.nodes[1].port = other.addresses[1][1]
        fault = doctor(servers).fault("brokers")

    assert "reaches another cluster: another-cluster instead of aioproducer-fake-cluster" in fault["sentence"]
    assert "advertised.listeners of broker 1" in fault["change"]


@pytest.mark.parametrize("release", ["4.4", "3.9"])
def test_an_advertised_address_of_another_broker_is_named(doctor: Doctor, release: str) -> None:
    def refuse(context: RequestContext) -> DescribeConfigsResponse:
        response = context.apply()
        assert isinstance(response, DescribeConfigsResponse)
        for each in response.results:
            each.error_code = ErrorCode.INVALID_REQUEST
            each.error_message = "Unexpected broker id, expected 1 or empty string, but received 7"
        return response

    with FakeBroker(versions=release) as broker:
        broker.control("DescribeConfigs", refuse, times=None)
        servers = broker.bootstrap_servers
        broker.control("Metadata", rename_broker, times=None)
        fault = doctor(servers).fault("brokers")

    assert "reaches another broker of the cluster" in fault["sentence"]


def rename_broker(context: RequestContext) -> MetadataResponse:
    response = context.apply()
    assert isinstance(response, MetadataResponse)
    response.brokers[0].node_id = 7
    return response


def test_an_address_that_two_brokers_advertise_is_named() -> None:
    (fault,) = meaning.shared_addresses({1: ("lb", 9092), 2: ("lb", 9092), 3: ("b3", 9092)})

    assert fault.sentence == "Brokers 1, 2 all advertise lb:9092"


# -- the topic and the rights ------------------------------------------------------------------------------------------


def only_describe(context: RequestContext) -> MetadataResponse:
    response = context.apply()
    assert isinstance(response, MetadataResponse)
    for topic in response.topics:
        topic.topic_authorized_operations = DESCRIBE
    return response


def test_a_missing_right_to_write_is_named(doctor: Doctor) -> None:
    with FakeBroker(topics={"orders": 1}, logins=Logins({"alice": PASSWORD})) as broker:
        broker.control("Metadata", only_describe, times=None)
        fault = doctor(broker.bootstrap_servers, "orders", **login()).fault("topic")

    assert fault["sentence"] == "User 'alice' has no right to write to topic 'orders'."
    assert "ACL that allows WRITE on topic orders" in fault["change"]


def test_a_missing_right_to_see_the_topic_is_named(doctor: Doctor) -> None:
    with FakeBroker(topics={"orders": 1}) as broker:
        broker.fail("Metadata", "TOPIC_AUTHORIZATION_FAILED", topic="orders", times=None)
        fault = doctor(broker.bootstrap_servers, "orders").fault("topic")

    assert "has no right to see topic 'orders'" in fault["sentence"]


def test_a_missing_right_to_read_the_configuration_is_a_warning(doctor: Doctor) -> None:
    with FakeBroker(topics={"orders": 1}) as broker:
        broker.fail("DescribeConfigs", "TOPIC_AUTHORIZATION_FAILED", times=None)
        found = doctor(broker.bootstrap_servers, "orders")

    found.assert_sound()
    assert found.outcomes["topic"] == "warning"
    assert "DESCRIBE_CONFIGS" in found.step("topic")["problems"][0]["change"]


def creating(value: str) -> Any:
    def answer(context: RequestContext) -> DescribeConfigsResponse:
        response = context.apply()
        assert isinstance(response, DescribeConfigsResponse)
        for each in response.results:
            each.error_code = ErrorCode.NONE
            each.configs = [
                DescribeConfigsResourceResult(
                    name="auto.create.topics.enable", value=value, read_only=False, is_sensitive=False
                )
            ]
        return response

    return answer


def test_an_unknown_topic_that_brokers_do_not_create_is_named(doctor: Doctor) -> None:
    with FakeBroker(auto_create_topics=False) as broker:
        broker.control("DescribeConfigs", creating("false"), times=None)
        fault = doctor(broker.bootstrap_servers, "orders").fault("topic")
        servers = broker.bootstrap_servers

    assert fault["sentence"] == "Topic 'orders' does not exist."
    assert f"kafka-topics.sh --bootstrap-server {servers} --create --topic orders;" in fault["change"]
    assert "auto.create.topics.enable is false" in fault["cause"]


def test_an_unknown_topic_that_brokers_create_is_a_warning(doctor: Doctor) -> None:
    with FakeBroker() as broker:
        broker.control("DescribeConfigs", creating("true"), times=None)
        found = doctor(broker.bootstrap_servers, "orders")
        assert not broker.cluster.topics

    found.assert_sound()
    assert "would be created" in found.step("topic")["sentence"]


def test_an_unknown_topic_that_brokers_may_not_create_is_named(doctor: Doctor) -> None:
    with FakeBroker(auto_create_topics=False) as broker:
        fault = doctor(broker.bootstrap_servers, "orders").fault("topic")

    assert "may not read auto.create.topics.enable" in fault["cause"]


def test_too_few_replicas_in_sync_are_named(doctor: Doctor) -> None:
    spec = TopicSpec(config=TopicConfig(min_insync_replicas=2), replication_factor=3)
    with FakeBroker(brokers=3, topics={"orders": spec}) as broker:
        broker.shrink_isr("orders", 0, [1])
        fault = doctor(broker.bootstrap_servers, "orders").fault("topic")
        doctor(broker.bootstrap_servers, "orders", acks="1", enable_idempotence="false").assert_sound()

    assert "Partition 0 of topic 'orders' has 1 replica in sync, and min.insync.replicas is 2" in fault["sentence"]
    assert "brokers 2, 3" in fault["change"]


def test_a_partition_without_a_leader_is_named(doctor: Doctor) -> None:
    with FakeBroker(topics={"orders": 2}) as broker:
        broker.move_leader("orders", 1, -1)
        fault = doctor(broker.bootstrap_servers, "orders").fault("topic")

    assert "Partition 1 of topic 'orders' has no leader" in fault["sentence"]


def test_a_topic_with_smaller_batches_than_the_producer_is_a_warning(doctor: Doctor) -> None:
    with FakeBroker(topics={"orders": TopicSpec(config=TopicConfig(max_message_bytes=1000))}) as broker:
        found = doctor(broker.bootstrap_servers, "orders")

    found.assert_sound()
    assert "max.message.bytes" in found.step("topic")["problems"][0]["cause"]


def test_a_missing_right_to_write_idempotently_is_named(doctor: Doctor) -> None:
    with FakeBroker() as broker:
        broker.fail("InitProducerId", "CLUSTER_AUTHORIZATION_FAILED", times=None)
        fault = doctor(broker.bootstrap_servers).fault("idempotence")

    assert "IDEMPOTENT_WRITE" in fault["change"]


def test_a_loading_coordinator_is_asked_again(doctor: Doctor) -> None:
    with FakeBroker() as broker:
        broker.control(
            "InitProducerId", lambda _: InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        )
        doctor(broker.bootstrap_servers).assert_sound()


def test_a_missing_right_to_the_transactional_id_is_named(doctor: Doctor) -> None:
    with FakeBroker() as broker:
        broker.fail("FindCoordinator", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", times=None)
        fault = doctor(broker.bootstrap_servers, transactional_id="orders-1").fault("transaction")

    assert "has no right to use the transactional id 'orders-1'" in fault["sentence"]


def test_throttling_is_a_warning(doctor: Doctor) -> None:
    with FakeBroker() as broker:
        broker.throttle("Metadata", 5, times=None)
        found = doctor(broker.bootstrap_servers)

    found.assert_sound()
    assert "throttles for 5 ms" in found.step("round trip")["sentence"]


def test_a_test_record_that_is_refused_is_named(doctor: Doctor) -> None:
    with FakeBroker(topics={"orders": 1}) as broker:
        broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", times=None)
        fault = doctor(broker.bootstrap_servers, "orders", "--send").fault("send")

    assert "TOPIC_AUTHORIZATION_FAILED" in fault["cause"]


def test_a_test_record_that_is_not_answered_is_named(doctor: Doctor) -> None:
    with FakeBroker(topics={"orders": 1}) as broker:
        broker.swallow("Produce", times=None)
        fault = doctor(broker.bootstrap_servers, "orders", "--send", "--timeout", "2").fault("send")

    assert "was not acknowledged" in fault["sentence"]


def test_nothing_is_sent_after_a_fault(doctor: Doctor) -> None:
    with FakeBroker(topics={"orders": 2}) as broker:
        broker.move_leader("orders", 1, -1)
        found = doctor(broker.bootstrap_servers, "orders", "--send")
        assert not broker.count("Produce")

    assert found.outcomes["send"] == "skipped"


def ranges(name: str) -> Mapping[int, tuple[int, int]]:
    return {int(key): range_ for key, range_ in RELEASES[name].ranges.items()}


# -- decisions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RELEASES)
def test_the_api_versions_show_the_release(name: str) -> None:
    several = {"3.2": "3.2 to 3.4", "3.3": "3.2 to 3.4", "3.4": "3.2 to 3.4", "4.2": "4.2 to 4.3", "4.3": "4.2 to 4.3"}
    shown = {**several, "4.4": "4.4 or newer"}.get(name, name)

    assert meaning.likely_release(ranges(name)) == f"Kafka {shown}"


def test_api_versions_of_no_release_are_detected() -> None:
    assert meaning.likely_release({}) == "older than Kafka 2.1, or not Kafka"


def test_a_clock_that_is_far_off_is_a_warning() -> None:
    assert meaning.about_clock(-90_000, 10).outcome is Outcome.WARNING
    assert "90000 ms behind ours" in meaning.about_clock(-90_000, 10).sentence
    assert meaning.about_clock(300, 10).outcome is Outcome.OK


# -- a proxy ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def proxy() -> Generator[ProxyServer]:
    """A proxy in another thread."""
    loop, server = asyncio.new_event_loop(), ProxyServer()

    async def serve() -> None:
        async with proxy_server() as running:
            ready.append(running)
            is_ready.set()
            await over.wait()

    ready: list[ProxyServer] = []
    is_ready, over = threading.Event(), asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert is_ready.wait(60)
        server = ready[0]
        yield server
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


def test_a_cluster_is_examined_through_a_proxy(broker: FakeBroker, doctor: Doctor, proxy: ProxyServer) -> None:
    """The proxy alone resolves the names, so nothing can have been contacted directly."""
    proxy.routes = {("kafka.internal", 9092): ("127.0.0.1", int(broker.bootstrap_servers.rpartition(":")[2]))}

    found = doctor("kafka.internal:9092", "orders", "--send", proxy=proxy.url("socks5h"))

    found.assert_sound()
    assert [name for name, outcome in found.outcomes.items() if outcome == "skipped"][:3] == [
        "names",
        "connection",
        "TLS",
    ]
    assert ("kafka.internal", 9092) in proxy.requested
    assert len(broker.records("orders")) == 1


def test_a_proxy_that_refuses_is_a_fault_without_its_password(doctor: Doctor, proxy: ProxyServer) -> None:
    proxy.login = ("alice", "another")

    found = doctor("kafka.internal:9092", proxy=proxy.url("http", f"alice:{PASSWORD}")).fault("API versions")

    assert found["sentence"].startswith("kafka.internal:9092 did not answer through the proxy")
    assert "it rejected the user name and password" in found["cause"]
    assert f"127.0.0.1:{proxy.port}" in found["cause"]
