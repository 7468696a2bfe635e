"""The fake broker's subscription to the metrics of clients, and what they push (KIP-714, Kafka's ClientMetricsManager)."""

from __future__ import annotations

import uuid
import zlib
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from aioproducer.errors import CorruptRecord
from aioproducer.protocol import ApiKey, ErrorCode
from aioproducer.protocol.messages import PushTelemetryRequest
from aioproducer.protocol.wire import ZERO_UUID
from aioproducer.record import Codec, decompress

__all__ = ["TELEMETRY_APIS", "PushedMetrics", "Telemetry"]

#: The APIs that brokers offer only with a reporter that takes the metrics of clients.
TELEMETRY_APIS: Final = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)

_LARGEST: Final = 1 << 26
#: The first id given to a client; the others count up from here, and look like version 4 UUIDs.
_FIRST_INSTANCE_ID: Final = 0xA10F0000_0000_4000_8000_000000000001
#: After these errors a client may ask for its subscription at once.
_OUT_OF_DATE: Final = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})


class PushedMetrics(NamedTuple):
    """A push that was accepted; ``metrics`` is OpenTelemetry's MetricsData, as bytes without compression."""

    client_instance_id: uuid.UUID
    terminating: bool
    codec: Codec
    metrics: bytes


@dataclass(slots=True)
class _Client:
    subscription_id: int = 0
    asked_at: int = -1
    pushed_at: int = -1
    is_terminating: bool = False
    last_error: int = ErrorCode.NONE


@dataclass(slots=True)
class Telemetry:
    """The subscription; its fields may be changed at any time, which gives it another id.

    ``metrics`` are beginnings of names: an empty one asks for all, none for nothing. ``pushes`` are those accepted so far.
    As in Kafka, requests that come sooner than the interval are refused, except the first push and a client's last one.
    """

    metrics: tuple[str, ...] = ("",)
    push_interval_ms: int = 300_000
    codecs: tuple[Codec, ...] = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
    max_bytes: int = 1_048_576
    is_delta: bool = True
    pushes: list[PushedMetrics] = field(default_factory=list[PushedMetrics])
    _clients: dict[uuid.UUID, _Client] = field(default_factory=dict[uuid.UUID, _Client])

    @property
    def subscription_id(self) -> int:
        """The id of the present subscription."""
        return zlib.crc32(repr((self.metrics, self.push_interval_ms)).encode()) & 0x7FFFFFFF

    def subscribe(self, instance: uuid.UUID, now_ms: int) -> tuple[int, uuid.UUID]:
        """A client asks for its subscription: the error code, and its id."""
        if instance == ZERO_UUID:
            instance = uuid.UUID(int=_FIRST_INSTANCE_ID + len(self._clients))
        client = self._clients.setdefault(instance, _Client())
        last = max(client.asked_at, client.pushed_at)
        if last >= 0 and now_ms - last < self.push_interval_ms and client.last_error not in _OUT_OF_DATE:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED, instance
        client.asked_at, client.last_error = now_ms, ErrorCode.NONE
        client.subscription_id = self.subscription_id
        return ErrorCode.NONE, instance

    def push(self, request: PushTelemetryRequest, now_ms: int) -> int:
        """A client pushes metrics: the error code."""
        client = self._clients.setdefault(request.client_instance_id, _Client(self.subscription_id))
        client.last_error = self._error_of(client, request, now_ms)
        if client.last_error == ErrorCode.NONE:
            codec = Codec(request.compression_type)
            metrics = decompress(codec, request.metrics, max_size=_LARGEST)
            self.pushes.append(PushedMetrics(request.client_instance_id, request.terminating, codec, metrics))
        return client.last_error

    def _error_of(self, client: _Client, request: PushTelemetryRequest, now_ms: int) -> int:
        if request.client_instance_id == ZERO_UUID or client.is_terminating:
            return ErrorCode.INVALID_REQUEST
        in_time = client.asked_at > client.pushed_at or now_ms - client.pushed_at >= self.push_interval_ms
        if not (in_time or request.terminating):
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        client.pushed_at = now_ms
        client.is_terminating = request.terminating
        if request.subscription_id != self.subscription_id:
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if request.compression_type not in (Codec.NONE, *self.codecs):
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        if len(request.metrics) > self.max_bytes:
            return ErrorCode.TELEMETRY_TOO_LARGE
        try:
            decompress(Codec(request.compression_type), request.metrics, max_size=_LARGEST)
        except CorruptRecord:
            return ErrorCode.INVALID_RECORD
        return ErrorCode.NONE
