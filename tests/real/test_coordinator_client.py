"""Transactions of several writers on real Kafka, begun and ended by a coordinator client, and read by librdkafka."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from aioproducer import (
    KafkaTimeoutError,
    OffsetAndMetadata,
    Producer,
    ProducerFenced,
    TopicPartition,
    TransactionAbortable,
    TransactionCoordinatorClient,
    TransactionHandle,
    TransactionStateError,
    Written,
)
from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.plugin import KafkaFactory
from tests.testing.raw_transactions import TV1, TV2, RawTransactions, Who

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PARTITIONS = 3


@pytest.fixture(params=["4.3.1", "3.9.2"])
def kafka(request: pytest.FixtureRequest, kafka_factory: KafkaFactory) -> KafkaCluster:
    """One broker, with transaction version 2 or 1."""
    return kafka_factory(request.param)


@pytest.fixture
def topic(kafka: KafkaCluster) -> str:
    """A separate topic for each test, whose name is that of the group and of the transactional id as well."""
    name = f"load-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name, PARTITIONS)
    return name


def read_now(kafka: KafkaCluster, topic: str) -> list[str]:
    """The records that librdkafka's consumer reads with read_committed up to each last stable offset, sorted."""
    from confluent_kafka import Consumer, KafkaError
    from confluent_kafka import TopicPartition as Partition

    consumer: Any = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": f"{topic}-reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    found, at_end = [], set[int]()
    try:
        consumer.assign([Partition(topic, each, 0) for each in range(PARTITIONS)])
        while len(at_end) < PARTITIONS:
            message = consumer.poll(60)
            assert message is not None, "librdkafka reached no end within a minute"
            if message.error() is None:
                found.append(message.value().decode())
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                at_end.add(message.partition())
    finally:
        consumer.close()
    return sorted(found)


async def read(kafka: KafkaCluster, topic: str, count: int = 0) -> list[str]:
    """The records once there are this many: markers are written after the commit is acknowledged."""
    async with asyncio.timeout(120):
        while len(found := await asyncio.to_thread(read_now, kafka, topic)) < count:
            pass
    return found


def write(kafka: KafkaCluster, topic: str, handle: TransactionHandle, partition: int, *values: str) -> str:
    """The broker's response on a separate connection that has only the handle."""
    host, port = kafka.bootstrap_servers.rsplit(":", 1)
    versions = TV2 if kafka.version.startswith("4") else TV1
    writer = RawTransactions((host, int(port)), versions, handle.transactional_id, topic, topic)
    who = Who(handle.producer_id, handle.producer_epoch)
    writer.begin(who, partition)
    writer.write(who, partition, *values)
    return str(writer.notes[-1][3])


async def test_records_of_two_connections_and_a_position_are_committed_together(
    kafka: KafkaCluster, topic: str
) -> None:
    marker = TopicPartition(topic, 0)
    async with TransactionCoordinatorClient(kafka.bootstrap_servers) as coordinator:
        handle = await coordinator.init(topic)
        assert await asyncio.to_thread(write, kafka, topic, handle, 0, "a", "b") == "NONE"
        assert await asyncio.to_thread(write, kafka, topic, handle, 1, "c") == "NONE"
        await coordinator.send_offsets(handle, {marker: OffsetAndMetadata(7, "batch 6")}, topic)
        assert await read(kafka, topic) == []
        assert await coordinator.committed(topic, [marker], require_stable=False) == {marker: None}
        with pytest.raises(KafkaTimeoutError, match="UNSTABLE_OFFSET_COMMIT"):
            await coordinator.committed(topic, [marker], timeout=1)

        reports = [{TopicPartition(topic, 0): Written(2, 0, 1)}, {TopicPartition(topic, 1): Written(1, 0, 0)}]
        await coordinator.commit(handle, written=reports)

        found = await coordinator.committed(topic, [marker, TopicPartition(topic, 1)])
        assert found == {marker: OffsetAndMetadata(7, "batch 6"), TopicPartition(topic, 1): None}
        assert await read(kafka, topic, 3) == ["a", "b", "c"]


