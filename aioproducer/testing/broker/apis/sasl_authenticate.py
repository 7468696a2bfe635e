"""SaslAuthenticate (api key 36): one step of a login. After a refusal the broker closes the connection."""

from __future__ import annotations

from aioproducer.protocol import ErrorCode
from aioproducer.protocol.messages import SaslAuthenticateRequest, SaslAuthenticateResponse
from aioproducer.testing.broker.request import ApiHandler, RequestContext

__all__ = ["HANDLER"]


def handle(context: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """The mechanism's response."""
    session = context.cluster.session(context.request.connection)
    if session is None:
        return refuse(context, request, ErrorCode.ILLEGAL_SASL_STATE)
    code, message, answer, lifetime_ms = session.authenticate(request.auth_bytes, context.now_ms)
    return SaslAuthenticateResponse(
        error_code=code, error_message=message, auth_bytes=answer, session_lifetime_ms=lifetime_ms
    )


def refuse(context: RequestContext, request: SaslAuthenticateRequest, code: ErrorCode) -> SaslAuthenticateResponse:
    """A refusal injected by a test."""
    return SaslAuthenticateResponse(error_code=code, error_message=None, auth_bytes=b"")


HANDLER = ApiHandler.of(SaslAuthenticateRequest, handle, refuse)
