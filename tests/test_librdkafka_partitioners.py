"""librdkafka's partitioners by its names: each key goes where librdkafka itself puts it."""

from __future__ import annotations

import random
from typing import Any, get_args

import pytest

from aioproducer.config import PartitionerName
from aioproducer.core.partitioner import LIBRDKAFKA_PARTITIONERS
from aioproducer.testing import FakeBroker
from tests.conftest import opened

#: No power of two, so that all bits of a hash count, not only the lowest.
PARTITIONS = 7


@pytest.mark.parametrize("name", sorted(LIBRDKAFKA_PARTITIONERS))
async def test_each_key_goes_where_librdkafka_puts_it(name: str) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    rng = random.Random(7)
    keys = [*{b"alice", *(rng.randbytes(rng.randrange(1, 40)) for _ in range(500))}]
    with FakeBroker(topics={"theirs": PARTITIONS, "ours": PARTITIONS}) as broker:
        theirs: Any = confluent_kafka.Producer(
            {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, "partitioner": name}
        )
        for key in keys:
            theirs.produce("theirs", b"", key=key)
        assert theirs.flush(30) == 0
        async with opened(broker, partitioner=name) as producer:
            for key in keys:
                await producer.enqueue("ours", b"", key=key)
            await producer.flush(30)

        places = [
            {record.key: partition for partition in range(PARTITIONS) for record in broker.records(topic, partition)}
            for topic in ("theirs", "ours")
        ]

    assert places[0] == places[1]
    assert len(places[0]) == len(keys)
    assert set(places[0].values()) == set(range(PARTITIONS))


def test_every_partitioner_that_can_be_named_is_known() -> None:
    assert set(get_args(PartitionerName)) == {"round_robin", *LIBRDKAFKA_PARTITIONERS}
