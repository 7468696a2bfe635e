"""Peers that refuse, hang, lie and babble: nothing hangs with them, nothing is left of them, and nothing storms at them."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any, NoReturn

import pytest

from aioproducer.core.cluster import Node
from aioproducer.errors import BrokerConnectionError, KafkaError, KafkaTimeoutError, ProducerClosed
from aioproducer.net.addresses import Resolver
from aioproducer.protocol import ApiKey, ErrorCode
from aioproducer.protocol.messages import ApiVersion
from aioproducer.testing import FakeBroker
from tests.conftest import Clock, until
from tests.net.peers import (
    Connecting,
    Serve,
    black_hole,
    client_of,
    framed,
    metadata_answer,
    mute,
    peer,
    read_request,
    refusing,
    soon,
    versions_answer,
)

#: With the pauses that users have.
AS_CONFIGURED: dict[str, Any] = {
    "retry_backoff_ms": 100,
    "retry_backoff_max_ms": 1000,
    "reconnect_backoff_ms": 50,
    "reconnect_backoff_max_ms": 1000,
}

#: A peer that hangs is waited for longer than any of these tests takes.
PATIENT: dict[str, Any] = {
    "socket_connection_setup_timeout_ms": 60_000,
    "socket_connection_setup_timeout_max_ms": 60_000,
}


async def close_at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


def saying(data: bytes) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(data)
        await mute(reader, writer)

    return serve


async def close_in_mid_frame(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    header, _ = await read_request(reader)
    writer.write(versions_answer(header)[:-5])
    writer.close()


async def wrong_correlation_id(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    header, _ = await read_request(reader)
    writer.write(versions_answer(header._replace(correlation_id=77)))
    await mute(reader, writer)


async def always_error_35(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        header, _ = await read_request(reader)
        writer.write(framed(struct.pack(">ihi", header.correlation_id, 35, 0)))


async def metadata_without_brokers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        header, _ = await read_request(reader)
        writer.write(
            versions_answer(header) if header.api_key == ApiKey.API_VERSIONS else metadata_answer(header, None)
        )


async def metadata_with_an_error(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        header, _ = await read_request(reader)
        if header.api_key == ApiKey.API_VERSIONS:
            writer.write(versions_answer(header))
        else:
            writer.write(metadata_answer(header, 9092, error_code=ErrorCode.UNKNOWN_SERVER_ERROR))


async def no_metadata(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """As a KRaft controller, whose port is mistaken for a broker's."""
    while True:
        header, _ = await read_request(reader)
        writer.write(versions_answer(header, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)]))


