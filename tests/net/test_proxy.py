"""Connections to brokers through a SOCKS 5 or HTTP proxy."""

from __future__ import annotations

import asyncio
import gc
import pickle
import socket
import subprocess
import sys
import traceback
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from aioproducer import BrokerConnectionError, ConfigError, KafkaTimeoutError, Producer
from aioproducer._config.proxy_url import ProxyAddress, parse_proxy
from aioproducer.cli.main import main
from aioproducer.config import ProducerConfig, Secret
from aioproducer.core.cluster import Node
from aioproducer.errors import AuthenticationError
from aioproducer.net.connector import Connector, Established
from aioproducer.testing import FakeBroker
from aioproducer.testing.broker.logins import Logins
from aioproducer.testing.certificates import CertificateAuthority
from tests.conftest import QUICK, Clock, opened, until
from tests.net.peers import refusing
from tests.net.proxy_server import Fault, proxy_server

SCHEMES = ("socks5", "socks5h", "http")
#: The schemes with which the proxy resolves names.
NAMING = ("socks5h", "http")
LOGIN = ("me", "p@ss:w/rd#1")
ENCODED = "me:p%40ss%3Aw%2Frd%231"
BROKER = Node(1, "kafka.internal", 9092)


def behind(broker: FakeBroker) -> dict[tuple[str, int], tuple[str, int]]:
    """Let the broker advertise names and ports that exist only behind a proxy, and return its routes."""
    routes: dict[tuple[str, int], tuple[str, int]] = {}
    for node in broker.cluster.nodes.values():
        name, port = f"kafka-{node.node_id}.internal", 9092
        routes[name, port] = (node.host, node.port)
        node.host, node.port = name, port
    return routes


def servers(routes: dict[tuple[str, int], tuple[str, int]]) -> str:
    return ",".join(f"{host}:{port}" for host, port in routes)


@asynccontextmanager
async def connector(proxy: str, **options: Any) -> AsyncGenerator[Connector]:
    config = ProducerConfig("kafka.internal:9092", proxy=proxy, **options)
    it = Connector(config, "test", Random(1))
    try:
        yield it
    finally:
        await it.close(BrokerConnectionError("The test is over."))


async def connected(to: Connector, node: Node = BROKER, limit_s: float = 20.0) -> Established:
    return await to.connect(node, 0, limit_s, _ignore)


def _ignore(*_: object) -> None:
    pass


def resolving(hosts: Sequence[str], port: int) -> Callable[..., Any]:
    """A look-up that finds these addresses for each name."""

    def look_up(*_: object, **__: object) -> Any:
        families = [socket.AF_INET6 if ":" in host else socket.AF_INET for host in hosts]
        return [(family, socket.SOCK_STREAM, 6, "", (host, port)) for family, host in zip(families, hosts, strict=True)]

    return look_up


async def failure(proxy: str, node: Node = BROKER, **options: Any) -> str:
    """The sentence of a connection that must fail."""
    async with connector(proxy, **options) as it:
        with pytest.raises(BrokerConnectionError) as failed:
            await connected(it, node)
    assert not isinstance(failed.value, AuthenticationError)
    assert not any("python_socks" in file for file in files_of(failed.value)), "its frames hold the password"
    assert "p@ss" not in str(failed.value)
    assert "p%40" not in str(failed.value)
    return str(failed.value)


def files_of(error: BaseException | None) -> Iterator[str]:
    """The files of all frames that the error keeps, with those of its causes."""
    while error is not None:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            yield frame.f_code.co_filename
        error = error.__cause__ or error.__context__


@pytest.fixture
def no_names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hosts that this machine was asked to resolve; only addresses can be."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def look_up(host: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(host, str) and not host.replace(".", "").isdigit():
            asked.append(host)
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return asked


# -- records through a proxy ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_records_arrive_through_each_kind_of_proxy(scheme: str) -> None:
    with FakeBroker(brokers=2, topics={"orders": 4}) as broker:
        async with proxy_server() as proxy, opened(broker, proxy=proxy.url(scheme)) as producer:
            for partition in range(4):
                await producer.send("orders", b"value", partition=partition)
            assert set(proxy.requested) == set(broker.addresses.values())
        assert len(broker.records("orders")) == 4
        assert len(broker.connections()) + len(broker.connections(closed=True)) >= 2


