"""SaslHandshake (api key 17): chooses the mechanism of a login; there are none without logins."""

from __future__ import annotations

from aioproducer.protocol import ErrorCode
from aioproducer.protocol.messages import SaslHandshakeRequest, SaslHandshakeResponse
from aioproducer.testing.broker.request import ApiHandler, RequestContext

__all__ = ["HANDLER"]


def handle(context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """The supported mechanisms, and whether the requested one is among them."""
    session = context.cluster.session(context.request.connection)
    code = ErrorCode.ILLEGAL_SASL_STATE if session is None else session.handshake(request.mechanism)
    return refuse(context, request, code)


def refuse(context: RequestContext, request: SaslHandshakeRequest, code: ErrorCode) -> SaslHandshakeResponse:
    """A response with this code."""
    logins = context.cluster.logins
    return SaslHandshakeResponse(error_code=code, mechanisms=[] if logins is None else list(logins.mechanisms))


HANDLER = ApiHandler.of(SaslHandshakeRequest, handle, refuse)
