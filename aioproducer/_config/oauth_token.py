"""The token that a token provider returns."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from aioproducer._config.secret import Secret

__all__ = ["OAuthToken"]


class OAuthToken:
    """A token for OAUTHBEARER, returned by ``sasl_oauth_token_provider``; a str is enough if the token contains its expiry.

    ``expires_at`` is in seconds since 1970; None: that of the JWT, or, if it has none, a new token is requested for each
    login. ``extensions`` are sent to the broker with the token (KIP-342), for example Confluent's ``logicalCluster``.
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