@pytest.mark.parametrize("scheme", NAMING)
async def test_only_the_proxy_resolves_names_and_only_the_proxy_is_contacted(scheme: str, no_names: list[str]) -> None:
    contacted: list[object] = []
    loop: Any = asyncio.get_running_loop()
    connect = loop.sock_connect

    async def sock_connect(sock: socket.socket, address: object) -> None:
        contacted.append(address)
        await connect(sock, address)

    with FakeBroker(brokers=2, topics={"orders": 4}) as broker:
        routes = behind(broker)
        async with proxy_server(routes=routes) as proxy:
            loop.sock_connect = sock_connect
            async with opened(servers(routes), proxy=proxy.url(scheme)) as producer:
                for partition in range(4):
                    await producer.send("orders", b"value", partition=partition)
            assert set(proxy.requested) == set(routes)
            at_proxy = [each for each in contacted if each == ("127.0.0.1", proxy.port)]
            assert len(at_proxy) == proxy.accepted
            assert len(contacted) - len(at_proxy) == proxy.relayed  # by the proxy, which runs in the same event loop
    assert no_names == []


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_proxy_gets_the_user_name_and_the_password_decoded(scheme: str, broker: FakeBroker) -> None:
    async with proxy_server(login=LOGIN) as proxy:
        async with opened(broker, proxy=proxy.url(scheme, ENCODED)) as producer:
            await producer.send("orders", b"value")
        assert set(proxy.logins) == {LOGIN}


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_tls_goes_to_the_broker_whose_name_is_verified(scheme: str, no_names: list[str]) -> None:
    authority = CertificateAuthority()
    name = "127.0.0.1" if scheme == "socks5" else "kafka-1.internal"
    with FakeBroker(topics={"orders": 1}, tls=authority.server_context(name)) as broker:
        routes = {} if scheme == "socks5" else behind(broker)
        tls: dict[str, Any] = {"security_protocol": "SSL", "ssl_truststore_certificates": authority.pem}
        async with proxy_server(routes=routes) as proxy:
            async with opened(broker, proxy=proxy.url(scheme), **tls) as producer:
                await producer.send("orders", b"value")
            node = Node(1, *broker.addresses[1])
            other = Node(1, "other.internal", 9092)
            proxy.routes = {("other.internal", 9092): routes.get((node.host, node.port), (node.host, node.port))}
            if scheme != "socks5":
                async with connector(proxy.url(scheme), **tls) as it:
                    with pytest.raises(AuthenticationError, match=r"its certificate is not for 'other\.internal'"):
                        await connected(it, other)
                await until(lambda: proxy.open == 0)
    assert no_names == []


async def test_a_password_is_not_sent_in_the_clear_because_the_proxy_is_on_this_machine() -> None:
    """Such a proxy may be the end of an SSH tunnel to any network."""
    with FakeBroker(topics={"orders": 1}, logins=Logins(users={"alice": "secret"})) as broker:
        login: dict[str, Any] = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_username": "alice",
            "sasl_password": "secret",
        }
        async with proxy_server() as proxy:
            node = Node(1, *broker.addresses[1])
            async with connector(proxy.url("socks5"), **login) as it:
                with pytest.raises(AuthenticationError, match="sasl_allow_plaintext_secrets"):
                    await connected(it, node)
            async with connector(proxy.url("socks5"), **{**login, "sasl_mechanism": "SCRAM-SHA-256"}) as it:
                await connected(it, node)
            async with connector(proxy.url("socks5"), **login, sasl_allow_plaintext_secrets=True) as it:
                await connected(it, node)
    assert len(broker.cluster.logins.seen if broker.cluster.logins else []) == 2


async def test_with_socks5_this_machine_resolves_names_and_their_addresses_are_tried_in_turn(
    monkeypatch: pytest.MonkeyPatch, broker: FakeBroker
) -> None:
    port = broker.addresses[1][1]
    async with proxy_server(refuses=frozenset({"127.0.0.9", "2001:db8::1"})) as proxy:
        monkeypatch.setattr(socket, "getaddrinfo", resolving(["127.0.0.9", "2001:db8::1", "127.0.0.1"], port))
        async with connector(proxy.url("socks5")) as it:
            await connected(it, Node(1, "kafka.internal", port))
        assert proxy.requested == [("127.0.0.9", port), ("2001:db8::1", port), ("127.0.0.1", port)]


