"""While no broker is reached the log says so, and what to look at: soon, then ever more rarely; and when it is over."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from aioproducer import Producer
from aioproducer.config import ProducerConfig
from aioproducer.net.addresses import Address
from aioproducer.net.client import NetworkClient
from aioproducer.net.connection import Connection
from aioproducer.protocol import ApiKey, RequestHeader
from aioproducer.runtime.log import ClientLog
from aioproducer.testing import FakeBroker, Logins
from tests.conftest import Clock, opened, turns, until
from tests.net.peers import FirstIsFirst, metadata_answer, refusing
from tests.net.virtual import Wire, respond, run_virtually

HOUR = 3600.0
#: The ages at which an outage is reported within its first twenty minutes.
REPORTS = [3, 6, 12, 30, 60, 120, 300, 600, 1200]


class Line(NamedTuple):
    at: float
    text: str


class _Lines(logging.Handler):
    """The lines of INFO and above, each with the event loop's time."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[Line] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(Line(asyncio.get_running_loop().time(), record.getMessage()))


@pytest.fixture
def lines() -> Iterator[list[Line]]:
    handler = _Lines()
    logger = logging.getLogger("aioproducer")
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel(logging.INFO)
    yield handler.lines
    logger.setLevel(level)
    logger.removeHandler(handler)


def refused() -> OSError:
    return ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))


class Cluster:
    """Answers at one address as long as it is there; where it is not, ``error`` is what an attempt to connect meets."""

    def __init__(self) -> None:
        self.is_there = False
        self.error: Callable[[], BaseException | None] = refused
        self.wires: list[Wire] = []
        self.respond: Callable[[RequestHeader], bytes | None] = respond
        self.closed_ports: set[int] = set()

    async def connect(self, make: Callable[[], Connection], address: Address) -> Connection:
        if not self.is_there or address.port in self.closed_ports:
            error = self.error()
            if error is None:
                await asyncio.get_running_loop().create_future()
            else:
                raise error
        wire = Wire(make(), self.respond)
        wire.connection.connection_made(wire)
        self.wires.append(wire)
        return wire.connection

    def go(self) -> None:
        """Be away from now on."""
        self.is_there = False
        for wire in self.wires:
            wire.abort()
        self.wires.clear()


@asynccontextmanager
async def client_of(cluster: Cluster, servers: str = "127.0.0.1:9092", **options: Any) -> AsyncIterator[NetworkClient]:
    client = NetworkClient(
        ProducerConfig(servers, **options),
        client_id="shop",
        log=ClientLog("shop"),
        random=FirstIsFirst(1),
        on_ready=lambda: None,
        connect=cluster.connect,
    )
    running = asyncio.create_task(client.run())
    try:
        yield client
    finally:
        await client.close()
        await running


def times(lines: list[Line], since: float = 0.0) -> list[float]:
    return [round(line.at - since, 1) for line in lines]


