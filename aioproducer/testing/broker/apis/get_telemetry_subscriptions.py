"""GetTelemetrySubscriptions (api key 71): the metrics that the cluster asks of a client (KIP-714)."""

from __future__ import annotations

from aioproducer.protocol import ErrorCode
from aioproducer.protocol.messages import GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse
from aioproducer.testing.broker.request import ApiHandler, RequestContext
from aioproducer.testing.broker.telemetry import Telemetry

__all__ = ["HANDLER"]


def handle(context: RequestContext, request: GetTelemetrySubscriptionsRequest) -> GetTelemetrySubscriptionsResponse:
    """The subscription, with an id for the client if it has none."""
    telemetry = context.cluster.telemetry or Telemetry(metrics=())
    code, instance = telemetry.subscribe(request.client_instance_id, context.now_ms)
    if code != ErrorCode.NONE:
        return refuse(context, request, ErrorCode(code))
    return GetTelemetrySubscriptionsResponse(
        error_code=ErrorCode.NONE,
        client_instance_id=instance,
        subscription_id=telemetry.subscription_id,
        accepted_compression_types=[int(codec) for codec in telemetry.codecs],
        push_interval_ms=telemetry.push_interval_ms,
        telemetry_max_bytes=telemetry.max_bytes,
        delta_temporality=telemetry.is_delta,
        requested_metrics=list(telemetry.metrics),
    )


def refuse(
    context: RequestContext, request: GetTelemetrySubscriptionsRequest, code: ErrorCode
) -> GetTelemetrySubscriptionsResponse:
    """An error and nothing else."""
    return GetTelemetrySubscriptionsResponse(error_code=code, accepted_compression_types=[], requested_metrics=[])


HANDLER = ApiHandler.of(GetTelemetrySubscriptionsRequest, handle, refuse)
