"""The client credentials of an OAUTHBEARER login, from Java's and librdkafka's keys for it (KIP-768).

Only the command line reads them: its user chooses the file. A program may be configured by a stranger, and must
not make the program request a URL (CVE-2025-27817).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aioproducer._config.java_keys import read_jaas
from aioproducer.errors import ConfigError

__all__ = ["is_of_tokens", "token_provider"]

_URL: Final = "sasl.oauthbearer.token.endpoint.url"
#: The keys of what a provider needs, the first one that is given counts.
_ID: Final = ("sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.id")
_SECRET: Final = ("sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.client.secret")
_SCOPE: Final = "sasl.oauthbearer.scope"
_EXTENSIONS: Final = "sasl.oauthbearer.extensions"
_URLENCODE: Final = "sasl.oauthbearer.header.urlencode"
_AUTHORITY: Final = "https.ca.location"
_METHOD: Final = "sasl.oauthbearer.method"
_JAAS: Final = "sasl.jaas.config"

_KEYS: Final = frozenset({_URL, *_ID, *_SECRET, _SCOPE, _EXTENSIONS, _URLENCODE, _AUTHORITY, _METHOD})
#: The options of a JAAS line, by their keys; all others are extensions, as in Java.
_IN_JAAS: Final[Mapping[str, str]] = {"clientId": _ID[0], "clientSecret": _SECRET[0], "scope": _SCOPE}
_EXTENSION: Final = "extension_"


def is_of_tokens(key: str, value: object) -> bool:
    """Whether this belongs to `token_provider`: one of its keys, or the JAAS line of such a login."""
    dotted = key.replace("_", ".")
    return dotted in _KEYS or (dotted == _JAAS and "OAuthBearerLoginModule" in str(value) and "=" in str(value))


def token_provider(given: Mapping[str, object]) -> object:
    """A `ClientCredentials` with these values; raises ConfigError for missing and unknown ones."""
    import ssl

    from aioproducer.oauth import ClientCredentials

    found, extensions = _flat(given)
    method = found.get(_METHOD, "oidc")
    if method != "oidc":
        raise ConfigError(f"{_METHOD}={method!r}: must be 'oidc'; no other method is supported.")
    url = found.get(_URL)
    client, secret = (next((found[key] for key in keys if key in found), None) for keys in (_ID, _SECRET))
    missing = [key for key, value in ((_URL, url), (_ID[0], client), (_SECRET[0], secret)) if not value]
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
        extensions=extensions,
    )


def _flat(given: Mapping[str, object]) -> tuple[dict[str, str], dict[str, str]]:
    """The texts by their dotted keys, and the extensions."""
    found: dict[str, str] = {}
    extensions: dict[str, str] = {}
    for key, value in given.items():
        dotted, text = key.replace("_", "."), str(value).strip()
        if dotted == _JAAS:
            _, options = read_jaas(text)
            if not options:
                raise ConfigError(
                    f"{key} is not a JAAS line with options; its text is not shown, it may hold a secret."
                )
            for name, option in options.items():
                if name in _IN_JAAS:
                    found.setdefault(_IN_JAAS[name], option)
                else:
                    extensions[name.removeprefix(_EXTENSION)] = option
        else:
            found[dotted] = text
    pairs = filter(None, found.pop(_EXTENSIONS, "").split(","))
    extensions |= {name.strip(): text.strip() for name, _, text in (pair.partition("=") for pair in pairs)}
    return found, extensions
