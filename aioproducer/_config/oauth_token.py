"""What a token provider gives."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from aioproducer._config.secret import Secret

__all__ = ["OAuthToken"]


class OAuthToken:
    """A token for OAUTHBEARER, as ``sasl_oauth_token_provider`` returns it; a str will do where it says itself when it ends.

    ``expires_at`` is in seconds since 1970; None: what a JWT says of itself, and a token that says nothing is asked for
    anew at each login. ``extensions`` are told to the broker beside it (KIP-342), as Confluent's ``logicalCluster`` is.
    """

    __slots__ = ("expires_at", "extensions", "value")

    def __init__(
        self,
        value: str | Secret,
        *,
        expires_at: float | None = None,
        extensions: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.value = Secret(value)
        self.expires_at = expires_at
        self.extensions = dict(extensions)

    def __repr__(self) -> str:
        return f"OAuthToken({self.value!r}, expires_at={self.expires_at})"
