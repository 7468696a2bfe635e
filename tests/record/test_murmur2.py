"""The partition of a key is the same for every Kafka client."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate

import confluent_kafka
import pytest
from aiokafka import partitioner  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st

Hash = Callable[[bytes | bytearray | memoryview], int]
Partition = Callable[[bytes, int], int]
Partitions = Callable[["array[int]", bytes, int], bytes]


@pytest.mark.parametrize(
    ("key", "expected"),
    [  # Kafka's own UtilsTest.testMurmur2
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_that_of_java(key_hash: Hash, key: bytes, expected: int) -> None:
    assert key_hash(key) == expected
    assert key_hash(bytearray(key)) == key_hash(memoryview(key)) == expected


@settings(deadline=None)
@given(key=st.binary(max_size=200), partitions=st.integers(1, 10_000))
def test_every_key_goes_where_the_other_clients_send_it(
    key_hash: Hash, partition_of: Partition, key: bytes, partitions: int
) -> None:
    assert partition_of(key, partitions) == confluent_kafka.murmur2(key, partitions)
    assert key_hash(key) & 0xFFFF_FFFF == partitioner.murmur2(key)


@pytest.mark.parametrize("key", ["", "é", "日本語", "😀" * 100, "\x00", "ключ"])
def test_empty_keys_and_keys_of_any_script_go_where_the_other_clients_send_them(
    key_hash: Hash, partition_of: Partition, key: str
) -> None:
    data = key.encode()

    assert partition_of(data, 97) == confluent_kafka.murmur2(data, 97) == key_hash(data) % 2**31 % 97


def test_a_key_that_is_not_bytes_is_refused(key_hash: Hash, partition_of: Partition) -> None:
    for key in (None, "text", 5):
        with pytest.raises(TypeError, match="bytes-like"):
            key_hash(key)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="bytes-like"):
            partition_of(key, 3)  # type: ignore[arg-type]


def test_there_is_no_partition_among_none(partition_of: Partition) -> None:
    with pytest.raises(ZeroDivisionError):
        partition_of(b"key", 0)


def ends_of(keys: Sequence[bytes], width: str, begin: int = 0) -> array[int]:
    return array(width, accumulate(map(len, keys), initial=begin))


def numbers_in(found: bytes) -> list[int]:
    return list(struct.unpack(f"{len(found) // 4}i", found))


@settings(deadline=None)
@given(
    keys=st.lists(st.binary(max_size=40)),
    partitions=st.integers(1, 2**31 - 1),
    width=st.sampled_from("iq"),
    before=st.binary(max_size=9),
    behind=st.binary(max_size=3),
)
def test_keys_in_one_buffer_go_where_each_goes_alone(
    partitions_of: Partitions, keys: list[bytes], partitions: int, width: str, before: bytes, behind: bytes
) -> None:
    data = before + b"".join(keys) + behind

    found = partitions_of(ends_of(keys, width, len(before)), data, partitions)

    assert numbers_in(found) == [confluent_kafka.murmur2(key, partitions) for key in keys]


@pytest.mark.parametrize("width", "iq")
@pytest.mark.parametrize("ends", [[0, 4], [3, 2], [-1, 2], [0, 2, 1, 3]])
def test_keys_that_lie_outside_of_their_buffer_are_refused(
    partitions_of: Partitions, width: str, ends: list[int]
) -> None:
    with pytest.raises(ValueError, match="must not decrease, or lie outside"):
        partitions_of(array(width, ends), b"abc", 5)


def test_keys_in_one_buffer_need_partitions_and_ends_of_a_known_width(partitions_of: Partitions) -> None:
    for partitions in (0, -1, 2**31):
        with pytest.raises(ValueError, match=f"partitions={partitions}"):
            partitions_of(array("i", [0, 1]), b"a", partitions)
    with pytest.raises(ValueError, match="have 2 bytes; must be 4 or 8"):
        partitions_of(array("h", [0, 1]), b"a", 5)


@pytest.mark.parametrize("ends", [array("i"), array("q"), array("i", [0])])
def test_no_keys_have_no_partitions(partitions_of: Partitions, ends: array[int]) -> None:
    assert partitions_of(ends, b"", 5) == b""
