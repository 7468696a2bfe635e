"""SaslAuthenticate (api key 36): carries the tokens of a SASL mechanism."""

from __future__ import annotations

from aioproducer.protocol.api_key import ApiKey
from aioproducer.protocol.message import Bytes, Int16, Int64, NullableString, Request, Response, since

__all__ = ["SaslAuthenticateRequest", "SaslAuthenticateResponse"]


class SaslAuthenticateResponse(Response):
    """``session_lifetime_ms`` above 0: the client must authenticate again before it is over (KIP-368)."""

    error_code: Int16
    error_message: NullableString
    auth_bytes: Bytes
    session_lifetime_ms: Int64 = since(1, default=0)


class SaslAuthenticateRequest(
    Request[SaslAuthenticateResponse], api_key=ApiKey.SASL_AUTHENTICATE, versions=(0, 2), flexible=2
):
    """``auth_bytes`` may contain a password, and is never shown."""

    auth_bytes: Bytes
