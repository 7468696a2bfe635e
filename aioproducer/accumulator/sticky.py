"""Chooses the partition for records without a key by how busy the partitions are (KIP-794, KIP-1123)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from aioproducer.accumulator.queues import Queues
from aioproducer.accumulator.settings import AccumulatorSettings
from aioproducer.accumulator.stopped_partitions import StoppedPartitions
from aioproducer.core.cluster import ClusterMetadata, TopicMetadata
from aioproducer.core.partitioner import PartitionLoad, StickyPartitions
from aioproducer.hot import Lane, StickyPartition

__all__ = ["StickyChoice"]

#: The longest turn of a partition, in bytes. Java's turns are as long as its batches, 16 KiB by default. Ours would
#: put 2,600 records of 100 bytes into one partition. Shorter turns cost nothing: a partition whose turn comes again
#: before its batch has left continues that batch. franz-go also uses 64 KiB.
_LONGEST_TURN = 65_536

#: How long the weights of the adaptive partitioner are used before they are recomputed, in seconds; the same again
#: for each further thousand partitions, because computing them takes time.
_LOAD_MAX_AGE_S = 0.01


class _Candidates(NamedTuple):
    """The partitions for records without a key, in this version of the metadata.

    ``led`` have a leader; ``near`` are those whose leader is in this client's rack, or all of ``led`` if there are
    none.
    """

    topic: TopicMetadata
    version: int
    led: Sequence[int]
    near: Sequence[int]


class StickyChoice:
    """The partitions that may be chosen, with their load, for all topics."""

    def __init__(
        self,
        settings: AccumulatorSettings,
        metadata: ClusterMetadata,
        queues: Queues,
        lanes: Mapping[str, Lane],
        stopped: StoppedPartitions,
        *,
        random: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._metadata = metadata
        self._queues = queues
        self._lanes = lanes
        self._stopped = stopped
        stopped.on_change = self.choose_again
        self._random = random
        self._candidates: dict[str, _Candidates] = {}
        self._loads: dict[str, tuple[float, PartitionLoad | None]] = {}
        self._slow_since: dict[int, float] = {}  # nodes that have batches ready and accept none

    def begin(self) -> StickyPartitions:
        """Return the sticky state of a new topic: no partition chosen yet."""
        return StickyPartitions(min(self._settings.batch_size, _LONGEST_TURN), self._random_31_bits)

    def _random_31_bits(self) -> int:
        return int(self._random() * 0x80000000)

    def switch(self, topic: TopicMetadata, sticky: StickyPartition, now: float) -> int:
        """Choose another partition of the topic."""
        assert isinstance(sticky, StickyPartitions)
        known = self._candidates.get(topic.name)
        if known is None or known[0] is not topic or known[1] != self._metadata.version:
            known = self._candidates[topic.name] = self._find_candidates(topic)
        load = self._load(known, now) if self._settings.adaptive_partitioning and known.led else None
        every = range(topic.partition_count)
        return sticky.switch(known.near or self._open(topic, every) or every, load)

    def choose_again(self, topic: str) -> None:
        """End the turn of the topic's partition: one of them was stopped, or accepts records again."""
        self.forget(topic)
        lane = self._lanes.get(topic)
        if lane is not None:
            lane.sticky.partition = -1

    def forget(self, topic: str) -> None:
        """Drop the state of a topic."""
        self._candidates.pop(topic, None)
        self._loads.pop(topic, None)

    def not_accepted(self, node: int, now: float) -> None:
        """Note that the node cannot take more; this counts against it if it has more batches ready."""
        if self._queues.is_ready(node):
            self._slow_since.setdefault(node, now)

    def taken(self, node: int) -> None:
        """The node takes batches again."""
        self._slow_since.pop(node, None)

    def _open(self, topic: TopicMetadata, partitions: Sequence[int]) -> Sequence[int]:
        """Return those of the partitions that accept records."""
        losses = self._stopped.losses
        return [index for index in partitions if (topic.name, index) not in losses] if losses else partitions

    def _find_candidates(self, topic: TopicMetadata) -> _Candidates:
        have_leaders = [partition.index for partition in topic.partitions if partition.leader >= 0]
        led = near = self._open(topic, have_leaders)
        if not led and not self._open(topic, range(topic.partition_count)):
            led = near = have_leaders
        rack, nodes = self._settings.client_rack, self._metadata.nodes
        if rack is not None:
            leaders = [(index, nodes.get(topic.partitions[index].leader)) for index in led]
            near = [index for index, leader in leaders if leader is not None and leader.rack == rack] or led
        return _Candidates(topic, self._metadata.version, led, near)

    def _load(self, candidates: _Candidates, now: float) -> PartitionLoad | None:
        """The weights of the candidates; None until every partition was used once, as in Java."""
        topic, _, led, near = candidates
        known = self._loads.get(topic.name)
        if known is not None and now - known[0] < _LOAD_MAX_AGE_S * (1 + len(near) / 1000):
            return known[1]
        load: PartitionLoad | None = None
        if all((topic.name, index) in self._queues.by_partition for index in near):
            usable = self._usable(topic, near, now)
            if not usable:  # another rack is better than leaders that accept nothing (KIP-1123)
                usable, near = self._usable(topic, led, now), led
            load = PartitionLoad.of(usable, some_left_out=len(usable) < len(near))
        self._loads[topic.name] = (now, load)
        return load

    def _usable(self, topic: TopicMetadata, candidates: Sequence[int], now: float) -> list[tuple[int, int]]:
        """Return the partitions whose leaders are not slow, with the number of batches that wait in each."""
        slow = {node for node in self._slow_since if self._is_slow(node, now)}
        queues = (
            (index, self._queues.by_partition.get((topic.name, index)))
            for index in candidates
            if topic.partitions[index].leader not in slow
        )
        return [(index, 0 if queue is None else len(queue.batches)) for index, queue in queues]

    def _is_slow(self, node: int, now: float) -> bool:
        timeout = self._settings.availability_timeout_s
        # A node with nothing ready counts as fast: otherwise nothing would be sent there again, and no change detected.
        return timeout > 0 and self._queues.is_ready(node) and now - self._slow_since.get(node, now) > timeout
