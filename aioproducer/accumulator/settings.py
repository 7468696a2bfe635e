"""The part of the configuration that batching needs."""

from __future__ import annotations

from typing import NamedTuple

from aioproducer.core.backoff import ExponentialBackoff
from aioproducer.record import Codec

__all__ = ["AccumulatorSettings"]


class AccumulatorSettings(NamedTuple):
    """Sizes are in bytes, times in seconds."""

    batch_size: int
    linger_s: float
    delivery_timeout_s: float
    retry_backoff: ExponentialBackoff
    max_request_size: int
    codec: Codec = Codec.NONE
    compression_level: int | None = None
    compression_threshold: int = 32768
    adaptive_partitioning: bool = True
    availability_timeout_s: float = 0.0
    client_rack: str | None = None  # set if the partitioner prefers leaders in this rack
