"""GetTelemetrySubscriptions (api key 71): the metrics that the cluster asks of a client (KIP-714)."""

from __future__ import annotations

from aioproducer.protocol.api_key import ApiKey
from aioproducer.protocol.message import Array, Bool, Int8, Int16, Int32, Request, Response, String, Uuid
from aioproducer.protocol.wire import ZERO_UUID

__all__ = ["GetTelemetrySubscriptionsRequest", "GetTelemetrySubscriptionsResponse"]


class GetTelemetrySubscriptionsResponse(Response):
    """The subscription. A requested metric is the beginning of a name; an empty one asks for all, an empty list for none."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    client_instance_id: Uuid = ZERO_UUID
    subscription_id: Int32 = 0
    accepted_compression_types: Array[Int8]
    push_interval_ms: Int32 = 0
    telemetry_max_bytes: Int32 = 0
    delta_temporality: Bool = False
    requested_metrics: Array[String]


class GetTelemetrySubscriptionsRequest(
    Request[GetTelemetrySubscriptionsResponse], api_key=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, versions=(0, 0), flexible=0
):
    """With the zero id, the broker gives the client one."""

    client_instance_id: Uuid = ZERO_UUID