def virtually(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtually(scenario())


# -- never reached ----------------------------------------------------------------------------------------------------


def test_a_producer_that_never_reaches_kafka_logs_it_ever_more_rarely(lines: list[Line]) -> None:
    async def scenario() -> None:
        async with Producer(closed, client_id="shop", close_timeout_ms=0):
            await asyncio.sleep(HOUR)

    with refusing() as closed:
        virtually(scenario)

    assert times(lines) == pytest.approx([*REPORTS, 1800, 2400, 3000, 3600], abs=0.1)
    assert all(closed in text and "Connection refused" in text for _, text in lines)
    assert [text.split(" (")[0] for _, text in lines[:8]] == [
        f"[shop] Kafka has not been reached for {time} since the start"
        for time in ("3 s", "6 s", "12 s", "30 s", "60 s", "2 min", "5 min", "10 min")
    ]


def test_the_line_names_servers_time_error_and_what_to_look_at(lines: list[Line]) -> None:
    async def scenario() -> None:
        async with client_of(Cluster(), "127.0.0.1:9092,127.0.0.2:9093"):
            await asyncio.sleep(4)

    virtually(scenario)

    ((_, text),) = lines
    assert text.startswith(
        "[shop] Kafka has not been reached for 3 s since the start (bootstrap servers 127.0.0.1:9092, 127.0.0.2:9093). "
        "Last error: Could not connect to broker 127.0.0."
    )
    assert text.endswith(
        ": Connection refused. Check that Kafka is running, and that host and port are those of one of its listeners. "
        "Still trying."
    )


def test_one_line_is_logged_when_it_is_reached_at_last(lines: list[Line]) -> None:
    async def scenario() -> None:
        cluster = Cluster()
        async with client_of(cluster, reconnect_backoff_max_ms=100):
            await asyncio.sleep(45)
            cluster.is_there = True
            await asyncio.sleep(HOUR)

    virtually(scenario)

    assert times(lines) == pytest.approx([3, 6, 12, 30, 45], abs=0.2)
    assert lines[-1].text == "[shop] Kafka was reached after 45 s."


@pytest.mark.parametrize("seconds", [0.0, 2.5])
def test_a_start_that_takes_a_moment_logs_nothing(lines: list[Line], seconds: float) -> None:
    async def scenario() -> None:
        cluster = Cluster()
        async with client_of(cluster, reconnect_backoff_max_ms=100, connections_max_idle_ms=20_000):
            await asyncio.sleep(seconds)
            cluster.is_there = True
            await asyncio.sleep(HOUR)
            assert len(cluster.wires) > 5, "idle connections were closed, and opened again"

    virtually(scenario)

    assert lines == []


async def test_a_healthy_producer_logs_nothing(broker: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with opened(broker) as producer:
        await producer.send("orders", b"value")

    assert [line for line in caplog.records if line.name.startswith("aioproducer")] == []


# -- reached before ---------------------------------------------------------------------------------------------------


def test_a_cluster_that_goes_away_is_reported_as_rarely_and_again_each_time(lines: list[Line]) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        cluster = Cluster()
        cluster.is_there = True
        async with client_of(cluster) as client:
            await client.wait_ready(10)
            for outage in range(2):
                await asyncio.sleep(100)
                lines.clear()
                went = loop.time()
                cluster.go()
                await asyncio.sleep(1300)
                reported = [line for line in lines if "No broker has been reached" in line.text]
                others = [text for _, text in lines if "No broker has been reached" not in text]
                assert times(reported, went) == pytest.approx(REPORTS, abs=0.2), outage
                assert reported[0].text.startswith(
                    "[shop] No broker has been reached for 3 s (bootstrap servers 127.0.0.1"
                )
                assert len(others) == 1, "where it is looked for now"
                lines.clear()
                cluster.is_there = True
                await asyncio.sleep(10)
                assert [text for _, text in lines] == ["[shop] Kafka was reached after 22 min."]

    virtually(scenario)


def test_a_blip_logs_nothing(lines: list[Line]) -> None:
    async def scenario() -> None:
        cluster = Cluster()
        cluster.is_there = True
        async with client_of(cluster) as client:
            await client.wait_ready(10)
            for _ in range(10):
                await asyncio.sleep(10)
                cluster.go()
                await asyncio.sleep(2)
                cluster.is_there = True

    virtually(scenario)

    assert lines == []


def test_one_broker_of_two_that_is_away_is_no_outage(lines: list[Line]) -> None:
    async def scenario() -> None:
        cluster = Cluster()
        cluster.is_there = True
        async with client_of(cluster, "127.0.0.1:9092,127.0.0.1:9093") as client:
            cluster.closed_ports = {9093}
            await client.wait_ready(10)
            await asyncio.sleep(HOUR)

    virtually(scenario)

    assert lines == []


def test_an_unreachable_advertised_address_does_not_flood_the_log(lines: list[Line]) -> None:
    """The bootstrap server answers each time, and names a broker that does not exist from here."""

    def elsewhere(header: RequestHeader) -> bytes | None:
        return metadata_answer(header, 9093) if header.api_key == ApiKey.METADATA else respond(header)

    async def scenario() -> None:
        cluster = Cluster()
        cluster.is_there, cluster.closed_ports, cluster.respond = True, {9093}, elsewhere
        async with client_of(cluster) as client:
            for _ in range(int(HOUR)):
                client.can_send(1)  # as the Sender does, which has records for it
                await asyncio.sleep(1)

    virtually(scenario)

    assert times(lines, since=1.0) == pytest.approx([*REPORTS, 1800, 2400, 3000], abs=0.5)
    assert "127.0.0.1:9093" in lines[0].text
    assert "advertised.listeners" in lines[0].text


# -- what to look at --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "can resolve the host name"),
        (OSError(errno.EHOSTUNREACH, "No route to host"), "No route to host"),
        (OSError(errno.EHOSTUNREACH, "No route to host"), "Check host and port, and the network"),
        (None, "a firewall"),
    ],
)
def test_the_advice_follows_from_the_error(lines: list[Line], error: OSError | None, advice: str) -> None:
    async def scenario() -> None:
        cluster = Cluster()
        cluster.error = lambda: error
        async with client_of(cluster):
            await asyncio.sleep(31)

    virtually(scenario)

    assert len(lines) == 4
    assert advice in lines[-1].text


