"""Turns a broker's name into the addresses to try, one after the other (KIP-302, KIP-602)."""

from __future__ import annotations

import asyncio
import socket
from typing import NamedTuple

from aioproducer.errors import BrokerConnectionError

__all__ = ["Address", "resolve"]


class Address(NamedTuple):
    """An IP address and a port, as a socket takes them."""

    family: socket.AddressFamily
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if self.family == socket.AF_INET6 else f"{self.host}:{self.port}"


async def resolve(host: str, port: int) -> list[Address]:
    """All addresses of the name, without repeats, in the order in which the system gives them.

    Raises `BrokerConnectionError`. Cancellation: the look-up goes on in its thread, and nobody waits for it.
    """
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise BrokerConnectionError(f"The name of broker {host}:{port} cannot be resolved: {error}") from error
    addresses = [Address(family, sockaddr[0], sockaddr[1]) for family, _, _, _, sockaddr in found if sockaddr]
    return list(dict.fromkeys(addresses))
