"""Reads what brokers ask of a client's metrics (KIP-714), and decides what follows each answer."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, NamedTuple
from uuid import UUID

from aioproducer.protocol.error_codes import ErrorCode
from aioproducer.protocol.messages import GetTelemetrySubscriptionsResponse, PushTelemetryResponse
from aioproducer.protocol.wire import ZERO_UUID
from aioproducer.record import Codec

__all__ = ["Next", "Subscription", "after_push", "after_refusal", "check_push", "read_subscription"]

#: Every metric's name begins with it.
_ALL: Final = ""


class Next(Enum):
    """The next step of a client that pushes metrics."""

    PUSH = auto()  # again, after the interval
    SUBSCRIBE = auto()  # at once: the subscription is out of date
    SUBSCRIBE_LATER = auto()  # after the interval
    STOP = auto()  # the broker finds the client's requests invalid, and would find the next ones as well


#: Other errors may pass: the same request is made again later (ClientTelemetryReporter).
_AFTER_PUSH: Final[Mapping[int, Next]] = {
    ErrorCode.NONE: Next.PUSH,
    ErrorCode.UNKNOWN_SUBSCRIPTION_ID: Next.SUBSCRIBE,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: Next.SUBSCRIBE,
    ErrorCode.INVALID_REQUEST: Next.STOP,
    ErrorCode.INVALID_RECORD: Next.STOP,
    ErrorCode.UNSUPPORTED_VERSION: Next.STOP,
}
_AFTER_REFUSAL: Final[Mapping[int, Next]] = {
    ErrorCode.INVALID_REQUEST: Next.STOP,
    ErrorCode.UNSUPPORTED_VERSION: Next.STOP,
}


class Subscription(NamedTuple):
    """The metrics that the cluster asks of this client; ``prefixes`` are the beginnings of their names."""

    client_instance_id: UUID
    subscription_id: int
    codecs: tuple[int, ...]  # that it accepts, the preferred one first; some may be unknown here
    push_interval_s: float
    max_bytes: int
    is_delta: bool
    prefixes: tuple[str, ...]

    def wants(self, name: str) -> bool:
        """Whether it asks for the metric with this name."""
        return name.startswith(self.prefixes)

    @property
    def known_codecs(self) -> list[Codec]:
        """The codecs that both sides know, the broker's favourite first; `Codec.NONE` is always accepted."""
        known = set(Codec)
        return [*(Codec(each) for each in self.codecs if each in known and each != Codec.NONE), Codec.NONE]


def read_subscription(response: GetTelemetrySubscriptionsResponse) -> Subscription | int:
    """Return the subscription, or the error code.

    An impossible one counts as an error that may pass: closing the connection would disturb its records.
    """
    if response.error_code != ErrorCode.NONE:
        return response.error_code
    if response.client_instance_id == ZERO_UUID or response.push_interval_ms <= 0 or response.telemetry_max_bytes < 0:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    prefixes = tuple(response.requested_metrics)
    return Subscription(
        response.client_instance_id,
        response.subscription_id,
        tuple(response.accepted_compression_types),
        response.push_interval_ms / 1000,
        response.telemetry_max_bytes,
        response.delta_temporality,
        (_ALL,) if _ALL in prefixes else prefixes,
    )


def check_push(response: PushTelemetryResponse) -> int:
    """Return the error code of a push."""
    return response.error_code


def after_push(code: int) -> Next:
    """The step after a push with this outcome."""
    return _AFTER_PUSH.get(code, Next.SUBSCRIBE_LATER)


def after_refusal(code: int) -> Next:
    """The step after a refused request for the subscription."""
    return _AFTER_REFUSAL.get(code, Next.SUBSCRIBE_LATER)
