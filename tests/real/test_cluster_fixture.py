"""The fixture ``kafka_cluster``: three brokers that share a topic's replicas."""

from __future__ import annotations

import pytest

from aioproducer import Producer
from aioproducer.testing.kafka import KafkaCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


async def test_a_topic_has_replicas_on_all_three_brokers(kafka_cluster: KafkaCluster) -> None:
    kafka_cluster.create_topic("shared", 3, 3)

    async with Producer(kafka_cluster.bootstrap_servers) as producer:
        found = await producer.partitions_for("shared")
        written = [await producer.send("shared", b"value", partition=number) for number in range(3)]

    assert [sorted(each.replicas) for each in found] == [[1, 2, 3]] * 3
    assert [each.offset for each in written] == [0, 0, 0]