@pytest.mark.parametrize("scheme", NAMING)
@pytest.mark.parametrize(
    ("host", "sent"),
    [
        ("::1", "::1"),
        ("10.1.2.3", "10.1.2.3"),
        ("Kafka_1.internal.", "Kafka_1.internal."),
        ("bücher.example", "xn--bcher-kva.example"),
    ],
)
async def test_a_proxy_gets_any_valid_host(scheme: str, host: str, sent: str) -> None:
    async with proxy_server(fault=Fault.REFUSE, code=5 if scheme == "socks5h" else 502) as proxy:
        await failure(proxy.url(scheme), Node(1, host, 9092))
        assert proxy.requested == [(sent, 9092)]


@pytest.mark.parametrize("scheme", NAMING)
@pytest.mark.parametrize("host", ["", "a b", "x\r\nEvil: 1", "fe80::1%\r\nEvil: 1", "a..b", "x" * 300, "a/b", "::x"])
async def test_a_host_that_is_none_does_not_reach_the_proxy(scheme: str, host: str) -> None:
    async with proxy_server() as proxy:
        assert "Check advertised.listeners" in await failure(proxy.url(scheme), Node(1, host, 9092))
        assert "Check advertised.listeners" in await failure(proxy.url(scheme), Node(1, "kafka", 0))
        assert proxy.accepted == 0


# -- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (1, "could not connect to broker 1 (kafka.internal:9092): it reports a general failure; check that"),
        (
            2,
            "its rules do not allow that; allow this host and port in its rules.",
        ),
        (3, "the network is unreachable from there; check that the proxy can reach the broker."),
        (4, "the host is unreachable from there, or its name is unknown; check that"),
        (5, "nothing accepts connections at that address; check that the proxy can reach the broker."),
        (6, "TTL expired"),
        (7, "does not support CONNECT; use another proxy."),
        (8, "does not support this kind of address; use another proxy, or another of socks5:// and socks5h://."),
        (99, "is it a proxy for SOCKS 5?"),
    ],
)
async def test_a_refusal_of_socks(code: int, sentence: str) -> None:
    async with proxy_server(fault=Fault.REFUSE, code=code) as proxy:
        reported = await failure(proxy.url("socks5h"))
        assert reported.startswith(f"The proxy socks5h://127.0.0.1:{proxy.port} ")
        assert sentence in reported
        await until(lambda: proxy.open == 0)


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (403, "refused to connect to broker 1 (kafka.internal:9092): HTTP 403 Forbidden; allow this host and port"),
        (499, "HTTP 499; allow this host and port in its rules, for CONNECT."),
        (502, "could not connect to broker 1 (kafka.internal:9092): HTTP 502 Bad Gateway; check that the proxy"),
        (302, "HTTP 302 Found; is it a proxy for CONNECT?"),
    ],
)
async def test_a_refusal_of_http(code: int, sentence: str) -> None:
    async with proxy_server(fault=Fault.REFUSE, code=code) as proxy:
        reported = await failure(proxy.url("http"))
        assert reported.startswith(f"The proxy http://127.0.0.1:{proxy.port} ")
        assert sentence in reported
        await until(lambda: proxy.open == 0)


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_proxy_that_requires_a_login(scheme: str) -> None:
    node = Node(1, "127.0.0.1", 9092)
    async with proxy_server(login=("me", "right")) as proxy:
        at = f"127.0.0.1:{proxy.port}"
        reported = await failure(proxy.url(scheme), node)
        assert reported == (
            f"The proxy {scheme}://{at} refused to connect to broker {node}: it requires a login; write it into the "
            f"option proxy, as in {scheme}://user:password@{at}."
        )
        reported = await failure(proxy.url(scheme, ENCODED), node)
        assert reported == (
            f"The proxy {scheme}://{at} refused to connect to broker {node}: it rejected the user name and password; "
            f"correct them in the option proxy."
        )
        assert proxy.requested == []
        await until(lambda: proxy.open == 0)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("garbage", [None, b"\x04\x00" * 9, b"HTTP/1.1 what\r\n\r\n", b"\xff" * 99])
async def test_a_proxy_that_closes_the_connection_or_sends_garbage(scheme: str, garbage: bytes | None) -> None:
    node = Node(1, "127.0.0.1", 9092)
    fault = Fault.CLOSE if garbage is None else Fault.GARBAGE
    async with proxy_server(fault=fault, garbage=garbage or b"") as proxy:
        reported = await failure(proxy.url(scheme, ENCODED), node)
        name = "HTTP" if scheme == "http" else "SOCKS 5"
        assert reported == (
            f"The proxy {scheme}://127.0.0.1:{proxy.port} did not connect to broker {node}: it closed the "
            f"connection, or sent something that is not {name}; is it a proxy for {name}?"
        )
        await until(lambda: proxy.open == 0)


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_proxy_that_does_not_run(scheme: str) -> None:
    node = Node(1, "127.0.0.1", 9092)
    with refusing() as address:
        assert await failure(f"{scheme}://{ENCODED}@{address}", node) == (
            f"Could not connect to broker {node}: the proxy {scheme}://{address} is unreachable: Connection refused. "
            f"Check the option proxy, and whether the proxy runs."
        )


