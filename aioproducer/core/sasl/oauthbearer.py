"""OAUTHBEARER: a token from a third party (RFC 7628, KIP-255; extensions: KIP-342)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, cast

from aioproducer._config.secret import Secret
from aioproducer.core.sasl.mechanism import Done, MechanismError, SendToken, Step, Token
from aioproducer.core.sasl.words import shown

__all__ = ["OAuthBearer"]

_SEPARATOR: Final = "\x01"
_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")  # b64token of RFC 6750; so no \x01, no line break
_KEY: Final = re.compile(r"[A-Za-z]+")
_INVALID: Final = "status invalid_token"
_CAUSES: Final = (
    "the signature, issuer, audience or time of the token is not what the broker accepts; the broker's log says which"
)
_VALUE: Final = re.compile(r"[\x21-\x7E \t\r\n]*")


class OAuthBearer:
    """Sends the token; a broker that rejects it first gives the reason, then refuses."""

    name = "OAUTHBEARER"
    blocks = False

    def __init__(self, token: Secret, extensions: Mapping[str, str]) -> None:
        self._token = token
        self._extensions = extensions
        self._status: str | None = None

    def start(self) -> Step:
        """Return the only message; raises `MechanismError` for a token or extension that it cannot hold unchanged."""
        if not _TOKEN.fullmatch(self._token.reveal()):
            raise MechanismError("cannot be sent this token: it contains characters that are not allowed in tokens")
        for key, value in self._extensions.items():
            # "auth" would be the token itself.
            if key == "auth" or not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
                raise MechanismError(
                    f"cannot be sent the extension {key!r}: its name must be letters, its value printable characters"
                )
        extensions = "".join(f"{key}={value}{_SEPARATOR}" for key, value in self._extensions.items())
        said = f"n,,{_SEPARATOR}auth=Bearer {self._token.reveal()}{_SEPARATOR}{extensions}{_SEPARATOR}"
        return SendToken(Token(said.encode()))

    def challenged(self, token: bytes) -> Step:
        """Handle the broker's answer: empty on success, else a JSON object with the error, which must be acknowledged."""
        if self._status is not None:
            raise MechanismError(f"does not accept the token: {self._status}")
        if not token:
            return Done()
        self._status = shown(_status(token), self._token.reveal())
        return SendToken(Token(_SEPARATOR.encode()))

    def derived(self, salted: bytes) -> Step:
        """Never called: OAUTHBEARER derives no key."""
        raise AssertionError(salted)

    def explain(self, message: str) -> str:
        """Return the broker's message and the status that it sent before."""
        said, token = self._status, self._token.reveal()
        if said is None or said != shown(_status(message.encode(errors="replace")), token):
            return shown(message, token) if said is None else f"{shown(message, token)} ({said})"
        return f"{said}: {_CAUSES}" if said == _INVALID else said  # Kafka's brokers send the same text twice


def _status(token: bytes) -> str:
    try:
        response: Any = json.loads(token)
    except (ValueError, RecursionError):
        return "the broker's reason is unreadable"
    if not isinstance(response, dict):
        return "the broker's reason is unreadable"
    fields = cast("dict[str, object]", response)
    return ", ".join(f"{key} {fields[key]}" for key in ("status", "scope") if fields.get(key)) or "no reason given"
