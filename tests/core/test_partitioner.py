"""Which partition a record goes to: Java's choice for keys, KIP-794's for the others."""

from __future__ import annotations

import random
import uuid

from aioproducer.core.cluster import PartitionMetadata, TopicMetadata
from aioproducer.core.partitioner import (
    PartitionIds,
    PartitionLoad,
    RoundRobinPartitioner,
    StickyPartitions,
    murmur2_partitioner,
)
from aioproducer.record import partition_for_key


def topic(*leaders: int) -> TopicMetadata:
    partitions = tuple(PartitionMetadata(index, leader, 0) for index, leader in enumerate(leaders))
    return TopicMetadata("t", uuid.UUID(int=1), partitions)


def test_the_weights_of_a_longest_queue_of_three() -> None:
    load = PartitionLoad.of([(0, 0), (1, 3), (2, 1)])

    assert load is not None
    assert load.cumulative == (4, 5, 8)
    assert [load.pick(number) for number in range(8)] == [0, 0, 0, 0, 1, 2, 2, 2]
    assert load.pick(8) == 0


def test_queues_that_are_alike_need_no_weights() -> None:
    assert PartitionLoad.of([(0, 2), (1, 2)]) is None
    assert PartitionLoad.of([(0, 2)]) is None
    assert PartitionLoad.of([]) is None
    assert PartitionLoad.of([], some_left_out=True) is None
    assert PartitionLoad.of([(0, 2), (1, 3)]) == PartitionLoad((0, 1), (2, 3))


def test_partitions_that_are_left_out_get_nothing_even_if_the_others_are_alike() -> None:
    load = PartitionLoad.of([(0, 2), (2, 2)], some_left_out=True)

    assert load is not None
    assert {load.pick(number) for number in range(10)} == {0, 2}
    alone = PartitionLoad.of([(1, 7)], some_left_out=True)
    assert alone is not None
    assert alone.pick(12) == 1


def test_sticking_ends_with_a_full_batch_or_at_twice_its_size() -> None:
    sticky = StickyPartitions(100, lambda: 5)
    assert sticky.switch([0, 1, 2], None) == 5 % 3

    assert sticky.partition == 5 % 3
    assert not sticky.appended(60, batch_is_full=True)
    assert not sticky.appended(60, batch_is_full=False)
    assert sticky.appended(0, batch_is_full=True)
    assert sticky.appended(80, batch_is_full=False), "200 bytes: do not wait any longer"
    sticky.switch([0, 1, 2], None)
    assert not sticky.appended(99, batch_is_full=True), "the next one begins with nothing"
    assert sticky.appended(1, batch_is_full=True)


def test_sticking_is_uniform_over_bytes() -> None:
    numbers = random.Random(1)
    sticky = StickyPartitions(1000, lambda: numbers.getrandbits(31))
    sticky.switch(range(4), None)
    sent = [0, 0, 0, 0]
    for _ in range(40_000):
        size = numbers.choice([10, 100, 400])
        sent[sticky.partition] += size
        if sticky.appended(size, batch_is_full=True):
            sticky.switch(range(4), None)

    mean = sum(sent) / 4
    assert all(abs(each - mean) < 0.1 * mean for each in sent), sent


def test_available_partitions_are_those_with_a_leader() -> None:
    partitions = PartitionIds.of(topic(0, -1, 2))

    assert tuple(partitions) == (0, 1, 2)
    assert partitions.available == (0, 2), "a node may have the number 0"


def test_round_robin_takes_the_available_partitions_of_each_topic_in_turn() -> None:
    partitioner = RoundRobinPartitioner()
    partitions = PartitionIds.of(topic(1, -1, 2, 1))

    assert [partitioner("t", None, None, partitions) for _ in range(4)] == [0, 2, 3, 0]
    assert partitioner("other", None, None, partitions) == 0


def test_round_robin_goes_on_without_any_leader() -> None:
    partitioner = RoundRobinPartitioner()

    assert [partitioner("t", None, None, PartitionIds.of(topic(-1, -1))) for _ in range(3)] == [0, 1, 0]


def test_the_default_takes_a_key_by_murmur2_and_leaves_the_rest_open() -> None:
    partitions = PartitionIds.of(topic(1, -1, 2))

    assert murmur2_partitioner("t", b"key", None, partitions) == partition_for_key(b"key", 3)
    assert murmur2_partitioner("t", None, b"value", partitions) is None
