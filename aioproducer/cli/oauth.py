"""The client credentials of an OAUTHBEARER login, from Java's and librdkafka's keys for it (KIP-768).

Only the command line reads them: its user chooses the file. A program may be configured by a stranger, and must
not make the program request a URL (CVE-2025-27817).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aioproducer._config.java_keys import read_jaas
from aioproducer.errors import ConfigError

__all__ = ["SECRETS", "is_of_tokens", "token_options", "token_provider"]

_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"
_SCOPE: Final = "sasl.oauthbearer.scope"
_EXTENSIONS: Final = "sasl.oauthbearer.extensions"
_URLENCODE: Final = "sasl.oauthbearer.header.urlencode"
_AUTHORITY: Final = "https.ca.location"
_METHOD: Final = "sasl.oauthbearer.method"
_JAAS: Final = "sasl.jaas.config"

#: Other spellings of these keys.
_ALIASES: Final[Mapping[str, str]] = {
    "sasl.oauthbearer.client.id": _ID,
    "sasl.oauthbearer.client.secret": _SECRET,
}
_KEYS: Final = frozenset({_URL, _ID, _SECRET, _SCOPE, _EXTENSIONS, _URLENCODE, _AUTHORITY, _METHOD, *_ALIASES})
#: Keys that hold a secret, with underscores.
SECRETS: Final = frozenset(key.replace(".", "_") for key in (_SECRET, "sasl.oauthbearer.client.secret", _JAAS))
#: The options of a JAAS line, by their keys; all others are extensions, as in Java.
_IN_JAAS: Final[Mapping[str, str]] = {"clientId": _ID, "clientSecret": _SECRET, "scope": _SCOPE}
_EXTENSION: Final = "extension_"


def is_of_tokens(key: str, value: object) -> bool:
    """Whether this belongs to `token_options`: one of its keys, or the JAAS line of such a login."""
    dotted = key.replace("_", ".")
    return dotted in _KEYS or (dotted == _JAAS and "OAuthBearerLoginModule" in str(value) and "=" in str(value))


def token_options(layer: Mapping[str, object]) -> dict[str, str]:
    """The options of one source, each by one key, so that sources can override each other; extensions by their names.

    A key counts more than the same option in the JAAS line beside it. Raises ConfigError for a line that cannot be read.
    """
    of_jaas: dict[str, str] = {}
    of_keys: dict[str, str] = {}
    for key, value in layer.items():
        dotted, text = key.replace("_", "."), str(value).strip()
        if dotted == _JAAS:
            of_jaas = _in_jaas(key, text)
        elif dotted == _EXTENSIONS:
            pairs = (pair.partition("=") for pair in text.split(",") if pair)
            of_keys |= {_EXTENSION + name.strip(): each.strip() for name, _, each in pairs}
        else:
            of_keys[_ALIASES.get(dotted, dotted)] = text
    return {**of_jaas, **of_keys}


def _in_jaas(key: str, line: str) -> dict[str, str]:
    _, options = read_jaas(line)
    if not options:
        raise ConfigError(f"{key} is not a JAAS line with options; its text is not shown, it may hold a secret.")
    return {_IN_JAAS.get(name, _EXTENSION + name.removeprefix(_EXTENSION)): option for name, option in options.items()}


def token_provider(found: Mapping[str, str]) -> object:
    """A `ClientCredentials` with these options; raises ConfigError for missing and unknown ones."""
    import ssl

    from aioproducer.oauth import ClientCredentials

    method = found.get(_METHOD, "oidc")
    if method != "oidc":
        raise ConfigError(f"{_METHOD}={method!r}: must be 'oidc'; no other method is supported.")
    url, client, secret = (found.get(key) for key in (_URL, _ID, _SECRET))
    missing = [key for key, value in ((_URL, url), (_ID, client), (_SECRET, secret)) if not value]
    if url is None or client is None or secret is None or missing:
        raise ConfigError(f"A login with tokens also needs {' and '.join(missing)}.")
    authority = found.get(_AUTHORITY)
    try:
        verify = None if authority is None else ssl.create_default_context(cafile=authority)
    except OSError as error:
        raise ConfigError(f"{_AUTHORITY}={authority!r} cannot be used: {error}.") from error
    return ClientCredentials(
        url,
        client,
        secret,
        scope=found.get(_SCOPE) or None,
        urlencode=found.get(_URLENCODE, "false").lower() == "true",
        verify=verify,
        extensions={name.removeprefix(_EXTENSION): text for name, text in found.items() if name.startswith(_EXTENSION)},
    )
