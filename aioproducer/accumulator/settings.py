"""The part of the configuration that batching needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from aioproducer.core.backoff import ExponentialBackoff
from aioproducer.record import Codec

__all__ = ["AccumulatorSettings"]


class AccumulatorSettings(NamedTuple):
    """Sizes are in bytes, times in seconds; ``codec`` is that of the topics that ``codecs_by_topic`` does not name.

    The two ``old_`` fields are the codecs of these topics for brokers that do not support the first; None: the same.
    """

    batch_size: int
    linger_s: float
    delivery_timeout_s: float
    retry_backoff: ExponentialBackoff
    max_request_size: int
    codec: Codec = Codec.NONE
    codecs_by_topic: Mapping[str, Codec] = MappingProxyType({})
    old_codec: Codec | None = None
    old_codecs_by_topic: Mapping[str, Codec | None] = MappingProxyType({})
    compression_level: int | None = None
    compression_threshold: int = 32768
    adaptive_partitioning: bool = True
    availability_timeout_s: float = 0.0
    client_rack: str | None = None  # set if the partitioner prefers leaders in this rack
    stops_on_data_loss: bool = False

    @property
    def compresses(self) -> bool:
        """Whether the batches of any topic are compressed."""
        return any(codec is not Codec.NONE for codec in (self.codec, *self.codecs_by_topic.values()))

    def codec_of(self) -> Callable[[str], Codec]:
        """The function that returns a topic's codec."""
        codec, by_topic = self.codec, self.codecs_by_topic
        return (lambda topic: by_topic.get(topic, codec)) if by_topic else (lambda topic: codec)

    def old_codec_of(self) -> Callable[[str], Codec | None] | None:
        """The function that returns a topic's codec for old brokers; None if no topic has such a codec."""
        codec, by_topic = self.old_codec, self.old_codecs_by_topic
        if codec is None and not any(each is not None for each in by_topic.values()):
            return None
        return lambda topic: by_topic.get(topic, codec)