HOSTILE: dict[str, Serve] = {
    "mute": mute,
    "closes at once": close_at_once,
    "http": saying(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "huge length": saying(struct.pack(">i", 0x7FFFFFFF) + b"x" * 100),
    "negative length": saying(struct.pack(">i", -1)),
    "zero length": saying(struct.pack(">i", 0)),
    "garbage": saying(framed(struct.pack(">i", 1) + b"\xde\xad\xbe\xef" * 9)),
    "tls alert": saying(b"\x15\x03\x03\x00\x02\x02\x0a"),
    "wrong correlation id": wrong_correlation_id,
    "closes in mid frame": close_in_mid_frame,
    "error 35 for ever": always_error_35,
    "metadata without brokers": metadata_without_brokers,
    "metadata with an error": metadata_with_an_error,
    "no metadata": no_metadata,
}


@pytest.mark.parametrize("serve", HOSTILE.values(), ids=HOSTILE)
async def test_a_peer_that_is_no_broker_is_reported_with_its_address_in_time(serve: Serve) -> None:
    clock = Clock()
    async with peer(serve) as it, client_of(it.address, socket_connection_setup_timeout_ms=10_000) as client:
        ready = asyncio.create_task(client.wait_ready(soon(30)))
        await until(lambda: it.accepted)
        clock.advance(12)  # the timeout, and its jitter
        await until(lambda: client.last_error is not None)
        clock.advance(20)
        with pytest.raises(KafkaTimeoutError) as caught:
            await ready

        assert it.address in str(caught.value)
        assert isinstance(caught.value.__cause__, KafkaError)
        assert it.address in str(client.last_error), "and the reason also names the address"
        assert len(causes(caught.value)) < 5


def causes(error: BaseException) -> list[BaseException]:
    """Everything that led to it; fails where an error is its own cause, for a reader of the chain would never end."""
    chain = [error]
    while (cause := chain[-1].__cause__) is not None:
        assert cause not in chain
        chain.append(cause)
    return chain


@pytest.mark.parametrize("serve", HOSTILE.values(), ids=HOSTILE)
async def test_a_hostile_bootstrap_server_does_not_keep_the_others_from_being_tried(serve: Serve) -> None:
    with FakeBroker() as broker:
        async with peer(serve) as it, client_of(f"{it.address},{broker.bootstrap_servers}", **PATIENT) as client:
            await client.wait_ready(soon())

            assert client.connected_nodes() == [1]


@pytest.mark.parametrize("unreachable", [refusing, black_hole])
async def test_an_unreachable_bootstrap_server_does_not_keep_the_others_from_being_tried(
    unreachable: Callable[[], AbstractContextManager[str]],
) -> None:
    with FakeBroker() as broker, unreachable() as address:
        async with client_of(f"{address},{broker.bootstrap_servers}", **PATIENT) as client:
            await client.wait_ready(soon())  # and not after the setup timeout

            assert client.connected_nodes() == [1]


async def test_a_server_that_comes_back_is_found_while_another_one_hangs() -> None:
    with FakeBroker() as broker, black_hole() as hole:
        broker.stop_node(1)
        async with client_of(f"{broker.bootstrap_servers},{hole}", **PATIENT) as client:
            ready = asyncio.create_task(client.wait_ready(soon()))
            await until(lambda: client.last_error is not None)
            broker.start_node(1)
            await ready

            assert client.connected_nodes() == [1]


async def test_error_35_with_a_range_is_followed_by_a_question_in_that_range() -> None:
    asked: list[int] = []

    async def old(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            header, _ = await read_request(reader)
            asked.append(header.api_version)
            if header.api_key == 18 and header.api_version > 2:
                writer.write(framed(struct.pack(">ihihhh", header.correlation_id, 35, 1, 18, 0, 2)))
            elif header.api_key == 18:
                writer.write(versions_answer(header))
            else:
                writer.write(metadata_answer(header, it.port))

    async with peer(old) as it, client_of(it.address) as client:
        await client.wait_ready(soon())

    assert asked[:2] == [4, 2]


async def test_error_35_without_a_range_is_followed_by_version_0() -> None:
    asked: list[int] = []

    async def old(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            header, _ = await read_request(reader)
            asked.append(header.api_version)
            if header.api_key == 18 and header.api_version > 0:
                writer.write(framed(struct.pack(">ihi", header.correlation_id, 35, 0)))
            elif header.api_key == 18:
                writer.write(versions_answer(header))
            else:
                writer.write(metadata_answer(header, it.port))

    async with peer(old) as it, client_of(it.address) as client:
        await client.wait_ready(soon())

    assert asked[:2] == [4, 0]


async def test_a_handshake_may_drip_byte_by_byte() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            header, _ = await read_request(reader)
            data = versions_answer(header) if header.api_key == 18 else metadata_answer(header, it.port)
            for byte in data:
                writer.write(bytes([byte]))
                await asyncio.sleep(0)

    async with peer(drip) as it, client_of(it.address) as client:
        await client.wait_ready(soon())

        assert client.connected_nodes() == [1]


@pytest.mark.parametrize(
    ("host", "port"),
    [("", 9092), ("127.0.0.1", 0), ("127.0.0.1", 70000), ("a" * 70, 9092), ("a..b", 9092), ("a\x00b", 9092)],
)
async def test_an_invalid_advertised_address_is_harmless(host: str, port: int) -> None:
    async def advertise(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            header, _ = await read_request(reader)
            writer.write(versions_answer(header) if header.api_key == 18 else metadata_answer(header, port, host=host))

    async with peer(advertise) as it, client_of(it.address) as client:
        await until(lambda: 1 in client.metadata.nodes)
        client.can_send(1)
        await until(lambda: client.last_error is not None)

        assert isinstance(client.last_error, BrokerConnectionError)
        with pytest.raises(KafkaTimeoutError):
            await client.wait_ready(soon(0.02))


async def test_metadata_without_brokers_are_none() -> None:
    answers = 0

    async def starting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal answers
        while True:
            header, _ = await read_request(reader)
            if header.api_key == 18:
                writer.write(versions_answer(header))
                continue
            answers += 1
            writer.write(metadata_answer(header, it.port if answers > 2 else None))

    async with peer(starting) as it, client_of(it.address) as client:
        await client.wait_ready(soon())

    assert answers >= 3


# -- storms -----------------------------------------------------------------------------------------------------------


def most_attempts(seconds: float) -> float:
    """The most attempts to connect in this time: one at once, and then none within 50 ms of another."""
    return 1 + seconds / 0.05


async def test_a_peer_that_closes_at_once_is_not_stormed() -> None:
    async with peer(close_at_once) as it, client_of(it.address, **AS_CONFIGURED) as client:
        began = asyncio.get_running_loop().time()
        with pytest.raises(KafkaTimeoutError):
            await client.wait_ready(soon(0.2))

        assert it.accepted <= most_attempts(asyncio.get_running_loop().time() - began)
        await until(lambda: it.accepted >= 2)


async def test_a_broker_that_closes_after_every_handshake_is_not_stormed() -> None:
    async def fickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        header, _ = await read_request(reader)
        writer.write(versions_answer(header))
        await read_request(reader)
        writer.close()

    async with peer(fickle) as it, client_of(it.address, **AS_CONFIGURED) as client:
        began = asyncio.get_running_loop().time()
        with pytest.raises(KafkaTimeoutError):
            await client.wait_ready(soon(0.22))

        assert it.accepted <= most_attempts(asyncio.get_running_loop().time() - began)
        await until(lambda: it.accepted >= 2)


async def test_while_a_leader_is_down_metadata_are_asked_for_with_growing_pauses() -> None:
    with FakeBroker(brokers=2, topics={"t": 2}) as broker:
        async with client_of(broker, **AS_CONFIGURED) as client:
            await client.wait_topic("t", None, soon())
            leader = broker.leader("t", 0)
            broker.stop_node(leader)
            broker.forget_requests()

            loop = asyncio.get_running_loop()
            began = loop.time()
            async with asyncio.timeout(30):
                while broker.count("Metadata") < 4:
                    client.can_send(leader)  # as the Sender does in every round
                    await asyncio.sleep(0.001)

            assert loop.time() - began > 3 * 0.079, "100 ms each, less 20 %"
            assert str(broker.addresses[leader][1]) in str(client.last_error)


async def test_many_dead_nodes_are_not_all_tried_at_once_again_and_again() -> None:
    with refusing() as nowhere:
        _, port = nowhere.split(":")
        connecting = Connecting()
        async with client_of(nowhere, connect=connecting, **AS_CONFIGURED) as client:
            hosts = {number: f"127.0.1.{number}" for number in range(1, 41)}
            client.metadata.nodes.update({number: Node(number, hosts[number], int(port)) for number in hosts})
            began = asyncio.get_running_loop().time()
            with pytest.raises(KafkaTimeoutError):
                await client.wait_ready(soon(0.2))

            assert len(connecting.tried) <= 41 + most_attempts(asyncio.get_running_loop().time() - began)
            await until(lambda: {*hosts.values()} <= {address.host for address in connecting.tried})  # each is tried


# -- closing in the middle of something -----------------------------------------------------------------------------


async def test_closing_while_connecting_leaves_nothing() -> None:
    connecting = Connecting()
    with black_hole() as hole:
        async with client_of(hole, connect=connecting) as client:
            await until(lambda: connecting.tried)
            waiting = asyncio.create_task(client.wait_ready(soon(30)))
            await asyncio.sleep(0)
            await client.close()

            with pytest.raises(ProducerClosed):
                await waiting


async def test_closing_while_negotiating_closes_the_socket() -> None:
    closed = asyncio.Event()

    async def watch(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await mute(reader, writer)
        finally:
            closed.set()

    async with peer(watch) as it:
        async with client_of(it.address) as client:
            await until(lambda: it.accepted)
            await client.close()
        await asyncio.wait_for(closed.wait(), 20)


async def test_closing_while_a_name_is_looked_up_waits_for_no_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: go_on.wait(60) and [])
    try:
        async with client_of("broker.test:9092") as client:
            with pytest.raises(KafkaTimeoutError):
                await client.wait_ready(soon(0.02))
            async with asyncio.timeout(20):
                await client.close()
    finally:
        go_on.set()


@pytest.mark.parametrize("steps", range(0, 40, 3))
async def test_closing_at_any_step_leaves_nothing(steps: int) -> None:
    with FakeBroker(topics={"t": 1}) as broker:
        async with client_of(broker) as client:
            waiting = asyncio.create_task(client.wait_topic("t", None, soon()))
            for _ in range(steps):
                await asyncio.sleep(0)
            await client.close()
            await asyncio.wait([waiting])

            assert waiting.done()
        await until(lambda: not broker.connections())


# -- names ------------------------------------------------------------------------------------------------------------


async def test_a_look_up_that_hangs_is_not_begun_again_and_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    looked_up: list[str] = []
    plain = socket.getaddrinfo

    def look_up(host: str, *rest: Any, **more: Any) -> Any:
        looked_up.append(host)
        if host == "hangs.test":
            go_on.wait(60)
        return plain("127.0.0.1", *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    try:
        with FakeBroker() as broker:
            port = broker.addresses[1][1]
            options: dict[str, Any] = {
                "socket_connection_setup_timeout_ms": 20,
                "socket_connection_setup_timeout_max_ms": 20,
            }
            async with client_of(f"hangs.test:9092,fine.test:{port}", **options) as client:
                await client.wait_ready(soon())

                assert client.connected_nodes() == [1]
                assert looked_up.count("hangs.test") == 1
    finally:
        go_on.set()


async def test_all_addresses_of_a_name_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeBroker() as broker:
        host, port = broker.addresses[1]
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in ("127.0.0.9", host)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        async with client_of(f"two.test:{port}") as client:
            await client.wait_ready(soon())

            assert client.last_error is None


async def test_a_name_that_is_not_there_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(BrokerConnectionError, match=r"broker nowhere.test:9092 cannot be resolved.*not known"):
        await Resolver().resolve("nowhere.test", 9092)


async def test_a_name_is_looked_up_again_after_there_was_no_thread_for_it() -> None:
    resolver = Resolver()
    before = threading.stack_size(1 << 46)  # as the system has not got
    try:
        with pytest.raises(
            BrokerConnectionError, match="broker localhost:9092 cannot be resolved: can't start new thread"
        ):
            await resolver.resolve("localhost", 9092)
    finally:
        threading.stack_size(before)
    async with asyncio.timeout(10):
        assert await resolver.resolve("localhost", 9092)


@pytest.mark.parametrize("error", [RuntimeError("broken"), MemoryError(), SystemExit("broken")], ids=repr)
@pytest.mark.parametrize("ask", [Resolver.resolve, Resolver.canonical_names])
async def test_an_unexpected_error_of_a_look_up_reaches_everybody_who_waits_for_it(
    monkeypatch: pytest.MonkeyPatch, ask: Callable[[Resolver, str, int], Awaitable[object]], error: BaseException
) -> None:
    def fail(*_: Any, **__: Any) -> NoReturn:
        raise error

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    resolver = Resolver()
    async with asyncio.timeout(10):
        outcomes = await asyncio.gather(
            *(ask(resolver, "nowhere.test", 9092) for _ in range(2)), return_exceptions=True
        )

    for outcome in outcomes:
        assert isinstance(outcome, BrokerConnectionError)
        assert outcome.__cause__ is error
        assert repr(error) in str(outcome)


async def test_numbers_need_no_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", None)

    (address,) = await Resolver().resolve("::1", 9092)

    assert str(address) == "[::1]:9092"


# -- canonical names --------------------------------------------------------------------------------------------------

CANONICAL: dict[str, Any] = {"client_dns_lookup": "resolve_canonical_bootstrap_servers_only"}


def names_are(monkeypatch: pytest.MonkeyPatch, addresses: dict[str, list[str]], names: dict[str, str]) -> None:
    """The system's resolver: the addresses of each name, and the name of each address."""

    def get_address_info(host: str, port: int, **_: Any) -> Any:
        if host not in addresses:
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in addresses[host]]

    def get_host_by_address(address: str) -> tuple[str, list[str], list[str]]:
        if address not in names:
            raise socket.herror(1, "Unknown host")
        return names[address], [], [address]

    monkeypatch.setattr(socket, "getaddrinfo", get_address_info)
    monkeypatch.setattr(socket, "gethostbyaddr", get_host_by_address)


async def test_canonical_names_are_those_that_lead_back_to_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    names_are(
        monkeypatch,
        {
            "alias.test": ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"],
            "one.test": ["10.0.0.1", "10.0.0.2"],
            "elsewhere.test": ["10.9.9.9"],
        },
        {
            "10.0.0.1": "one.test",
            "10.0.0.2": "one.test",
            "10.0.0.4": "elsewhere.test",
            "10.0.0.5": "unknown.test",
        },
    )

    names = await Resolver().canonical_names("alias.test", 9092)

    assert names == ["one.test", "10.0.0.3", "10.0.0.4", "10.0.0.5"]


async def test_each_canonical_name_becomes_a_bootstrap_server(monkeypatch: pytest.MonkeyPatch) -> None:
    names_are(
        monkeypatch,
        {"alias.test": ["127.0.0.2", "127.0.0.3"], "one.test": ["127.0.0.2"], "two.test": ["127.0.0.3"]},
        {"127.0.0.2": "one.test", "127.0.0.3": "two.test"},
    )
    unreached = {"one.test:1", "two.test:1"}

    async with client_of("alias.test:1", **CANONICAL) as client:
        waiting = asyncio.create_task(client.wait_ready(soon()))
        while unreached:
            error = str(client.last_error)
            assert "alias.test" not in error
            unreached -= {name for name in unreached if f"Could not connect to broker {name}" in error}
            await asyncio.sleep(0.001)
        waiting.cancel()


async def test_a_cluster_is_found_by_canonical_names(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeBroker() as broker:
        host, port = broker.addresses[1]
        names_are(monkeypatch, {"alias.test": [host], "one.test": [host]}, {host: "one.test"})
        async with client_of(f"alias.test:{port}", **CANONICAL) as client:
            await client.wait_ready(soon())

            assert client.connected_nodes() == [1]
            assert client.last_error is None


async def test_unresolvable_canonical_names_are_waited_for_no_longer_than_a_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(socket, "gethostbyaddr", lambda _: go_on.wait(60) and ("", [], []))
    options: dict[str, Any] = {"socket_connection_setup_timeout_ms": 20, "socket_connection_setup_timeout_max_ms": 20}
    try:
        async with client_of("127.0.0.1:1", **CANONICAL, **options) as client:
            await until(lambda: client.last_error is not None)
            with pytest.raises(KafkaTimeoutError, match=r"canonical names of broker 127\.0\.0\.1:1 were not resolved"):
                await client.wait_ready(soon(0.2))
    finally:
        go_on.set()
