"""A small SOCKS 5 and HTTP CONNECT proxy, with the faults that tests need."""

from __future__ import annotations

import asyncio
import base64
import socket
import struct
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

__all__ = ["Fault", "ProxyServer", "proxy_server"]

_SOCKS: Final = 5
_ANONYMOUS, _BY_PASSWORD, _NONE_ACCEPTABLE = 0, 2, 0xFF
_IPV4, _NAME, _IPV6 = 1, 3, 4


class Fault(Enum):
    """The way in which a proxy fails."""

    REFUSE = auto()  # with the code of the proxy
    HANG = auto()  # reads and sends nothing
    HANG_AFTER_REQUEST = auto()  # as a proxy does that waits for an unreachable broker
    CLOSE = auto()
    GARBAGE = auto()


@dataclass(eq=False)
class ProxyServer:
    """The proxy; everything may be changed while it runs. It speaks SOCKS 5 or HTTP, whichever the client begins."""

    #: Host and port as clients request them, each with the address that is connected instead.
    routes: Mapping[tuple[str, int], tuple[str, int]] = field(default_factory=dict[tuple[str, int], tuple[str, int]])
    login: tuple[str, str] | None = None
    fault: Fault | None = None
    code: int = 5  # the reply of SOCKS, or the status of HTTP, to a request that is refused
    refuses: frozenset[str] = frozenset()  # hosts
    garbage: bytes = b"SSH-2.0-OpenSSH_9.9\r\n"
    port: int = 0
    accepted: int = 0
    open: int = 0
    relayed: int = 0
    requested: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    logins: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    tasks: set[asyncio.Task[Any]] = field(default_factory=set[asyncio.Task[Any]])
    _server: asyncio.Server | None = None

    def url(self, scheme: str, login: str = "") -> str:
        """The URL for clients."""
        return f"{scheme}://{f'{login}@' if login else ''}127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listen, at the same port as before if there was one."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close everything; clients are refused from now on."""
        assert self._server is not None
        self._server.close()
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self.open += 1
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._serve(reader, writer)
        finally:
            self.open -= 1
            self.tasks.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.fault is Fault.HANG:
            await reader.read()
        elif self.fault is Fault.CLOSE:
            await reader.read(1)
        elif self.fault is Fault.GARBAGE:
            await reader.read(1)
            writer.write(self.garbage)
            await reader.read()
        else:
            first = await reader.readexactly(1)
            serve = self._serve_socks if first[0] == _SOCKS else self._serve_http
            await serve(first, reader, writer)

    async def _serve_socks(self, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (count,) = await reader.readexactly(1)
        methods = await reader.readexactly(count)
        wanted = _ANONYMOUS if self.login is None else _BY_PASSWORD
        writer.write(bytes([_SOCKS, wanted if wanted in methods else _NONE_ACCEPTABLE]))
        if wanted not in methods:
            return
        if self.login is not None:
            await reader.readexactly(1)
            given = [(await reader.readexactly((await reader.readexactly(1))[0])).decode() for _ in range(2)]
            self.logins.append((given[0], given[1]))
            writer.write(bytes([1, self.logins[-1] != self.login]))
            if self.logins[-1] != self.login:
                return
        _, _, _, kind = await reader.readexactly(4)
        if kind == _NAME:
            host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        else:
            family, size = (socket.AF_INET, 4) if kind == _IPV4 else (socket.AF_INET6, 16)
            host = socket.inet_ntop(family, await reader.readexactly(size))
        (port,) = struct.unpack(">H", await reader.readexactly(2))
        rest = bytes([0, _IPV4]) + bytes(6)
        await self._answer((host, port), bytes([_SOCKS, 0]) + rest, bytes([_SOCKS, self.code]) + rest, reader, writer)

    async def _serve_http(self, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = (first + await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, authority, _ = lines[0].split(" ")
        assert method == "CONNECT"
        given = next((line.split(" ")[2] for line in lines if line.startswith("Proxy-Authorization: Basic ")), None)
        if given is not None:
            user, _, password = base64.b64decode(given).decode().partition(":")
            self.logins.append((user, password))
        if self.login is not None and (given is None or self.logins[-1] != self.login):
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
            return
        host, _, port = authority.rpartition(":")
        accepted, refused = b"HTTP/1.1 200 Connection established\r\n\r\n", b"HTTP/1.1 %d Nonsense\r\n\r\n" % self.code
        await self._answer((host.strip("[]"), int(port)), accepted, refused, reader, writer)

    async def _answer(
        self,
        target: tuple[str, int],
        accepted: bytes,
        refused: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.requested.append(target)
        if self.fault is Fault.HANG_AFTER_REQUEST:
            await reader.read()
            return
        if self.fault is Fault.REFUSE or target[0] in self.refuses:
            writer.write(refused)
            return
        self.relayed += 1
        there, to = await asyncio.open_connection(*self.routes.get(target, target))
        try:
            writer.write(accepted)
            both = [asyncio.ensure_future(_copy(reader, to)), asyncio.ensure_future(_copy(there, writer))]
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in both:
                    each.cancel()
                await asyncio.gather(*both, return_exceptions=True)
        finally:
            to.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


@asynccontextmanager
async def proxy_server(**settings: Any) -> AsyncGenerator[ProxyServer]:
    """A proxy that runs during the block."""
    server = ProxyServer(**settings)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
