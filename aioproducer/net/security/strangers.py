"""Guesses what answered, or hung up, in place of a broker that should have answered ApiVersions."""

from __future__ import annotations

from typing import Final

__all__ = ["guess_stranger"]

_TLS_ALERT: Final = 0x15
_TLS_HANDSHAKE: Final = 0x16
_SSH: Final = b"SSH-"


def guess_stranger(first_bytes: bytes, *, uses_tls: bool) -> str | None:
    """Return the sentence after the broker's name, from the first bytes of the answer to ApiVersions; None: unknown."""
    if not first_bytes:
        return (
            "closed the connection without an answer to ApiVersions, the first request: is this Kafka?"
            if uses_tls
            else "closed the connection without an answer to ApiVersions, the first request: is this a listener with TLS "
            "(security_protocol SSL or SASL_SSL), or not Kafka?"
        )
    if first_bytes[:1] in (bytes([_TLS_ALERT]), bytes([_TLS_HANDSHAKE])) and first_bytes[1:2] == b"\x03":
        return "answers in TLS: set security_protocol to SSL, or to SASL_SSL."
    if first_bytes.startswith(b"HTTP"):
        return "answers in HTTP: this is a web server (a proxy, a REST API or a user interface), not Kafka."
    if first_bytes.startswith(_SSH):
        return "answers in SSH: this is not Kafka."
    return None
