"""A proxy in front of a broker that knows Kafka's frames, and does to them what a network may do."""

from __future__ import annotations

import asyncio
import struct
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, Self

from aioproducer.protocol import ApiKey

__all__ = ["Proxy"]

_LENGTH: Final = struct.Struct(">i")
_API_AND_CORRELATION: Final = struct.Struct(">hhi")
_MOST_READ: Final = 65_536
#: A piece of a frame, in bytes; the first ones are smaller, so that the length itself arrives in two.
_PIECES: Final = (1, 2, 5, 500, 4_000)


class Proxy:
    """Forwards frame by frame. Its address is the one that the broker advertises.

    ``delay_s`` and ``in_pieces`` hold for all frames from then on. ``seen`` counts requests by API, ``lost`` the requests
    or responses that were lost.
    """

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        self.delay_s = 0.0
        self.in_pieces = False
        self._lost_responses: Counter[ApiKey] = Counter()
        self._lost_requests: Counter[ApiKey] = Counter()
        self._flows = asyncio.Event()
        self._flows.set()
        self._target = ("127.0.0.1", 0)
        self._server: asyncio.Server | None = None
        self._links: set[_Link] = set()

    @property
    def address(self) -> str:
        """The address for clients: ``host:port``."""
        assert self._server is not None, "the proxy is not open"
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._links)

    def stand_before(self, port: int) -> str:
        """Forward to the broker at this port from now on; returns the address to advertise."""
        self._target = ("127.0.0.1", port)
        return self.address

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._server is not None
        self._server.close()
        tasks = [link.task for link in self._links]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def cut(self) -> int:
        """Reset all connections; returns their number."""
        links = list(self._links)
        for link in links:
            link.abort()
        return len(links)

    def lose_response(self, api: ApiKey) -> None:
        """Reset the connection instead of delivering the next response to such a request, which the broker has applied."""
        self._lost_responses[api] += 1

    def lose_request(self, api: ApiKey) -> None:
        """Reset the connection instead of forwarding the next such request."""
        self._lost_requests[api] += 1

    def hold(self) -> None:
        """Stop the flow in both directions: connections stay open, new ones are accepted, and nothing is delivered."""
        self._flows.clear()

    def flow(self) -> None:
        """Deliver what `hold` has held, and all that follows."""
        self._flows.set()

    def restore(self) -> None:
        """End every fault."""
        self.delay_s = 0.0
        self.in_pieces = False
        self._lost_responses.clear()
        self._lost_requests.clear()
        self.flow()

    async def pass_on(self, frame: bytes, to: asyncio.StreamWriter) -> None:
        """Deliver a frame, as late and in such pieces as the network's state has it."""
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        await self._flows.wait()
        data = _LENGTH.pack(len(frame)) + frame
        for piece in _pieces(data) if self.in_pieces else (data,):
            to.write(piece)
            await to.drain()
            if self.in_pieces:
                await asyncio.sleep(0)

    def loses_request(self, api: ApiKey) -> bool:
        """Whether this request is lost."""
        self.seen[api.name] += 1
        return self._loses(self._lost_requests, api)

    def loses_response(self, api: ApiKey) -> bool:
        """Whether the response to a request of this kind is lost."""
        return self._loses(self._lost_responses, api)

    def _loses(self, plan: Counter[ApiKey], api: ApiKey) -> bool:
        if not plan[api]:
            return False
        plan[api] -= 1
        self.lost[api.name] += 1
        return True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._flows.wait()
            to_broker = await asyncio.open_connection(*self._target, limit=_MOST_READ)
        except OSError:
            writer.transport.abort()
            return
        except asyncio.CancelledError:
            writer.transport.abort()
            raise
        link = _Link(self, (reader, writer), to_broker)
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)
            link.abort()


class _Link:
    """A client's connection and the one to the broker."""

    def __init__(
        self,
        proxy: Proxy,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        broker: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self._proxy = proxy
        self._from_client, self._to_client = client
        self._from_broker, self._to_broker = broker
        #: The requests without a response yet: a broker responds in order.
        self._asked: deque[tuple[int, ApiKey]] = deque()
        task = asyncio.current_task()
        assert task is not None
        self.task: asyncio.Task[object] = task

    async def run(self) -> None:
        """Forward until one side closes, or a frame is lost."""
        ways = [asyncio.create_task(self._requests()), asyncio.create_task(self._responses())]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    def abort(self) -> None:
        """Reset both connections."""
        self._to_client.transport.abort()
        self._to_broker.transport.abort()

    async def _requests(self) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                frame = await _read(self._from_client)
                key, _, correlation_id = _API_AND_CORRELATION.unpack_from(frame)
                api = ApiKey(key)
                if self._proxy.loses_request(api):
                    return
                self._asked.append((correlation_id, api))
                await self._proxy.pass_on(frame, self._to_broker)

    async def _responses(self) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                frame = await _read(self._from_broker)
                (correlation_id,) = _LENGTH.unpack_from(frame)
                while self._asked[0][0] != correlation_id:  # a Produce request with acks=0 has no response
                    self._asked.popleft()
                if self._proxy.loses_response(self._asked.popleft()[1]):
                    return
                await self._proxy.pass_on(frame, self._to_client)


async def _read(reader: asyncio.StreamReader) -> bytes:
    """The next frame. Raises IncompleteReadError at the end."""
    (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return await reader.readexactly(size)


def _pieces(data: bytes) -> Iterator[bytes]:
    at = 0
    for size in _PIECES:
        yield data[at : at + size]
        at += size
    while at < len(data):
        yield data[at : at + _PIECES[-1]]
        at += _PIECES[-1]