async def reported(servers: FakeBroker | str, caplog: pytest.LogCaptureFixture, **options: Any) -> str:
    """The line about a producer that cannot reach these servers."""
    clock = Clock()
    async with opened(servers, client_id="shop", close_timeout_ms=0, **options) as producer:
        await until(lambda: producer.health().error is not None)
        clock.advance(3)
        await until(lambda: any("not been reached" in line for line in caplog.messages))
        await turns()
    (line,) = [line for line in caplog.messages if "not been reached" in line]
    return line


async def test_the_message_of_a_refused_login_points_to_the_credentials(caplog: pytest.LogCaptureFixture) -> None:
    options = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_username": "shop",
        "sasl_password": "wrong",
    }
    with FakeBroker(topics={"orders": 1}, logins=Logins(users={"shop": "right"})) as broker:
        line = await reported(broker, caplog, **options)

    assert "Check security_protocol='SASL_PLAINTEXT', the login (sasl_ options) and the certificates" in line
    assert "wrong" not in line


async def test_the_message_of_a_port_without_tls_points_to_the_protocol(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    line = await reported(broker, caplog, security_protocol="SSL")

    assert "security_protocol='SSL' matches the listener" in line


# -- a connection that falls silent -----------------------------------------------------------------------------------


def test_a_connection_that_falls_silent_is_reported_once_each_time(lines: list[Line]) -> None:
    """As behind a load balancer that has dropped the connection without a word."""

    async def scenario() -> None:
        is_silent = False

        def answer(header: RequestHeader) -> bytes | None:
            return None if is_silent else respond(header)

        cluster = Cluster()
        cluster.is_there, cluster.respond = True, answer
        async with client_of(cluster, metadata_max_age_ms=40_000, request_timeout_ms=10_000) as client:
            await client.wait_ready(10)
            await asyncio.sleep(1)
            for _ in range(2):
                is_silent = True
                await asyncio.sleep(90)
                is_silent = False
                await asyncio.sleep(100)

    virtually(scenario)

    given_up = [line for line in lines if "did not answer" in line.text and "has been reached" not in line.text]
    assert [text for _, text in given_up] == [
        "[shop] Broker 1 (127.0.0.1:9092) did not answer MetadataRequest v13 within 10 s; 1 request(s) were in flight."
    ] * 2
    assert lines[-1].text.startswith("[shop] Kafka was reached after ")


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)), logging.WARNING),  # as the kernel ends it
        (ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)), logging.DEBUG),
        (None, logging.DEBUG),
    ],
    ids=["timed out", "reset", "closed"],
)
def test_of_lost_connections_only_one_that_fell_silent_is_a_warning(
    caplog: pytest.LogCaptureFixture, error: Exception | None, level: int
) -> None:
    async def scenario() -> None:
        cluster = Cluster()
        cluster.is_there = True
        async with client_of(cluster) as client:
            await client.wait_ready(10)
            await asyncio.sleep(1)
            for wire in cluster.wires:
                wire.connection.connection_lost(error)
            await asyncio.sleep(1)

    caplog.set_level(logging.DEBUG)
    virtually(scenario)

    assert {line.levelno for line in caplog.records if "The connection to broker 1 " in line.getMessage()} == {level}
