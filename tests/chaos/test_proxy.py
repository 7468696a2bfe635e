"""The proxy forwards frames, and loses, holds and cuts what it is asked to."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from aioproducer.protocol import ApiKey
from tests.chaos.proxy import Proxy

PRODUCE, METADATA = 0, 3


class Client:
    """A connection on which frames with a number are sent and received."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def ask(self, api: int, number: int, size: int = 20) -> None:
        """Send a request of this size."""
        body = struct.pack(">hhi", api, 0, number) + bytes(size)
        self._writer.write(struct.pack(">i", len(body)) + body)

    async def response(self) -> tuple[int, int]:
        """The number and the size of the next response."""
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return struct.unpack_from(">i", await self._reader.readexactly(size))[0], size


class Echo:
    """A server that responds to each frame with one of the same size, and counts them."""

    def __init__(self) -> None:
        self.applied: list[int] = []
        self.got_one = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection until the client ends it."""
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                self.applied.append(struct.unpack_from(">hhi", frame)[2])
                self.got_one.set()
                writer.write(struct.pack(">i", size) + frame[4:8] + bytes(size - 4))
        except (OSError, asyncio.IncompleteReadError):
            writer.close()


@asynccontextmanager
async def behind_proxy() -> AsyncGenerator[tuple[Proxy, Echo, Client], None]:
    echo = Echo()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    async with server, Proxy() as proxy:
        proxy.stand_before(server.sockets[0].getsockname()[1])
        host, _, port = proxy.address.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        yield proxy, echo, Client(reader, writer)
        writer.close()


@pytest.mark.parametrize("in_pieces", [False, True])
async def test_frames_arrive_whole_and_in_order(in_pieces: bool) -> None:
    async with behind_proxy() as (proxy, _, client):
        proxy.in_pieces = in_pieces
        for number in range(3):
            client.ask(PRODUCE, number, 10_000 * number)

        assert [await client.response() for _ in range(3)] == [(number, 8 + 10_000 * number) for number in range(3)]
        assert proxy.seen == {"PRODUCE": 3}


async def test_a_lost_response_is_lost_after_the_request_was_applied() -> None:
    async with behind_proxy() as (proxy, echo, client):
        proxy.lose_response(ApiKey.PRODUCE)
        client.ask(METADATA, 1)
        assert (await client.response())[0] == 1

        client.ask(PRODUCE, 2)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await client.response()

        assert echo.applied == [1, 2]
        assert proxy.lost == {"PRODUCE": 1}


async def test_a_lost_request_is_never_applied() -> None:
    async with behind_proxy() as (proxy, echo, client):
        proxy.lose_request(ApiKey.PRODUCE)
        client.ask(PRODUCE, 1)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await client.response()

        assert echo.applied == []


async def test_a_held_frame_is_delivered_later() -> None:
    async with behind_proxy() as (proxy, echo, client):
        proxy.hold()
        client.ask(PRODUCE, 1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(echo.got_one.wait(), 0.01)

        proxy.flow()
        assert (await client.response())[0] == 1


async def test_a_cut_resets_every_connection() -> None:
    async with behind_proxy() as (proxy, _, client):
        client.ask(METADATA, 1)
        await client.response()

        assert proxy.cut() == 1
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await client.response()


async def test_a_restored_proxy_has_forgotten_its_plans() -> None:
    async with behind_proxy() as (proxy, _, client):
        proxy.lose_response(ApiKey.PRODUCE)
        proxy.lose_request(ApiKey.PRODUCE)
        proxy.delay_s = 60.0
        proxy.restore()
        client.ask(PRODUCE, 1)

        assert (await client.response())[0] == 1
