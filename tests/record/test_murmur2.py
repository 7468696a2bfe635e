"""The partition of a key is the same for every Kafka client."""

from __future__ import annotations

import confluent_kafka
import pytest
from aiokafka import partitioner  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer.record import murmur2, partition_for_key


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
def test_the_hash_is_that_of_java(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected
    assert murmur2(bytearray(key)) == murmur2(memoryview(key)) == expected


@settings(deadline=None)
@given(st.binary(max_size=200), st.integers(1, 10_000))
def test_every_key_goes_where_the_other_clients_send_it(key: bytes, partitions: int) -> None:
    assert partition_for_key(key, partitions) == confluent_kafka.murmur2(key, partitions)
    assert murmur2(key) & 0xFFFF_FFFF == partitioner.murmur2(key)


@pytest.mark.parametrize("key", ["", "é", "日本語", "😀" * 100, "\x00", "ключ"])
def test_empty_keys_and_keys_of_any_script_go_where_the_other_clients_send_them(key: str) -> None:
    data = key.encode()

    assert partition_for_key(data, 97) == confluent_kafka.murmur2(data, 97) == murmur2(data) % 2**31 % 97
