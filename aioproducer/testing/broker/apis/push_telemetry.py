"""PushTelemetry (api key 72): the metrics of a client (KIP-714)."""

from __future__ import annotations

from aioproducer.protocol import ErrorCode
from aioproducer.protocol.messages import PushTelemetryRequest, PushTelemetryResponse
from aioproducer.testing.broker.request import ApiHandler, RequestContext

__all__ = ["HANDLER"]


def handle(context: RequestContext, request: PushTelemetryRequest) -> PushTelemetryResponse:
    """Keep the metrics, or refuse them."""
    telemetry = context.cluster.telemetry
    code = ErrorCode.INVALID_REQUEST if telemetry is None else telemetry.push(request, context.now_ms)
    return PushTelemetryResponse(error_code=code)


def refuse(context: RequestContext, request: PushTelemetryRequest, code: ErrorCode) -> PushTelemetryResponse:
    """An error and nothing else."""
    return PushTelemetryResponse(error_code=code)


HANDLER = ApiHandler.of(PushTelemetryRequest, handle, refuse)
