"""The URL of a proxy."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple
from urllib.parse import unquote

from aioproducer._config.secret import Secret
from aioproducer.errors import ConfigError

__all__ = ["ProxyAddress", "parse_proxy"]

#: The schemes, each with its usual port; HTTP proxies have none.
_PORTS: Final[Mapping[str, int | None]] = MappingProxyType({"socks5": 1080, "socks5h": 1080, "http": None})

#: SOCKS 5 has one byte for the length of a user name and of a password (RFC 1929).
_LONGEST: Final = 255


class ProxyAddress(NamedTuple):
    """The parts of a proxy's URL; ``str`` of it has no credentials."""

    scheme: str
    host: str
    port: int
    username: Secret | None = None
    password: Secret | None = None

    @property
    def resolves_names(self) -> bool:
        """Whether the proxy resolves the brokers' names, rather than this machine."""
        return self.scheme != "socks5"

    def __str__(self) -> str:
        return f"{self.scheme}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def parse_proxy(url: Secret, name: str = "proxy") -> ProxyAddress:
    """Return the parts of the URL that option ``name`` holds, percent-decoded. Raises `ConfigError`."""
    scheme, _, rest = url.reveal().partition("://")
    scheme = scheme.lower()
    if scheme not in _PORTS or not rest:
        raise ConfigError(
            f"{name} must begin with one of {', '.join(f'{known}://' for known in _PORTS)} and a host; a proxy that is "
            f"itself reached by TLS, and SOCKS 4, are not supported."
        )
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    tail = rest[len(authority) :]
    if "@" in tail:
        raise ConfigError(
            f"{name} has an @ after its host: write / ? # and @ in a user name or password percent-encoded "
            f"(%2F %3F %23 %40)."
        )
    if tail not in ("", "/"):
        raise ConfigError(f"{name} has a path, a query or a fragment; leave that out.")
    userinfo, has_user, server = authority.rpartition("@")
    host, port = _split_server(name, server, _PORTS[scheme])
    if not has_user:
        return ProxyAddress(scheme, host, port)
    return ProxyAddress(scheme, host, port, *_credentials(name, userinfo, scheme))


def _split_server(name: str, server: str, usual_port: int | None) -> tuple[str, int]:
    # Nothing is shown: without an @ the server may be the user name and the password.
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([\w.-]+))(?::([0-9]{1,5}))?", server)
    if found is None or (found[1] and not _is_ipv6(found[1])):
        raise ConfigError(
            f"{name} has no valid host and port: write host:port, an IPv6 address in brackets, and a user name and "
            f"password before an @."
        )
    port = usual_port if found[3] is None else int(found[3])
    if port is None:
        raise ConfigError(f"{name} has no port; HTTP proxies have no usual one, so write it, as in http://host:3128.")
    if not 1 <= port <= 65_535:
        raise ConfigError(f"{name} has an invalid port: must be a number from 1 to 65535.")
    return found[1] or found[2], port


def _credentials(name: str, userinfo: str, scheme: str) -> tuple[Secret, Secret]:
    user, _, password = (unquote(part) for part in userinfo.partition(":"))
    if not user or not password:
        raise ConfigError(f"{name} has an @, but not both a user name and a password; write user:password@host.")
    for text, what in ((user, "user name"), (password, "password")):
        if not (text.isascii() and text.isprintable() and len(text) <= _LONGEST):
            raise ConfigError(f"The {what} in {name} must be at most {_LONGEST} printable ASCII characters.")
    if scheme == "http" and ":" in user:
        raise ConfigError(f"The user name in {name} has a colon, which HTTP does not allow (RFC 7617).")
    return Secret(user), Secret(password)


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
