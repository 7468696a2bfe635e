"""A client without sockets, on an event loop whose clock jumps: what is about moments can be tested to the moment."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from aioproducer.config import ProducerConfig
from aioproducer.net.addresses import Address
from aioproducer.net.client import NetworkClient
from aioproducer.net.connection import Connection
from aioproducer.protocol import ApiKey, FrameReader, RequestHeader, decode_request_header
from aioproducer.runtime.log import ClientLog
from tests.net.peers import QUICK, FirstIsFirst, metadata_answer, versions_answer

__all__ = ["Wire", "run_virtually", "turns_so_far", "virtual_client"]

Respond: TypeAlias = "Callable[[RequestHeader], bytes | None]"


class _JumpingSelector(selectors.SelectSelector):
    """Does not wait: the time passes at once."""

    now = 0.0
    turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.turns += 1
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "nothing will ever happen any more"
            self.now += max(timeout, 0.0)
        return ready


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now

    @property
    def turns(self) -> int:
        return self._jumping.turns


def run_virtually(work: Coroutine[Any, Any, None]) -> None:
    """Run it in its own event loop in which nothing takes any time but sleeping."""
    loop = _VirtualLoop()
    try:
        loop.run_until_complete(work)
    finally:
        loop.close()


def turns_so_far() -> int:
    """The number of turns of the virtual event loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, _VirtualLoop)
    return loop.turns


class Wire(asyncio.Transport):
    """A transport to a broker that answers at once, or as the test says. ``stuck``: it takes no bytes for now."""

    def __init__(self, connection: Connection, respond: Respond) -> None:
        super().__init__()
        self.connection = connection
        self.stuck = False
        self.respond = respond
        self._loop = asyncio.get_running_loop()
        self._frames = FrameReader(1 << 20)
        self._closing = False

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Take the request, and answer it soon."""
        self._frames.feed(b"".join(list_of_data))
        for frame in self._frames:
            header, _ = decode_request_header(bytes(frame))
            answer = self.respond(header)
            if answer is not None:
                self.receive(answer)

    def receive(self, answer: bytes) -> None:
        """Let these bytes arrive soon."""
        self._loop.call_soon(self.connection.data_received, answer)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """They are always zero here."""

    def get_write_buffer_size(self) -> int:
        """The number of waiting bytes."""
        return int(self.stuck)

    def is_closing(self) -> bool:
        """Whether it was closed."""
        return self._closing

    def abort(self) -> None:
        """Close it."""
        if not self._closing:
            self._closing = True
            self._loop.call_soon(self.connection.connection_lost, None)


def respond(header: RequestHeader) -> bytes | None:
    """Node 1 at the one address that there is; nothing else is answered."""
    if header.api_key == ApiKey.API_VERSIONS:
        return versions_answer(header)
    return metadata_answer(header, 9092) if header.api_key == ApiKey.METADATA else None


@asynccontextmanager
async def virtual_client(wires: list[Wire], **options: Any) -> AsyncIterator[NetworkClient]:
    """A client that runs, and is ready; each connection that it opens is put to the wires."""

    async def connect(make: Callable[[], Connection], address: Address) -> Connection:
        wire = Wire(make(), respond)
        wires.append(wire)
        wire.connection.connection_made(wire)
        return wire.connection

    config = ProducerConfig("127.0.0.1:9092", **{**QUICK, **options})
    client = NetworkClient(
        config, client_id="test", log=ClientLog("test"), random=FirstIsFirst(1), on_ready=lambda: None, connect=connect
    )
    running = asyncio.create_task(client.run())
    try:
        await client.wait_ready(asyncio.get_running_loop().time() + 10)
        yield client
    finally:
        await client.close()
        await running
