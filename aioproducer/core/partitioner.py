"""Chooses the partition of a record that names none (Java's BuiltInPartitioner, KIP-480, KIP-794, KIP-1123).

With a key: murmur2 of its bytes over all partitions, as Java does it, so that every client agrees on a key's home.
Without a key: stick to one partition for a turn of some number of bytes, then choose another at random. If the queues
differ, the choice is weighted: a partition with more waiting batches gets fewer. Partitions without a leader get none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from zlib import crc32

from aioproducer.hot import StickyPartition
from aioproducer.record import partition_for_key

if TYPE_CHECKING:
    from aioproducer.core.cluster import TopicMetadata

__all__ = [
    "LIBRDKAFKA_PARTITIONERS",
    "PartitionIds",
    "PartitionLoad",
    "Partitioner",
    "RoundRobinPartitioner",
    "StickyPartitions",
    "fnv1a",
    "murmur2_partitioner",
]


class PartitionIds(tuple[int, ...]):
    """All partitions of a topic; ``available`` are those that have a leader now."""

    available: tuple[int, ...]

    @classmethod
    def of(cls, topic: TopicMetadata) -> PartitionIds:
        """Return the partitions of a topic from its metadata."""
        ids = cls(partition.index for partition in topic.partitions)
        ids.available = tuple(partition.index for partition in topic.partitions if partition.leader >= 0)
        return ids


class Partitioner(Protocol):
    """The type of ``partitioner=``: any callable with this signature.

    ``key`` and ``value`` are serialized. It returns one of ``partitions``, or None for the built-in choice.
    """

    def __call__(
        self, topic: str, key: bytes | None, value: bytes | None, partitions: PartitionIds, /
    ) -> int | None: ...


def murmur2_partitioner(topic: str, key: bytes | None, value: bytes | None, partitions: PartitionIds, /) -> int | None:
    """Java's default: murmur2 of the key; without a key, the built-in sticky choice."""
    return None if key is None else partition_for_key(key, len(partitions))


def fnv1a(data: bytes) -> int:
    """FNV-1a of 32 bits as librdkafka and Sarama have it: the absolute value of the signed hash, 0 to 2**31."""
    h = 0x811C9DC5
    for byte in data:
        h = (h ^ byte) * 0x01000193 & 0xFFFF_FFFF
    return abs(h - (h >> 31 << 32))


def _consistent(topic: str, key: bytes | None, value: bytes | None, partitions: PartitionIds, /) -> int | None:
    return crc32(key or b"") % len(partitions)


def _consistent_random(topic: str, key: bytes | None, value: bytes | None, partitions: PartitionIds, /) -> int | None:
    return crc32(key) % len(partitions) if key else None


def _murmur2(topic: str, key: bytes | None, value: bytes | None, partitions: PartitionIds, /) -> int | None:
    return partition_for_key(key or b"", len(partitions))


def _fnv1a(topic: str, key: bytes | None, value: bytes | None, partitions: PartitionIds, /) -> int | None:
    return fnv1a(key or b"") % len(partitions)


def _fnv1a_random(topic: str, key: bytes | None, value: bytes | None, partitions: PartitionIds, /) -> int | None:
    return None if key is None else fnv1a(key) % len(partitions)


#: librdkafka's partitioners by its names, equal to them for each key. An empty key counts as none for
#: ``consistent_random`` alone. If librdkafka chooses a random partition per record, ours stick to one for a turn.
LIBRDKAFKA_PARTITIONERS: Final[Mapping[str, Partitioner]] = MappingProxyType(
    {
        "consistent": _consistent,
        "consistent_random": _consistent_random,
        "murmur2": _murmur2,
        "murmur2_random": murmur2_partitioner,
        "fnv1a": _fnv1a,
        "fnv1a_random": _fnv1a_random,
    }
)


class RoundRobinPartitioner:
    """Each record to the next available partition in turn, whatever its key (Java's RoundRobinPartitioner)."""

    def __init__(self) -> None:
        self._turns: dict[str, int] = {}

    def __call__(self, topic: str, key: bytes | None, value: bytes | None, partitions: PartitionIds, /) -> int:
        turn = self._turns.get(topic, 0)
        self._turns[topic] = turn + 1
        candidates: Sequence[int] = partitions.available or partitions
        return candidates[turn % len(candidates)]


class PartitionLoad(NamedTuple):
    """The weight of each partition by its load, as running sums that a random number picks from."""

    ids: tuple[int, ...]
    cumulative: tuple[int, ...]

    @classmethod
    def of(cls, queues: Sequence[tuple[int, int]], *, some_left_out: bool = False) -> PartitionLoad | None:
        """Return the weights for (partition, batches waiting); None if all are equal and none was left out.

        A partition's weight is the longest queue minus its own, plus one: 0, 3, 1 waiting become 4, 1, 3.
        """
        if len(queues) < (1 if some_left_out else 2):
            return None
        longest = max(waiting for _, waiting in queues)
        if not some_left_out and all(waiting == longest for _, waiting in queues):
            return None
        cumulative: list[int] = []
        total = 0
        for _, waiting in queues:
            total += longest + 1 - waiting
            cumulative.append(total)
        return cls(tuple(partition for partition, _ in queues), tuple(cumulative))

    def pick(self, random_31_bits: int) -> int:
        """Return the partition for this random number."""
        return self.ids[bisect_right(self.cumulative, random_31_bits % self.cumulative[-1])]


class StickyPartitions(StickyPartition):
    """The partition of one topic that currently takes records without a key, and the choice of the next one."""

    __slots__ = ("_random_31_bits",)

    def __init__(self, turn: int, random_31_bits: Callable[[], int]) -> None:
        """After ``turn`` bytes another partition is chosen: at the end of a batch, or after twice as many bytes."""
        super().__init__(turn)
        self._random_31_bits = random_31_bits

    def switch(self, candidates: Sequence[int], load: PartitionLoad | None) -> int:
        """Choose the next partition, by load if it is known."""
        number = self._random_31_bits()
        self.bytes = 0
        self.partition = load.pick(number) if load is not None else candidates[number % len(candidates)]
        return self.partition
