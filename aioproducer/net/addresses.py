"""Turns a broker's name into the addresses to try, one after the other (KIP-302, KIP-602)."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from aioproducer.errors import BrokerConnectionError

__all__ = ["Address", "Resolver"]

_T = TypeVar("_T")


class Address(NamedTuple):
    """An IP address and a port, as a socket takes them."""

    family: socket.AddressFamily
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if self.family == socket.AF_INET6 else f"{self.host}:{self.port}"


class Resolver:
    """Looks names up, each in its own thread.

    The event loop's own threads are few and shared, and a look-up cannot be interrupted: a few names that hang would
    occupy them all and delay the end of the program. So each look-up has a daemon thread, and requests for the same
    name share one look-up.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pending: dict[tuple[object, str, int], asyncio.Future[Any]] = {}

    async def resolve(self, host: str, port: int) -> list[Address]:
        """Return all addresses of the name, without repeats, in the system's order.

        Raises `BrokerConnectionError`. Cancellation: the look-up continues in its thread; its result is discarded.
        """
        if not host or not 0 < port < 65536:
            raise BrokerConnectionError(
                f"Invalid broker address: host {host!r}, port {port}. Check advertised.listeners of the broker."
            )
        numeric = _numeric(host, port)
        if numeric is not None:
            return [numeric]
        return await self._shared(_look_up, host, port)

    async def canonical_names(self, host: str, port: int) -> list[str]:
        """Return the canonical names of the name's addresses, each once (ClientUtils.parseAndValidateAddresses).

        An address without a name, or whose name has other addresses, is returned unchanged, as in Java. Raises
        `BrokerConnectionError`. Cancellation: the look-up continues in its thread; its result is discarded.
        """
        return await self._shared(_look_up_canonical, host, port)

    async def _shared(self, look_up: Callable[[str, int], _T], host: str, port: int) -> _T:
        pending: asyncio.Future[_T] | None = self._pending.get((look_up, host, port))
        if pending is None:
            pending = self._begin(look_up, host, port)
        return await asyncio.shield(pending)

    def _begin(self, look_up: Callable[[str, int], _T], host: str, port: int) -> asyncio.Future[_T]:
        pending: asyncio.Future[_T] = self._loop.create_future()
        thread = threading.Thread(
            target=self._run, args=(look_up, host, port, pending), name=f"aioproducer looks up {host}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:  # the system has no more threads for now
            raise _unresolved(host, port, error) from error

        def ended(done: asyncio.Future[_T]) -> None:
            del self._pending[look_up, host, port]
            if not done.cancelled():
                done.exception()  # the caller may have been cancelled

        self._pending[look_up, host, port] = pending
        pending.add_done_callback(ended)
        return pending

    def _run(self, look_up: Callable[[str, int], _T], host: str, port: int, pending: asyncio.Future[_T]) -> None:
        """Runs in the thread."""
        try:
            found: _T | BrokerConnectionError = look_up(host, port)
        except (OSError, ValueError) as error:  # ValueError: an invalid name
            found = _unresolved(host, port, error)
        except BaseException as error:  # nothing else can report it, and without a result the waiters would hang
            found = _unresolved(host, port, error, repr(error))
        with suppress(RuntimeError):  # the loop is closed: nothing waits
            self._loop.call_soon_threadsafe(_settle, pending, found)


def _unresolved(host: str, port: int, cause: BaseException, reason: str = "") -> BrokerConnectionError:
    error = BrokerConnectionError(f"The name of broker {host}:{port} cannot be resolved: {reason or cause}")
    error.__cause__ = cause
    return error


def _settle(pending: asyncio.Future[_T], found: _T | BrokerConnectionError) -> None:
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


def _look_up_canonical(host: str, port: int) -> list[str]:
    return list(dict.fromkeys(_canonical_name(address) for address in _look_up(host, port)))


def _canonical_name(address: Address) -> str:
    try:
        name = socket.gethostbyaddr(address.host)[0]
        return name if address in _look_up(name, address.port) else address.host
    except (OSError, ValueError):
        return address.host


def _numeric(host: str, port: int) -> Address | None:
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        return None
    return Address(socket.AF_INET if version == 4 else socket.AF_INET6, host, port)
