"""Turns a broker's name into the addresses to try, one after the other (KIP-302, KIP-602)."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from contextlib import suppress
from typing import NamedTuple

from aioproducer.errors import BrokerConnectionError

__all__ = ["Address", "Resolver"]


class Address(NamedTuple):
    """An IP address and a port, as a socket takes them."""

    family: socket.AddressFamily
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if self.family == socket.AF_INET6 else f"{self.host}:{self.port}"


class Resolver:
    """Looks names up, each in a thread of its own.

    The event loop's own threads are few and shared with everybody, and a look-up cannot be interrupted: some names that
    hang would take them all, and hold up the end of the program. So a look-up has a daemon thread, and whoever asks for a
    name that is being looked up waits for the look-up that is on its way.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pending: dict[tuple[str, int], asyncio.Future[list[Address]]] = {}

    async def resolve(self, host: str, port: int) -> list[Address]:
        """All addresses of the name, without repeats, in the order in which the system gives them.

        Raises `BrokerConnectionError`. Cancellation: the look-up goes on in its thread, and nobody waits for it.
        """
        if not host or not 0 < port < 65536:
            raise BrokerConnectionError(f"A broker cannot listen at {host!r}, port {port}; is that what it advertises?")
        numeric = _numeric(host, port)
        if numeric is not None:
            return [numeric]
        pending = self._pending.get((host, port))
        if pending is None:
            pending = self._begin(host, port)
        return await asyncio.shield(pending)

    def _begin(self, host: str, port: int) -> asyncio.Future[list[Address]]:
        pending = self._pending[host, port] = self._loop.create_future()
        pending.add_done_callback(lambda done: self._ended(host, port, done))
        threading.Thread(
            target=self._look_up, args=(host, port, pending), name=f"aioproducer looks up {host}", daemon=True
        ).start()
        return pending

    def _ended(self, host: str, port: int, done: asyncio.Future[list[Address]]) -> None:
        del self._pending[host, port]
        if not done.cancelled():
            done.exception()  # whoever asked may have gone

    def _look_up(self, host: str, port: int, pending: asyncio.Future[list[Address]]) -> None:
        """In the thread."""
        try:
            found: list[Address] | BrokerConnectionError = _look_up(host, port)
        except (OSError, ValueError) as error:  # ValueError: a name that cannot even be asked for
            found = BrokerConnectionError(f"The name of broker {host}:{port} cannot be resolved: {error}")
            found.__cause__ = error
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(_settle, pending, found)


def _settle(pending: asyncio.Future[list[Address]], found: list[Address] | BrokerConnectionError) -> None:
    if pending.done():
        return
    if isinstance(found, BrokerConnectionError):
        pending.set_exception(found)
    else:
        pending.set_result(found)


def _look_up(host: str, port: int) -> list[Address]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [
        Address(family, str(where[0]), port)
        for family, _, _, _, where in found
        if family in (socket.AF_INET, socket.AF_INET6)
    ]
    if not addresses:
        raise OSError("the name has no address")
    return list(dict.fromkeys(addresses))


def _numeric(host: str, port: int) -> Address | None:
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        return None
    return Address(socket.AF_INET if version == 4 else socket.AF_INET6, host, port)