async def test_a_new_one_aborts_what_is_open_and_fences_the_old_one(kafka: KafkaCluster, topic: str) -> None:
    async with TransactionCoordinatorClient(kafka.bootstrap_servers) as coordinator:
        old = await coordinator.init(topic)
        assert await asyncio.to_thread(write, kafka, topic, old, 0, "old") == "NONE"
        await coordinator.send_offsets(old, {TopicPartition(topic, 0): 5}, topic)
        new = await coordinator.init(topic)
        assert await coordinator.committed(topic, [TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): None}
        assert await asyncio.to_thread(write, kafka, topic, new, 0, "new") == "NONE"
        for call in (coordinator.commit(old), coordinator.abort(old)):
            with pytest.raises(ProducerFenced):
                await call
        await coordinator.commit(new)

    assert await read(kafka, topic, 1) == ["new"]


async def test_a_repeated_request_gets_the_answer_of_the_first_one(kafka: KafkaCluster, topic: str) -> None:
    servers = kafka.bootstrap_servers
    async with TransactionCoordinatorClient(servers) as coordinator, TransactionCoordinatorClient(servers) as other:
        for _ in range(2):  # the second time the markers of the first may still be under way
            handle = await coordinator.init(topic)
            await asyncio.to_thread(write, kafka, topic, handle, 0, "kept")
            await asyncio.gather(*[each.commit(handle) for each in (coordinator, other) * 2])
            for each in (coordinator, other):
                await each.commit(handle)
                with pytest.raises(TransactionStateError, match="is committed"):
                    await each.abort(handle)
            handle = await coordinator.init(topic)
            await asyncio.to_thread(write, kafka, topic, handle, 1, "dropped")
            await asyncio.gather(*[each.abort(handle) for each in (coordinator, other) * 2])
            for each in (coordinator, other):
                await each.abort(handle)
                with pytest.raises(TransactionAbortable):
                    await each.commit(handle)

    assert await read(kafka, topic, 2) == ["kept", "kept"]


@pytest.mark.parametrize("call", ["commit", "abort"])
async def test_an_empty_transaction_ends_as_requested(kafka: KafkaCluster, topic: str, call: str) -> None:
    async with TransactionCoordinatorClient(kafka.bootstrap_servers) as coordinator:
        for _ in range(2):
            await getattr(coordinator, call)(await coordinator.init(topic))
        handle = await coordinator.init(topic)
        await asyncio.to_thread(write, kafka, topic, handle, 0, "next")
        await coordinator.commit(handle)

    assert await read(kafka, topic, 1) == ["next"]


async def test_attached_producers_write_what_it_commits(kafka: KafkaCluster, topic: str) -> None:
    async def load(handle: TransactionHandle, partition: int) -> dict[TopicPartition, Written]:
        async with Producer.attach(handle, kafka.bootstrap_servers, writer=partition) as writer:
            await writer.send_many(topic, [f"{partition}-{number:03d}" for number in range(200)], partition=partition)
        return dict(writer.written)

    async with TransactionCoordinatorClient(kafka.bootstrap_servers) as coordinator:
        for committed in (False, True):
            handle = await coordinator.init(topic)
            reports = await asyncio.gather(*[load(handle, partition) for partition in range(PARTITIONS)])
            assert await read(kafka, topic) == []
            if committed:
                await coordinator.commit(handle, written=reports)
            else:
                await coordinator.abort(handle)

    expected = [f"{partition}-{number:03d}" for partition in range(PARTITIONS) for number in range(200)]
    assert await read(kafka, topic, len(expected)) == expected


async def test_a_position_in_a_topic_that_does_not_exist_is_refused(kafka: KafkaCluster, topic: str) -> None:
    nowhere = TopicPartition(topic, PARTITIONS)
    async with TransactionCoordinatorClient(kafka.bootstrap_servers) as coordinator:
        handle = await coordinator.init(topic)
        with pytest.raises(KafkaTimeoutError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await coordinator.send_offsets(handle, {nowhere: 5}, topic, timeout=2)
        with pytest.raises(TransactionStateError, match="send_offsets"):
            await coordinator.commit(handle)
        await coordinator.abort(handle)
        assert await coordinator.committed(topic, [nowhere]) == {nowhere: None}