@pytest.mark.usefixtures("no_names")
async def test_a_proxy_whose_name_is_unknown() -> None:
    assert await failure("http://me:pw@proxy.internal:3128") == (
        f"Could not connect to broker {BROKER}: the name of the proxy http://proxy.internal:3128 cannot be resolved: "
        f"[Errno -2] Name or service not known. Check the option proxy."
    )


async def test_all_addresses_of_the_proxy_are_tried(monkeypatch: pytest.MonkeyPatch, broker: FakeBroker) -> None:
    async with proxy_server() as proxy:
        monkeypatch.setattr(socket, "getaddrinfo", resolving(["127.0.0.2", "127.0.0.1"], proxy.port))
        async with connector(f"socks5h://proxy.internal:{proxy.port}") as it:
            await connected(it, Node(1, *broker.addresses[1]))
        assert proxy.accepted == 1


# -- time and cancellation --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("fault", [Fault.HANG, Fault.HANG_AFTER_REQUEST])
async def test_a_proxy_that_is_silent_has_no_longer_than_the_attempt(scheme: str, fault: Fault) -> None:
    clock = Clock()
    node = Node(1, "127.0.0.1", 9092)
    async with proxy_server(fault=fault) as proxy, connector(proxy.url(scheme, ENCODED)) as it:
        attempt = asyncio.create_task(connected(it, node, limit_s=100.0))
        await until(lambda: proxy.accepted)
        clock.advance(99.0)
        await asyncio.sleep(0.01)
        assert not attempt.done()
        clock.advance(2.0)
        with pytest.raises(BrokerConnectionError) as failed:
            await attempt
        assert str(failed.value) == (
            f"Could not connect to broker {node} within 100 s: the proxy {scheme}://127.0.0.1:{proxy.port} accepted the "
            f"connection but did not connect to the broker in this time."
        )
        assert not any("python_socks" in file for file in files_of(failed.value)), "its frames hold the password"
        await until(lambda: proxy.open == 0)


async def test_an_address_that_the_proxy_does_not_reach_has_a_share_of_the_time(
    monkeypatch: pytest.MonkeyPatch, broker: FakeBroker
) -> None:
    clock = Clock()
    port = broker.addresses[1][1]
    monkeypatch.setattr(socket, "getaddrinfo", resolving(["127.0.0.9", "127.0.0.1"], port))
    async with proxy_server(fault=Fault.HANG_AFTER_REQUEST) as proxy, connector(proxy.url("socks5")) as it:
        attempt = asyncio.create_task(connected(it, Node(1, "kafka.internal", port), limit_s=200.0))
        await until(lambda: proxy.requested)
        proxy.fault = None
        clock.advance(101.0)
        await attempt
        assert proxy.requested == [("127.0.0.9", port), ("127.0.0.1", port)]


