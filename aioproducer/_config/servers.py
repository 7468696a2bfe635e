"""The addresses of brokers."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, cast

from aioproducer._config.kinds import Kind, members
from aioproducer.errors import ConfigError

__all__ = ["DEFAULT_PORT", "Address", "Servers", "parse_bootstrap_servers"]

DEFAULT_PORT: Final = 9092


class Address(NamedTuple):
    """The address of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bootstrap_servers(servers: object) -> tuple[Address, ...]:
    """The brokers in ``"host:port,host"`` or in a sequence of such texts; the default port is 9092.

    IPv6 addresses are in brackets: ``[::1]:9092``. Raises `ConfigError` for an empty list, an invalid address, and, as
    Java does, a repeated address.
    """
    addresses = tuple(_parse_address(entry) for entry in _split_servers(servers))
    if not addresses:
        raise ConfigError(
            "bootstrap_servers is empty; name at least one broker, for example bootstrap_servers='localhost:9092'."
        )
    for position, address in enumerate(addresses):
        if address in addresses[:position]:
            raise ConfigError(f"bootstrap_servers names {address} twice; name every broker once.")
    return addresses


class Servers(Kind):
    def convert(self, name: str, value: object) -> tuple[str, ...]:
        return tuple(str(address) for address in parse_bootstrap_servers(value))

    def allowed(self) -> str:
        return "'host:port,host:port' or a sequence of 'host:port'"


def _split_servers(servers: object) -> list[str]:
    if isinstance(servers, str):
        if "@" in servers:  # checked before the text is split: a password may contain a comma
            # Not shown: the text before the @ may be a password.
            raise ConfigError(
                "A bootstrap server contains an @; credentials go into sasl_username and sasl_password, or into a URL "
                "for from_url()."
            )
        return [entry.strip() for entry in servers.split(",") if entry.strip()]
    if isinstance(servers, Mapping):
        raise ConfigError(
            f"bootstrap_servers must be {Servers().allowed()}, but a mapping was given; pass Java's keys to "
            f"from_properties(), and options as keywords."
        )
    entries = members(servers)
    if not all(isinstance(entry, str) for entry in entries):
        # Not shown: it may hold a password, as URLs do.
        raise ConfigError(
            f"bootstrap_servers must be {Servers().allowed()}; the given value is of type {type(servers).__name__}."
        )
    # The items of a sequence may contain commas, as a list read from a file often does.
    return [part for entry in cast("Sequence[str]", entries) for part in _split_servers(entry)]


_HOST: Final = re.compile(r"[\w.-]+")


def _parse_address(entry: str) -> Address:
    scheme, has_scheme, _ = entry.partition("://")
    if has_scheme:
        raise ConfigError(
            f"A bootstrap server begins with the scheme {scheme}://; write host:port and set security_protocol, or pass a "
            f"URL that begins with kafka:// to from_url()."
        )
    host, port = _split_port(entry)
    if port is not None and re.fullmatch(r"[0-9]{1,5}", port) is None:
        # Not shown: it may be user:password@host without the host.
        raise ConfigError(f"The bootstrap server at {host!r} has an invalid port: must be a number from 1 to 65535.")
    if port is not None and not 1 <= int(port) <= 65_535:
        raise ConfigError(f"The bootstrap server at {host!r} has the port {port}: must be a number from 1 to 65535.")
    return Address(host, DEFAULT_PORT if port is None else int(port))


def _split_port(entry: str) -> tuple[str, str | None]:
    bracketed = re.fullmatch(r"\[([^\]]*)\](?::(.*))?", entry)
    if bracketed is not None:
        if not _is_ipv6(bracketed[1]):
            raise ConfigError(
                f"Bootstrap server '[{bracketed[1]}]' has no IPv6 address in its brackets; write [::1]:9092."
            )
        return bracketed[1], bracketed[2]
    host, colon, port = entry.partition(":")
    if ":" in port:
        raise ConfigError(
            f"A bootstrap server has several colons after {host!r}; write an IPv6 address in brackets: [::1]:9092."
        )
    if _HOST.fullmatch(host) is None:
        raise ConfigError(
            f"Bootstrap server {host!r} is not host:port; a host name has letters, digits, '.', '-' and '_'."
        )
    return host, port if colon else None


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
