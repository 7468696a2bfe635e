"""The partition of a record: Java's choice for keys, KIP-794's for the others."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest

from aioproducer.core.cluster import PartitionMetadata, TopicMetadata
from aioproducer.core.partitioner import (
    LIBRDKAFKA_PARTITIONERS,
    PartitionIds,
    PartitionLoad,
    RoundRobinPartitioner,
    StickyPartitions,
    fnv1a,
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


@pytest.mark.parametrize(
    ("key", "expected"),
    [(b"kafka", 0xD33C4E1), (b"giberish123456789", 0x77A58295), (b"1234", 0x23BDD03), (b"", 0x7EE3623B)],
)
def test_fnv1a_gives_what_sarama_and_librdkafka_give(key: bytes, expected: int) -> None:
    assert fnv1a(key) == expected


@pytest.mark.parametrize("name", sorted(LIBRDKAFKA_PARTITIONERS))
def test_each_key_goes_where_librdkafka_puts_it(name: str) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    theirs = confluent_kafka.Producer(
        {
            "bootstrap.servers": "none:1",
            "log_level": 0,
            "partitioner": name,
            "sticky.partitioning.linger.ms": 0,
            "test.mock.num.brokers": 1,
        }
    )
    rng = random.Random(7)
    keys = [b"", b"alice", *(rng.randbytes(rng.randrange(1, 40)) for _ in range(2000))]
    arrived: dict[bytes | None, set[int]] = {}

    def delivered(error: object, message: Any) -> None:
        assert error is None
        arrived.setdefault(message.key(), set()).add(message.partition())

    for key in [*keys, *[None] * 200, *[b""] * 200]:
        theirs.produce("orders", b"", key=key, on_delivery=delivered)
    assert theirs.flush(30) == 0

    partitions = PartitionIds.of(topic(0, 0, 0, 0))  # as many as its mock cluster makes
    for key in [None, *keys]:
        ours = LIBRDKAFKA_PARTITIONERS[name]("orders", key, b"", partitions)
        # Where ours leave the choice to the default, theirs draw a partition for each record.
        assert (arrived[key] == {ours}) if ours is not None else (len(arrived[key]) > 1), key
