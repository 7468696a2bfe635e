"""PushTelemetry (api key 72): metrics for the brokers' reporters, as OpenTelemetry's MetricsData (KIP-714)."""

from __future__ import annotations

from aioproducer.protocol.api_key import ApiKey
from aioproducer.protocol.message import Bool, Bytes, Int8, Int16, Int32, Request, Response, Uuid

__all__ = ["PushTelemetryRequest", "PushTelemetryResponse"]


class PushTelemetryResponse(Response):
    """The outcome of the push."""

    throttle_time_ms: Int32 = 0
    error_code: Int16


class PushTelemetryRequest(Request[PushTelemetryResponse], api_key=ApiKey.PUSH_TELEMETRY, versions=(0, 0), flexible=0):
    """``metrics`` are compressed as ``compression_type``, one of a batch's codecs, says; ``terminating``: the last push."""

    client_instance_id: Uuid
    subscription_id: Int32
    terminating: Bool = False
    compression_type: Int8 = 0
    metrics: Bytes
