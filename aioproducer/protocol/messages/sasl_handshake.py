"""SaslHandshake (api key 17): chooses the SASL mechanism of a connection."""

from __future__ import annotations

from aioproducer.protocol.api_key import ApiKey
from aioproducer.protocol.message import Array, Int16, Request, Response, String

__all__ = ["SaslHandshakeRequest", "SaslHandshakeResponse"]


class SaslHandshakeResponse(Response):
    """``mechanisms`` are those that the broker has enabled."""

    error_code: Int16
    mechanisms: Array[String]


class SaslHandshakeRequest(Request[SaslHandshakeResponse], api_key=ApiKey.SASL_HANDSHAKE, versions=(0, 1)):
    """Selects a mechanism.

    After version 0 the tokens follow without a request, each after its length; after version 1 in SaslAuthenticate
    (KIP-152).
    """

    mechanism: String
