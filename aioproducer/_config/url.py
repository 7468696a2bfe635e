"""The options in a URL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final
from urllib.parse import unquote

from aioproducer._config.problems import Problems
from aioproducer._config.properties import java_options
from aioproducer._config.secret import Secret
from aioproducer._config.servers import parse_bootstrap_servers
from aioproducer.errors import ConfigError

__all__ = ["url_options"]

_SCHEMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "kafka": "PLAINTEXT",
        "kafka+plaintext": "PLAINTEXT",
        "kafka+ssl": "SSL",
        "kafka+sasl-plaintext": "SASL_PLAINTEXT",
        "kafka+sasl-ssl": "SASL_SSL",
    }
)


def url_options(url: str, overrides: Mapping[str, object], problems: Problems) -> dict[str, object]:
    """The options in ``url``, except those after the ? that ``overrides`` replaces; no error shows the URL.

    ``problems`` collects errors of options; a URL that cannot be parsed raises.
    """
    scheme, _, rest = url.partition("://")
    protocol = _SCHEMES.get(scheme.strip().lower().replace("_", "-"))
    if protocol is None or not rest:
        # The URL is not shown, here or below: it may hold a password.
        raise ConfigError(
            f"The URL does not begin with one of {', '.join(f'{known}://' for known in _SCHEMES)} and the servers, as "
            f"in kafka://host1:9092,host2:9092/?linger_ms=5."
        )
    authority, query = _split_url(rest)
    userinfo, _, servers = authority.rpartition("@")
    found: dict[str, object] = {"security_protocol": protocol, "bootstrap_servers": _url_servers(_decoded(servers))}
    user, colon, password = userinfo.partition(":")
    if user:
        found["sasl_username"] = _decoded(user)
    if colon:
        found["sasl_password"] = Secret(_decoded(password))
    implied = scheme.strip().lower() == "kafka"
    options = java_options(_query_options(query), overrides, problems)
    for name in options.keys() & found.keys():
        # kafka:// says nothing about security, so an option may.
        if not (implied and name == "security_protocol") and options[name] != found[name]:
            problems.add(
                ConfigError(f"The URL sets {name} twice, with different values: before the ? and after it."), name
            )
    return {**found, **options}


def _url_servers(servers: str) -> tuple[str, ...]:
    try:
        addresses = parse_bootstrap_servers(servers)
    except ConfigError:
        addresses = ()
    if not addresses:
        # Outside the except clause, so that the first error, which shows a host that may be half a password, is not the
        # context of this one.
        raise ConfigError(
            "The servers in the URL are not host:port,host:port without repetition; IPv6 addresses must be in "
            "brackets, and a user name and password before an @."
        )
    return tuple(map(str, addresses))


def _split_url(rest: str) -> tuple[str, str]:
    """The servers with the part before them, and the options."""
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    path, _, query = rest[len(authority) :].partition("?")
    if "@" in path + query:
        # This may be a name or password that contains / ? or #: its parts must not be shown as a host or an option.
        raise ConfigError(
            "The URL has an @ after the servers: write / ? # and @ in a name, password or option percent-encoded "
            "(%2F %3F %23 %40)."
        )
    if path not in ("", "/"):
        raise ConfigError("The URL has a path or a fragment after the servers; a topic belongs to send(), not here.")
    if "#" in query:
        raise ConfigError("The URL has a fragment; write # in an option as %23.")
    return authority, query


def _query_options(query: str) -> dict[str, object]:
    given: dict[str, object] = {}
    for part in filter(None, query.split("&")):
        key, equals, text = part.partition("=")
        if not equals:
            raise ConfigError("The URL has an option without a value; write name=value.")
        name = _decoded(key)
        if name in given:
            raise ConfigError(f"The URL gives {name!r} twice.")
        given[name] = _decoded(text)
    return given


def _decoded(text: str) -> str:
    decoded = unquote(text, errors="surrogateescape")
    if re.search("[\ud800-\udfff]", decoded):
        # A replacement character would silently change the password.
        raise ConfigError("The URL has percent-encoded bytes that are not UTF-8; encode names and passwords as UTF-8.")
    return decoded
