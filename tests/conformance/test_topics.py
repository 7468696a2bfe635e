"""Topics that come, grow, go and come again: alike on the fake broker and on Apache Kafka."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from aioproducer import KafkaError
from tests.conformance.conftest import Cluster
from tests.conftest import until


async def test_a_topic_is_created_by_the_first_record_to_it(cluster: Cluster) -> None:
    topic = cluster.topic() + ".new"

    async with cluster.producer() as producer:
        sent = await asyncio.gather(*(producer.send(topic, b"%d" % n) for n in range(10)))

    assert [(each.partition, each.offset) for each in sent] == [(0, n) for n in range(10)]
    assert [record.value for record in cluster.read(topic)[0]] == [b"%d" % n for n in range(10)]


async def test_the_partitions_of_a_topic_are_reported_in_order(cluster: Cluster) -> None:
    topic = cluster.topic(5)

    async with cluster.producer() as producer:
        partitions = await producer.partitions_for(topic)

    assert [each.partition for each in partitions] == list(range(5))
    assert len({each.leader for each in partitions}) == 1


async def test_an_added_partition_can_be_named_at_once(cluster: Cluster) -> None:
    topic = cluster.topic(1)

    async with cluster.producer() as producer:
        await producer.send(topic, b"first")
        await asyncio.to_thread(cluster.add_partitions, topic, 3)

        metadata = await producer.send(topic, b"second", partition=2)

    assert (metadata.partition, metadata.offset) == (2, 0)


async def test_added_partitions_are_used_when_the_metadata_are_renewed(cluster: Cluster) -> None:
    topic = cluster.topic(1)

    async with cluster.producer(metadata_max_age_ms=100, batch_size=200) as producer:
        await producer.send(topic, b"first")
        await asyncio.to_thread(cluster.add_partitions, topic, 3)
        used: set[int] = set()
        async with asyncio.timeout(40):
            while used != {0, 1, 2}:
                sent = await asyncio.gather(*(producer.send(topic, b"%0100d" % n) for n in range(20)))
                used |= {metadata.partition for metadata in sent}

    assert cluster.read(topic).keys() == {0, 1, 2}


async def _wait_new_log(cluster: Cluster, topic: str) -> None:
    """Wait until the brokers have begun the log of a topic that was made again.

    A broker whose requests name topics (before 4.1) writes to the old log of that name until then, a moment after its
    metadata show the new topic (KIP-516); such a record goes with the old topic.
    """
    async with asyncio.timeout(40):
        while True:
            with suppress(KafkaError):  # no leader yet
                if not any((await asyncio.to_thread(cluster.read, topic)).values()):
                    return
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_topic_that_was_deleted_and_made_again_is_found_again(
    cluster: Cluster, idempotent: bool, partitions: int
) -> None:
    topic = cluster.topic(1)
    options: dict[str, Any] = {"enable_idempotence": idempotent, "allow_auto_create_topics": False}

    async with cluster.producer(**options) as producer:
        for number in range(5):
            await producer.send(topic, b"old %d" % number)
        await asyncio.to_thread(cluster.delete, topic)
        await asyncio.to_thread(cluster.create, topic, partitions)
        await _wait_new_log(cluster, topic)

        sent = [await producer.send(topic, b"new %d" % number, partition=0) for number in range(5)]

    assert [metadata.offset for metadata in sent] == list(range(5))
    assert [record.value for record in cluster.read(topic)[0]] == [b"new %d" % number for number in range(5)]


async def test_records_that_wait_for_a_deleted_topic_arrive_when_it_is_made_again(cluster: Cluster) -> None:
    topic = cluster.topic(1)

    async with cluster.producer(allow_auto_create_topics=False) as producer:
        await producer.send(topic, b"old")
        await asyncio.to_thread(cluster.delete, topic)
        deliveries = [await producer.enqueue(topic, b"%d" % n, partition=0) for n in range(20)]
        await until(lambda: producer.metrics()["record-retry-total"])
        await asyncio.to_thread(cluster.create, topic)

        sent = [await delivery for delivery in deliveries]

    assert [metadata.offset for metadata in sent] == list(range(20))
    assert [record.value for record in cluster.read(topic)[0]] == [b"%d" % n for n in range(20)]
