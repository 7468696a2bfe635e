"""``aioproducer fake-broker`` listens where it is asked to, prints each record that arrives, and ends at Ctrl-C."""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aioproducer import SyncProducer
from aioproducer.cli.fake_broker import VERB
from aioproducer.cli.verb import ExitCode, Trouble
from aioproducer.errors import ConfigError, KafkaError
from aioproducer.testing.certificates import CertificateAuthority

Client = Callable[[str], None]


def run(*arguments: str) -> ExitCode:
    parser = argparse.ArgumentParser()
    VERB.configure(parser)
    return VERB.run(parser.parse_args(arguments))


class Terminal(io.StringIO):
    """The standard output of the verb: runs a client once the address is printed, and presses Ctrl-C after N lines."""

    def __init__(self, lines: int, client: Client | None) -> None:
        super().__init__()
        self._lines = lines
        self._client = client
        self._thread: threading.Thread | None = None

    def flush(self) -> None:
        lines = self.getvalue().splitlines()
        address = re.search(r"127\.0\.0\.1:[\d.:,]*\d", self.getvalue())
        if self._thread is None and self._client is not None and address is not None:
            self._thread = threading.Thread(target=self._client, args=(address[0],))
            self._thread.start()
        if len(lines) >= self._lines:
            self.join()  # otherwise the broker could end before its last response
            raise KeyboardInterrupt

    def join(self) -> list[str]:
        if self._thread is not None:
            self._thread.join()
        return self.getvalue().splitlines()


@pytest.fixture
def lines_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Runs the verb with a client until it has printed ``lines`` lines, and returns them."""

    def run_until(lines: int, client: Client | None, *arguments: str) -> list[str]:
        terminal = Terminal(lines, client)
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", terminal)
            assert run(*arguments) is ExitCode.OK
        return terminal.join()

    return run_until


LinesOf = Callable[..., list[str]]


def sending(*records: tuple[str, dict[str, Any]], **options: Any) -> Client:
    def client(servers: str) -> None:
        with SyncProducer(servers, **options) as producer:
            for topic, record in records:
                producer.send(topic, **record)

    return client


def test_each_record_is_a_line(lines_of: LinesOf) -> None:
    client = sending(
        ("orders", {"key": b"k", "value": b"one", "headers": {"trace": b"1", "empty": None}, "partition": 1}),
        ("orders", {"value": "zwei\n\u00fc".encode(), "partition": 1}),
        ("events", {"key": b"\xff\x00", "value": None}),
    )

    first, *lines = lines_of(4, client, "--port", "0", "--topic", "orders:2")

    assert re.fullmatch(r"Fake broker at 127\.0\.0\.1:\d+; Ctrl-C ends it\.", first)
    assert lines == [
        "orders-1 @ 0  k  one  trace=1, empty=null",
        "orders-1 @ 1  null  zwei\\n\u00fc",
        "events-0 @ 0  \\xff\\x00  null",
    ]


def test_json(lines_of: LinesOf) -> None:
    client = sending(("orders", {"key": b"\xff", "value": "\u00fc", "headers": {"n": None}, "timestamp_ms": 7}))

    address, record = map(json.loads, lines_of(2, client, "--port", "0", "--json", "--topic", "orders"))

    assert address == {"bootstrap_servers": address["bootstrap_servers"], "options": {}}
    assert record == {
        "topic": "orders",
        "partition": 0,
        "offset": 0,
        "timestamp": 7,
        "key": {"base64": "/w=="},
        "value": "\u00fc",
        "headers": [["n", None]],
    }


def test_sigterm_ends_a_quiet_broker(lines_of: LinesOf) -> None:
    records = sending(("orders", {"value": b"one"}))

    def client(servers: str) -> None:
        records(servers)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    assert len(lines_of(9, client, "--port", "0", "-q")) == 1


def test_brokers_listen_at_the_chosen_ports(lines_of: LinesOf) -> None:
    port = free_ports(2)
    arguments = ("--port", str(port), "--brokers", "2", "--topic", "orders:2", "--versions", "2.8")
    client = sending(*(("orders", {"value": b"%d" % n, "partition": n}) for n in (0, 1)))

    lines = lines_of(3, client, *arguments)

    assert f"at 127.0.0.1:{port},127.0.0.1:{port + 1};" in lines[0]
    assert lines[1:] == ["orders-0 @ 0  null  0", "orders-1 @ 0  null  1"]


def test_another_host_can_be_advertised(lines_of: LinesOf) -> None:
    arguments = ("--port", "0", "--host", "0.0.0.0", "--advertise", "broker.test")

    assert re.match(r"Fake broker at broker\.test:\d+;", lines_of(1, None, *arguments)[0])


def test_topics_are_not_created_on_demand_if_that_is_off(lines_of: LinesOf) -> None:
    failures: list[str] = []

    def client(servers: str) -> None:
        with SyncProducer(servers, unknown_topic_timeout_ms=0) as producer:
            try:
                producer.send("payments", b"one")
            except KafkaError as error:
                failures.append(str(error))
            producer.send("orders", b"two")

    lines = lines_of(2, client, "--port", "0", "--topic", "orders", "--no-auto-create")

    assert lines[1] == "orders-0 @ 0  null  two"
    assert "payments" in failures[0]


def test_a_login_over_tls(lines_of: LinesOf, tmp_path: Path) -> None:
    authority = CertificateAuthority()
    identity = authority.issue("127.0.0.1")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert.write_text(identity.certificate)
    key.write_text(identity.key)
    client = sending(
        ("orders", {"value": b"secret"}),
        security_protocol="SASL_SSL",
        ssl_truststore_certificates=authority.pem,
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username="alice",
        sasl_password="wonder:land",
    )
    login = ("--user", "alice:wonder:land", "--mechanism", "SCRAM-SHA-512")

    lines = lines_of(3, client, "--port", "0", *login, "--tls-cert", str(cert), "--tls-key", str(key))

    assert lines[1:] == [
        "Clients need security.protocol=SASL_SSL sasl.mechanism=SCRAM-SHA-512",
        "orders-0 @ 0  null  secret",
    ]


def test_a_port_in_use_is_trouble() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(Trouble, match=r"Cannot listen at 127\.0\.0\.1, port \d+: Address already in use"):
            run("--port", str(taken.getsockname()[1]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--port", "65535", "--brokers", "2"), "ports above 65535"),
        (("--mechanism", "PLAIN"), "--mechanism needs --user"),
        (("--tls-key", "key.pem"), "needs --tls-cert"),
        (("--tls-cert", "/no/such/file"), "cannot be used: No such file"),
        (("--host", "192.0.2.1", "--port", "0"), "Cannot listen at 192.0.2.1"),
    ],
)
def test_trouble(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(Trouble, match=message):
        run(*arguments)


@pytest.mark.parametrize("arguments", [("--versions", "0.1"), ("--topic", "a/b")])
def test_a_release_or_topic_that_the_broker_refuses(arguments: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError):
        run(*arguments)


@pytest.mark.parametrize(
    "arguments", [("--topic", ":3"), ("--topic", "a:0"), ("--user", "alice"), ("--port", "70000"), ("--brokers", "0")]
)
def test_invalid_arguments(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(*arguments)
    assert arguments[0] in capsys.readouterr().err


def free_ports(number: int) -> int:
    """The first of some ports in a row that are free now, below those that the system hands out by itself."""
    for port in range(20_000 + os.getpid() % 10_000, 32_000, number):
        try:
            for each in range(port, port + number):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", each))
        except OSError:
            continue
        return port
    raise AssertionError("no free ports")
