"""Fixes the bytes of batches, here or in a worker, and learns how well each topic compresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from aioproducer.accumulator.queues import Queues
from aioproducer.accumulator.settings import AccumulatorSettings
from aioproducer.core.batch_limits import BatchLimits
from aioproducer.core.batches import ProducerBatch
from aioproducer.core.compression_ratio import CompressionRatios
from aioproducer.hot import Lane
from aioproducer.metrics.producer import ProducerMetrics
from aioproducer.record import Codec, EncodedBatch
from aioproducer.types import TopicPartition

__all__ = ["Sealing"]


class Sealing:
    """Limits the size of batches before compression, and compresses them."""

    def __init__(
        self, settings: AccumulatorSettings, queues: Queues, lanes: Mapping[str, Lane], metrics: ProducerMetrics
    ) -> None:
        self._settings = settings
        self._queues = queues
        self._lanes = lanes
        self._metrics = metrics
        self._compresses = settings.compresses  # asked first: by default nothing is compressed
        #: The preferred codec of a topic.
        self.codec_of: Final = settings.codec_of()
        self._old_codec_of = settings.old_codec_of()
        #: Returns whether the partition's leader supports zstd; None if its versions are not known.
        self.supports_zstd: Callable[[TopicPartition], bool | None] = lambda partition: None
        self._ratios = CompressionRatios()
        self.limits = BatchLimits(settings.batch_size)
        #: The batches that `take_to_seal` returns next.
        self.to_seal: list[ProducerBatch] = []

    # -- the size -----------------------------------------------------------------------------------------------------

    def limit(self, topic: str) -> int:
        """The size in bytes, before compression, up to which a batch of the topic is filled."""
        limit = self.limits.limit(topic) if self.limits.by_topic else self._settings.batch_size
        if not self._compresses or self.codec_of(topic) is Codec.NONE:
            return limit
        return min(self._ratios.uncompressed_limit(topic, limit), max(limit, self._settings.max_request_size))

    def expect(self, topic: str) -> None:
        """Set the length of a partition's turn by the bytes that its records are expected to take on the wire."""
        if self.codec_of(topic) is not Codec.NONE and topic in self._lanes:
            self._lanes[topic].sticky.ratio = self._ratios.on_the_wire(topic)

    def refused(self, batch: ProducerBatch) -> None:
        """The broker found the batch too large: make the topic's batches smaller, and expect no better ratio."""
        assert batch.encoded is not None
        topic = batch.partition.topic
        self.limits.refused(topic, batch.encoded.size)
        if self.codec_of(topic) is not Codec.NONE:
            self._ratios.reset(topic, batch.encoded.size / batch.encoded.uncompressed_size)
            self.expect(topic)

    def forget(self, topic: str) -> None:
        """Drop the state of a topic."""
        self._ratios.forget(topic)
        self.limits.forget(topic)

    # -- the bytes ----------------------------------------------------------------------------------------------------

    def codec_for(self, batch: ProducerBatch) -> Codec:
        """The codec of a batch that is sealed now: its topic's, or the one for old brokers if its leader may be one."""
        topic = batch.partition.topic
        if self._old_codec_of is None:
            return self.codec_of(topic)
        old = self._old_codec_of(topic)
        return self.codec_of(topic) if old is None or self.supports_zstd(batch.partition) else old

    def seal(self, batch: ProducerBatch) -> EncodedBatch | None:
        """Fix the bytes of a batch now, and return them; None if a worker has to compress it."""
        if batch.encoded is not None:
            return batch.encoded
        if batch.is_sealing:
            return None
        if not self._compresses or (codec := self.codec_for(batch)) is Codec.NONE:
            return batch.seal(Codec.NONE, None)
        if self._is_large(batch):
            self._hand_to_worker(batch)
            return None
        uncompressed = batch.size
        encoded = batch.seal(codec, self._settings.compression_level)
        self._observe(batch, uncompressed)
        return encoded

    def seal_ahead(self, batch: ProducerBatch) -> None:
        """Queue a large batch for compression as soon as no record can join it."""
        if not batch.is_open or batch.is_sealing or not self._is_large(batch):
            return
        if self._old_codec(batch.partition.topic) is not None and self.supports_zstd(batch.partition) is None:
            return  # its codec is chosen when it is drained, because its leader's versions are known then
        if self.codec_for(batch) is not Codec.NONE:
            self._hand_to_worker(batch)

    def take_to_seal(self) -> list[ProducerBatch]:
        """Return the batches to compress off the event loop; each comes back through `sealed`."""
        if not self.to_seal:
            return []
        batches, self.to_seal = self.to_seal, []
        return [batch for batch in batches if batch.is_open]  # some may have been given up since they were queued

    def sealed(self, batch: ProducerBatch, encoded: EncodedBatch, now: float) -> None:
        """A worker has compressed the batch."""
        if batch.result.done:  # it expired in between
            batch.drop_bytes()
            return
        uncompressed = batch.size
        batch.sealed(encoded)
        self._observe(batch, uncompressed)
        self._queues.place_again(batch.partition, now)

    def _old_codec(self, topic: str) -> Codec | None:
        return None if self._old_codec_of is None else self._old_codec_of(topic)

    def _is_large(self, batch: ProducerBatch) -> bool:
        return batch.size >= self._settings.compression_threshold

    def _hand_to_worker(self, batch: ProducerBatch) -> None:
        batch.is_sealing = True
        self.to_seal.append(batch)

    def _observe(self, batch: ProducerBatch, uncompressed: int) -> None:
        ratio = batch.size / uncompressed
        self._ratios.observe(batch.partition.topic, ratio)
        self.expect(batch.partition.topic)
        self._metrics.compression_rate.observe(ratio)
