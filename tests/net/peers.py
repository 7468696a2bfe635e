"""Peers that are no good brokers, and what the tests of net have in common."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from random import Random
from typing import Any, TypeAlias

from aioproducer.config import ProducerConfig
from aioproducer.net.addresses import Address
from aioproducer.net.client import NetworkClient
from aioproducer.net.connection import Connection
from aioproducer.net.connector import Connect
from aioproducer.protocol import RequestHeader, decode_request_header, encode_response
from aioproducer.protocol.messages import (
    REQUESTS,
    ApiVersion,
    ApiVersionsResponse,
    MetadataResponse,
    MetadataResponseBroker,
)
from aioproducer.runtime.log import ClientLog
from aioproducer.testing import FakeBroker

Serve: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

QUICK: dict[str, Any] = {
    "retry_backoff_ms": 5,
    "retry_backoff_max_ms": 20,
    "reconnect_backoff_ms": 5,
    "reconnect_backoff_max_ms": 20,
}


class Peer:
    """A listening socket that serves every client as the test says."""

    def __init__(self, serve: Serve) -> None:
        self.serve = serve
        self.accepted = 0
        self.port = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self.serve(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def leave(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        while self._tasks:  # noqa: ASYNC110 - they were cancelled: this is a matter of some rounds of the loop
            await asyncio.sleep(0)


@asynccontextmanager
async def peer(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[Peer]:
    """Listen and serve while the block runs."""
    it = Peer(serve)
    server = await asyncio.start_server(it.accept, "127.0.0.1", 0, ssl=tls)
    it.port = server.sockets[0].getsockname()[1]
    try:
        yield it
    finally:
        server.close()
        await it.leave()


async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read everything, say nothing."""
    while await reader.read(65536):
        pass


async def read_request(reader: asyncio.StreamReader) -> tuple[RequestHeader, memoryview]:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return decode_request_header(await reader.readexactly(size))


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def versions_answer(header: RequestHeader, **fields: Any) -> bytes:
    keys = [
        ApiVersion(api_key=int(key), min_version=request.versions[0], max_version=request.versions[1])
        for key, request in REQUESTS.items()
    ]
    response = ApiVersionsResponse(**{"error_code": 0, "api_keys": keys, **fields})
    return b"".join(bytes(piece) for piece in encode_response(header.correlation_id, response, header.api_version))


def metadata_answer(header: RequestHeader, port: int | None, *, host: str = "127.0.0.1", **fields: Any) -> bytes:
    """Node 1 at this port, or no broker at all."""
    brokers = [] if port is None else [MetadataResponseBroker(node_id=1, host=host, port=port)]
    response = MetadataResponse(brokers=brokers, topics=[], **fields)
    return b"".join(bytes(piece) for piece in encode_response(header.correlation_id, response, header.api_version))


@contextmanager
def refusing() -> Iterator[str]:
    """A reserved address without a listener."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@contextmanager
def black_hole() -> Iterator[str]:
    """An address that answers to nothing: its backlog is full."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        try:
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(listening.getsockname())
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            for filler in fillers:
                filler.close()


class Connecting:
    """Opens sockets as a client does, and notes each attempt before it is made: none can come unseen."""

    def __init__(self) -> None:
        self.tried: list[Address] = []

    async def __call__(self, make: Callable[[], Connection], address: Address) -> Connection:
        self.tried.append(address)
        _, connection = await asyncio.get_running_loop().create_connection(make, address.host, address.port)
        return connection

    def ports(self) -> list[int]:
        """The addresses that were tried, in order."""
        return [address.port for address in self.tried]


class FirstIsFirst(Random):
    """Leaves an order as it is, and jitters nothing."""

    def random(self) -> float:
        return 0.5

    def shuffle(self, x: Any) -> None:
        """Leave it."""


@asynccontextmanager
async def client_of(
    servers: FakeBroker | str,
    *,
    on_ready: Callable[[], object] = lambda: None,
    connect: Connect | None = None,
    **options: Any,
) -> AsyncIterator[NetworkClient]:
    """A client that runs; closed, it must leave no task and no timer behind."""
    named = servers if isinstance(servers, str) else servers.bootstrap_servers
    config = ProducerConfig(named, **{**QUICK, **options})
    loop = asyncio.get_running_loop()
    before, timers = asyncio.all_tasks(), live_timers(loop)
    client = NetworkClient(
        config, client_id="test", log=ClientLog("test"), random=FirstIsFirst(1), on_ready=on_ready, connect=connect
    )
    running = asyncio.create_task(client.run())
    try:
        yield client
    finally:
        await asyncio.wait_for(client.close(), 30)
        await asyncio.wait_for(running, 30)
        left = {task for task in asyncio.all_tasks() - before if "accept" not in repr(task)}
        assert not left
        assert not [timer for timer in live_timers(loop) - timers if "aioproducer/net" in repr(timer)]


def live_timers(loop: asyncio.AbstractEventLoop) -> set[asyncio.TimerHandle]:
    scheduled: list[asyncio.TimerHandle] = getattr(loop, "_scheduled", [])  # uvloop does not tell
    return {timer for timer in scheduled if not timer.cancelled()}


def soon(seconds: float = 20.0) -> float:
    """A deadline on the clock of the event loop."""
    return asyncio.get_running_loop().time() + seconds
