"""Opens sockets to brokers through a SOCKS 5 or HTTP proxy.

python-socks holds the conversation with the proxy. It is imported when a producer with a proxy starts.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import socket
from collections.abc import Callable, Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, cast

from aioproducer._config.proxy_url import parse_proxy
from aioproducer.config import Secret
from aioproducer.core.cluster import Node
from aioproducer.errors import BrokerConnectionError, ConfigError
from aioproducer.net.addresses import Address, Resolver

if TYPE_CHECKING:
    from python_socks.async_.asyncio import Proxy

__all__ = ["ProxyDialer"]

#: python-socks's own limit; the limit of the whole attempt is reached first.
_NEVER_S: Final = 86_400.0

_REACH: Final = "check that the proxy can reach the broker"
_ALLOW: Final = "allow this host and port in its rules"

#: Failures that SOCKS 5 names (RFC 1928), each with what to do.
_SOCKS_FAILURES: Final[Mapping[int, tuple[str, str]]] = MappingProxyType(
    {
        1: ("it reports a general failure", _REACH),
        3: ("the network is unreachable from there", _REACH),
        4: ("the host is unreachable from there, or its name is unknown", _REACH),
        5: ("nothing accepts connections at that address", _REACH),
        6: ("the host is too far away (TTL expired)", _REACH),
        7: ("it does not support CONNECT", "use another proxy"),
        8: ("it does not support this kind of address", "use another proxy, or another of socks5:// and socks5h://"),
    }
)
_SOCKS_NOT_ALLOWED: Final = 2

_REJECTED: Final = "it rejected the user name and password; correct them in the option proxy"


class ProxyDialer:
    """Opens sockets to brokers through one proxy."""

    def __init__(self, url: Secret, resolver: Resolver) -> None:
        try:
            from python_socks import ProxyError, ProxyType
            from python_socks.async_.asyncio import Proxy
        except ImportError as error:
            raise ConfigError(
                "The option proxy needs the library python-socks: pip install 'aioproducer[proxy]'."
            ) from error
        self._create = Proxy
        self._refused = ProxyError
        self._address = parse_proxy(url)
        self._type = ProxyType.HTTP if self._address.scheme == "http" else ProxyType.SOCKS5
        self._protocol = "HTTP" if self._address.scheme == "http" else "SOCKS 5"
        self._resolver = resolver

    async def resolve(self, node: Node) -> list[Address]:
        """Return the addresses to request from the proxy; it is the broker's name if the proxy resolves names.

        Raises `BrokerConnectionError`. Cancellation: as in `Resolver.resolve`.
        """
        if self._address.resolves_names:
            return [_by_name(node)]
        return await self._resolver.resolve(node.host, node.port)

    async def open(self, node: Node, address: Address, until: float, enter: Callable[[str], object]) -> socket.socket:
        """Return a socket that the proxy connected to the broker's address; ``until`` is in the event loop's time.

        The addresses of the proxy are tried in turn, and share the time. ``enter`` is called with the failure that each
        stage would be if the time ended during it. Raises `BrokerConnectionError`. Cancellation: closes what was opened.
        """
        enter(f"the name of the proxy {self._address} was not resolved")
        addresses = await self._addresses(node)
        enter(f"the proxy {self._address} did not accept the connection")
        opened = await self._reach(node, addresses, until)
        enter(f"the proxy {self._address} accepted the connection but did not connect to the broker in this time")
        try:
            return await self._request(opened, node, address)
        except BaseException:
            opened.close()
            raise

    async def _addresses(self, node: Node) -> list[Address]:
        try:
            return await self._resolver.resolve(self._address.host, self._address.port)
        except BrokerConnectionError as error:
            cause = error.__cause__ or error
        raise BrokerConnectionError(
            f"Could not connect to broker {node}: the name of the proxy {self._address} cannot be resolved: {cause}. "
            f"Check the option proxy."
        ) from cause

    async def _reach(self, node: Node, addresses: list[Address], until: float) -> socket.socket:
        loop = asyncio.get_running_loop()
        failures: list[OSError] = []
        for tried, address in enumerate(addresses, start=1):
            share = (until - loop.time()) / (len(addresses) - tried + 1)
            opened = socket.socket(address.family, socket.SOCK_STREAM)
            try:
                opened.setblocking(False)
                async with asyncio.timeout(share if tried < len(addresses) else None):
                    await loop.sock_connect(opened, (address.host, address.port))
            except BaseException as error:
                opened.close()
                if not isinstance(error, OSError):
                    raise
                failures.append(error)
            else:
                return opened
        raise BrokerConnectionError(
            f"Could not connect to broker {node}: the proxy {self._address} is unreachable: "
            f"{'; '.join(dict.fromkeys(map(_reason, failures)))}. Check the option proxy, and whether the proxy runs."
        ) from failures[-1]

    async def _request(self, opened: socket.socket, node: Node, address: Address) -> socket.socket:
        username, password = self._address.username, self._address.password
        library = self._create(
            self._type,
            self._address.host,
            self._address.port,
            username=None if username is None else username.reveal(),
            password=None if password is None else password.reveal(),
            rdns=True,  # else the library would look names up, in the event loop's own threads
            forward=cast("Proxy", _Opened(opened)),
        )
        cancelled: tuple[object, ...] | None = None
        message = ""
        try:
            return await library.connect(address.host, address.port, timeout=_NEVER_S)
        except asyncio.CancelledError as error:
            cancelled = error.args
        except self._refused as error:
            message = self._explain(node, error.error_code, str(error))
        except Exception:  # a peer is never trusted: the library may fail in any way at what it reads
            message = self._explain(node, None, "")
        # Outside the except clauses: the library's frames hold the credentials, and a cause or context would keep them.
        if cancelled is not None:
            raise asyncio.CancelledError(*cancelled)
        raise BrokerConnectionError(message)

    def _explain(self, node: Node, code: int | None, text: str) -> str:
        """Return the sentence for an error of the library, which reports a failed SOCKS login only as text."""
        if self._protocol == "HTTP":
            if code is not None:
                return self._explain_status(node, code)
        elif code is not None:
            if code == _SOCKS_NOT_ALLOWED:
                return f"{self._refused_to(node)}: its rules do not allow that; {_ALLOW}."
            reason, way_out = _SOCKS_FAILURES.get(code, (f"it reports failure {code}", _REACH))
            return f"The proxy {self._address} could not connect to broker {node}: {reason}; {way_out}."
        elif "No acceptable authentication" in text:
            return self._explain_login(node, "it accepts no login by user name and password; use another proxy")
        elif "authentication failure" in text:
            return self._explain_login(node, _REJECTED)
        return (
            f"The proxy {self._address} did not connect to broker {node}: it closed the connection, or sent something "
            f"that is not {self._protocol}; is it a proxy for {self._protocol}?"
        )

    def _explain_login(self, node: Node, reason: str) -> str:
        if self._address.username is None:
            example = str(self._address).replace("://", "://user:password@", 1)
            reason = f"it requires a login; write it into the option proxy, as in {example}"
        return f"{self._refused_to(node)}: {reason}."

    def _refused_to(self, node: Node) -> str:
        return f"The proxy {self._address} refused to connect to broker {node}"

    def _explain_status(self, node: Node, code: int) -> str:
        if code == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
            return self._explain_login(node, _REJECTED)
        try:
            status = f"HTTP {code} {HTTPStatus(code).phrase}"
        except ValueError:
            status = f"HTTP {code}"
        if HTTPStatus.BAD_REQUEST <= code < HTTPStatus.INTERNAL_SERVER_ERROR:
            return f"{self._refused_to(node)}: {status}; {_ALLOW}, for CONNECT."
        if code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return f"The proxy {self._address} could not connect to broker {node}: {status}; {_REACH}."
        return f"The proxy {self._address} did not connect to broker {node}: {status}; is it a proxy for CONNECT?"


class _Opened:
    """Stands for a proxy before the proxy, so that python-socks begins with a socket that is already connected.

    Its own connecting is not used: it leaves the socket open if it is cancelled (until 3.2), tries one address, and
    cannot be distinguished from the handshake when the time ends.
    """

    def __init__(self, opened: socket.socket) -> None:
        self._opened = opened

    async def connect(self, *_: object, **__: object) -> socket.socket:
        """Return the socket."""
        return self._opened


def _by_name(node: Node) -> Address:
    """Return the broker's host as it is sent to the proxy; a broker may advertise text that would be a line of HTTP."""
    try:
        host = node.host if ":" in node.host else node.host.encode("idna").decode()
        version = ipaddress.ip_address(host).version if ":" in host else 0
    except ValueError:
        host, version = "", 0
    if re.fullmatch(r"[A-Za-z0-9._:-]{1,253}\.?", host) is None or not 0 < node.port < 65536:
        raise BrokerConnectionError(
            f"Invalid broker address: host {node.host!r}, port {node.port}. Check advertised.listeners of the broker."
        )
    return Address(socket.AF_INET6 if version == 6 else socket.AF_UNSPEC, host, node.port)


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "the connection attempt timed out"
    return os.strerror(error.errno) if error.errno else str(error)