async def test_a_proxy_that_does_not_accept_has_no_longer_than_the_attempt() -> None:
    clock = Clock()
    asked = asyncio.Event()
    loop: Any = asyncio.get_running_loop()

    async def sock_connect(*_: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    loop.sock_connect = sock_connect
    async with connector("http://me:pw@127.0.0.1:3128") as it:
        attempt = asyncio.create_task(connected(it, limit_s=100.0))
        await asked.wait()
        clock.advance(101.0)
        with pytest.raises(BrokerConnectionError) as failed:
            await attempt
    assert str(failed.value) == (
        f"Could not connect to broker {BROKER} within 100 s: the proxy http://127.0.0.1:3128 did not accept the connection."
    )


async def test_an_address_of_the_proxy_that_is_silent_has_a_share_of_the_time(
    monkeypatch: pytest.MonkeyPatch, broker: FakeBroker
) -> None:
    clock = Clock()
    asked = asyncio.Event()
    loop: Any = asyncio.get_running_loop()
    connect = loop.sock_connect

    async def sock_connect(sock: socket.socket, address: tuple[str, int]) -> None:
        if address[0] == "127.0.0.9":
            asked.set()
            await asyncio.Event().wait()
        await connect(sock, address)

    loop.sock_connect = sock_connect
    async with proxy_server() as proxy, connector(f"http://proxy.internal:{proxy.port}") as it:
        monkeypatch.setattr(socket, "getaddrinfo", resolving(["127.0.0.9", "127.0.0.1"], proxy.port))
        attempt = asyncio.create_task(connected(it, Node(1, *broker.addresses[1]), limit_s=200.0))
        await asked.wait()
        clock.advance(101.0)
        await attempt
        assert proxy.accepted == 1


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("fault", [Fault.HANG, Fault.HANG_AFTER_REQUEST])
async def test_cancellation_leaves_no_socket_and_no_task(scheme: str, fault: Fault) -> None:
    gc.collect()
    async with proxy_server(fault=fault) as proxy, connector(proxy.url(scheme)) as it:
        before = asyncio.all_tasks()
        attempt = asyncio.create_task(connected(it, Node(1, "127.0.0.1", 9092)))
        await until(lambda: proxy.accepted and (fault is Fault.HANG or proxy.requested))
        gc.disable()
        try:
            attempt.cancel()
            with pytest.raises(asyncio.CancelledError):
                await attempt
            assert asyncio.all_tasks() - before - proxy.tasks == set()
            await until(lambda: proxy.open == 0)  # by closing, since the garbage collector is off
        finally:
            gc.enable()


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_cancellation_at_any_turn_leaves_no_socket(scheme: str, broker: FakeBroker) -> None:
    node = Node(1, *broker.addresses[1])
    async with proxy_server() as proxy, connector(proxy.url(scheme)) as it:
        for turns in range(60):
            attempt = asyncio.create_task(connected(it, node))
            for _ in range(turns):
                await asyncio.sleep(0)
            attempt.cancel()
            await asyncio.wait([attempt])
            if not attempt.cancelled():
                attempt.result().connection.abort(BrokerConnectionError("The test has seen it."))
        await until(lambda: proxy.open == 0)
        await until(lambda: not broker.connections())


async def test_a_producer_that_closes_during_the_handshake_leaves_no_socket() -> None:
    async with proxy_server(fault=Fault.HANG) as proxy:
        async with opened("127.0.0.1:9092", proxy=proxy.url("socks5h")):
            await until(lambda: proxy.accepted)
        await until(lambda: proxy.open == 0)


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_records_arrive_after_the_proxy_was_down(scheme: str, broker: FakeBroker) -> None:
    async with (
        proxy_server() as proxy,
        opened(broker, proxy=proxy.url(scheme), reconnect_backoff_max_ms=20) as producer,
    ):
        await producer.send("orders", b"first")
        await proxy.stop()
        sending = asyncio.create_task(producer.send("orders", b"second"))
        await asyncio.sleep(0.05)
        assert not sending.done()
        await proxy.start()
        await sending
    broker.assert_sent("orders", value=b"second")


async def test_a_call_that_waited_in_vain_names_the_proxy() -> None:
    async with proxy_server(fault=Fault.REFUSE, code=2) as proxy:
        async with Producer("kafka.internal:9092", proxy=proxy.url("socks5h"), close_timeout_ms=0, **QUICK) as producer:
            with pytest.raises(KafkaTimeoutError) as failed:
                await producer.ready(0.5)
        assert f"The proxy socks5h://127.0.0.1:{proxy.port} refused to connect" in str(failed.value.__cause__)
        assert proxy.accepted > 1  # it is tried again, like any other connection


# -- the option -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("socks5://proxy", ProxyAddress("socks5", "proxy", 1080)),
        ("SOCKS5H://proxy:1081/", ProxyAddress("socks5h", "proxy", 1081)),
        ("http://[::1]:3128", ProxyAddress("http", "::1", 3128)),
        ("http://m%65:p%40%3A@10.0.0.1:1", ProxyAddress("http", "10.0.0.1", 1, Secret("me"), Secret("p@:"))),
        ("socks5://me:a@b:c@h:1", ProxyAddress("socks5", "h", 1, Secret("me"), Secret("a@b:c"))),
    ],
)
def test_a_url_is_parsed(url: str, address: ProxyAddress) -> None:
    config = ProducerConfig("h:1", proxy=url)
    assert config.proxy == Secret(url)
    assert parse_proxy(Secret(url)) == address


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "empty"),
        ("proxy:1080", "must begin with one of socks5://, socks5h://, http:// and a host"),
        ("https://hunter2:1", "reached by TLS, and SOCKS 4, are not supported"),
        ("socks4://hunter2:1", "reached by TLS, and SOCKS 4, are not supported"),
        ("socks5://", "must begin with"),
        ("http://hunter2", "has no port"),
        ("socks5://hunter2:0", "invalid port"),
        ("socks5://hunter2:65536", "invalid port"),
        ("socks5://me:hunter2", "no valid host and port"),
        ("socks5://hunter 2:1", "no valid host and port"),
        ("socks5://[hunter2]:1", "no valid host and port"),
        ("socks5://[1::2::3]:1", "no valid host and port"),
        ("socks5://::1:1080", "no valid host and port"),
        ("socks5://me@h:1", "write user:password@host"),
        ("socks5://:hunter2@h:1", "write user:password@host"),
        ("socks5://me:@h:1", "write user:password@host"),
        ("socks5://me:hunter2/x@h:1", "percent-encoded"),
        ("socks5://me:hunter2#x@h:1", "percent-encoded"),
        ("socks5://h:1/hunter2", "leave that out"),
        ("socks5://h:1?hunter2=1", "leave that out"),
        ("socks5://me:hunter2%C3%BC@h:1", "The password in proxy must be at most 255 printable ASCII"),
        ("socks5://me:hunter2%0a@h:1", "The password in proxy must be at most 255 printable ASCII"),
        (f"socks5://{'hunter2' * 40}:x@h:1", "The user name in proxy must be at most 255 printable ASCII"),
        ("http://hunter2%3A:x@h:1", "has a colon"),
        (7, "of type int"),
    ],
)
def test_an_invalid_url_is_refused_and_not_shown(url: Any, reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ProducerConfig("h:1", proxy=url)
    assert reason in str(refused.value)
    assert "hunter2" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None


def test_no_repr_shows_the_credentials(capsys: pytest.CaptureFixture[str]) -> None:
    config = ProducerConfig("h:1", proxy="socks5://me:hunter2@proxy:1080")
    assert "proxy='socks5://***@proxy:1080'" in repr(config)
    assert "hunter2" not in repr(config) + repr(config.proxy) + repr(parse_proxy(config.proxy or Secret("")))
    assert "proxy='socks5://proxy:1080'" in repr(ProducerConfig("h:1", proxy="socks5://proxy"))
    assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_the_command_line_takes_the_option_and_masks_it(form: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["config", "--effective", "-b", "h:1", "-X", "proxy=socks5://me:hunter2@proxy:1080", *form]
    assert main(arguments) == 0
    shown = capsys.readouterr()
    assert "proxy" in shown.out
    assert "***" in shown.out
    assert "hunter2" not in shown.out + shown.err


def test_environment_variables_of_other_programs_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "socks5://proxy")
        monkeypatch.setenv(name.lower(), "socks5://proxy")
    assert ProducerConfig("h:1").proxy is None
    assert ProducerConfig.from_env(bootstrap_servers="h:1").proxy is None
    assert ProducerConfig.from_env(environ={"KAFKA_PROXY": "http://p:1"}, bootstrap_servers="h:1").proxy is not None


def test_names_are_not_resolved_here_for_a_proxy_that_resolves_them() -> None:
    canonical: Any = {"client_dns_lookup": "resolve_canonical_bootstrap_servers_only"}
    with pytest.raises(ConfigError, match=r"the proxy http://p:1 resolves them itself") as refused:
        ProducerConfig("h:1", proxy="http://me:hunter2@p:1", **canonical)
    assert "hunter2" not in str(refused.value)
    ProducerConfig("h:1", proxy="socks5://p", **canonical)


async def test_without_the_library_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "python_socks", None)
    with pytest.raises(ConfigError, match=r"pip install 'aioproducer\[proxy\]'"):
        async with Producer("h:1", proxy="socks5://p"):
            pass


def test_only_a_producer_with_a_proxy_imports_the_library() -> None:
    program = """
import asyncio, sys
from aioproducer import Producer
from aioproducer.testing import FakeBroker

def loaded():
    return any(name.startswith(("python_socks", "aioproducer.net.proxy")) for name in sys.modules)

async def run(servers, **options):
    async with Producer(servers, **options) as producer:
        before = set(sys.modules)
        if options:
            assert loaded()
        else:
            await producer.send("t", b"x")
            assert not loaded()

with FakeBroker() as broker:
    asyncio.run(run(broker.bootstrap_servers))
    asyncio.run(run(broker.bootstrap_servers, proxy="socks5://127.0.0.1:9", close_timeout_ms=0))
"""
    subprocess.run([sys.executable, "-c", program], check=True)
