"""One transaction that several processes write into, on real Kafka: seen wholly or not at all, and no writer is deceived."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections import Counter

import pytest

from aioproducer import (
    NotWritten,
    Producer,
    SharedPartition,
    TopicPartition,
    TransactionHandle,
    TransactionStateError,
    Written,
)
from aioproducer.testing.kafka import KafkaCluster, KafkaJars
from aioproducer.testing.kafka.java_tools import JavaTools
from aioproducer.testing.plugin import KafkaFactory

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PARTITIONS = 4

_WRITER = """
import asyncio, json, sys
from aioproducer import Producer, TransactionHandle

async def main():
    servers, topic, name, partition, handle = sys.argv[1:]
    async with Producer.attach(TransactionHandle(*json.loads(handle)), servers) as writer:
        await writer.send_many(topic, [f"{name}|{number}" for number in range(500)], partition=int(partition))
        ((_, written),) = writer.written.items()
        print(json.dumps(written), flush=True)
        if name == "victim":
            await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture(params=["4.3.1", "3.9.2"])
def kafka(request: pytest.FixtureRequest, kafka_factory: KafkaFactory) -> KafkaCluster:
    """One broker, with transaction version 2 or 1."""
    return kafka_factory(request.param)


@pytest.fixture
def topic(kafka: KafkaCluster) -> str:
    """A separate topic for each test."""
    name = f"shared-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name, PARTITIONS)
    return name


async def writer(
    kafka: KafkaCluster, topic: str, name: str, partition: int, handle: TransactionHandle
) -> tuple[asyncio.subprocess.Process, Written]:
    """Another process that has written 500 records, and what it says of them."""
    reported = json.dumps([handle.transactional_id, handle.producer_id, handle.producer_epoch])
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _WRITER, kafka.bootstrap_servers, topic, name, str(partition), reported),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    return process, Written(*json.loads(await process.stdout.readline()))


async def seen(kafka: KafkaCluster, topic: str) -> Counter[str]:
    """The number of records of each writer that Java's consumer reads with read_committed; none of them twice."""
    tools = JavaTools(KafkaJars.get(kafka.version))
    properties = {"isolation.level": "read_committed"}
    found = await asyncio.to_thread(tools.read_back, kafka.bootstrap_servers, topic, properties=properties)
    values = [(each.value or b"").decode() for each in found]
    assert len(values) == len(set(values))
    return Counter(value.split("|")[0] for value in values)


async def test_records_written_by_two_processes_are_seen_when_a_third_commits(kafka: KafkaCluster, topic: str) -> None:
    async with Producer(kafka.bootstrap_servers, transactional_id=topic) as owner:
        await owner.init_transactions()
        await owner.begin_transaction()
        handle = owner.transaction_handle()
        written = await asyncio.gather(
            *(writer(kafka, topic, name, at, handle) for at, name in enumerate(("one", "two")))
        )
        for process, counted in written:
            assert await process.wait() == 0
            assert counted == Written(500, 0, 499)
        assert not await seen(kafka, topic)
        await owner.commit_transaction()

        async with owner.transaction() as txn:
            await txn.send(topic, "next|0", partition=0)

    assert await seen(kafka, topic) == {"one": 500, "two": 500, "next": 1}


async def test_records_written_by_killed_processes_are_aborted_by_the_next_initialization(
    kafka: KafkaCluster, topic: str
) -> None:
    async with Producer(kafka.bootstrap_servers, transactional_id=topic) as owner:
        await owner.init_transactions()
        await owner.begin_transaction()
        victim, _ = await writer(kafka, topic, "victim", 0, owner.transaction_handle())
        victim.kill()
        await victim.wait()
        async with (
            Producer(kafka.bootstrap_servers, transactional_id=topic) as successor,
            successor.transaction() as txn,
        ):
            await txn.send(topic, "successor|0", partition=0)

    assert await seen(kafka, topic) == {"successor": 1}


@pytest.mark.parametrize("count", [1, 5, 300])
async def test_a_second_writer_in_a_partition_is_refused_even_where_it_is_the_image_of_the_first(
    kafka: KafkaCluster, topic: str, count: int
) -> None:
    values = [f"{number}|0" for number in range(count)]
    async with Producer(kafka.bootstrap_servers, transactional_id=topic) as owner:
        await owner.init_transactions()
        await owner.begin_transaction()
        handle = owner.transaction_handle()
        async with Producer.attach(handle, kafka.bootstrap_servers, writer=5) as one:
            deliveries = [
                await one.enqueue(topic, value, partition=1, timestamp_ms=1_000_000_000_000) for value in values
            ]
            for delivery in deliveries:
                await delivery
        two = await Producer.attach(handle, kafka.bootstrap_servers, writer=5).start()
        deliveries = [await two.enqueue(topic, value, partition=1, timestamp_ms=1_000_000_000_000) for value in values]
        for delivery in deliveries:
            with pytest.raises(NotWritten) as refused:
                await delivery
            assert isinstance(refused.value.__cause__, SharedPartition)
        assert (await two.close()).delivered == 0
        assert two.written == {}
        await owner.abort_transaction()

    assert not await seen(kafka, topic)


async def test_a_topic_with_log_append_time_takes_what_is_written_once(kafka: KafkaCluster) -> None:
    topic = f"stamped-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, 2, config={"message.timestamp.type": "LogAppendTime"})
    async with Producer(kafka.bootstrap_servers, transactional_id=topic) as owner:
        await owner.init_transactions()
        await owner.begin_transaction()
        async with Producer.attach(owner.transaction_handle(), kafka.bootstrap_servers) as one:
            await one.send_many(topic, [f"one|{number}" for number in range(300)], partition=1)
            assert one.written == {TopicPartition(topic, 1): Written(300, 0, 299)}
        await owner.commit_transaction()

    assert await seen(kafka, topic) == {"one": 300}


async def test_the_owner_of_the_handle_is_deceived_no_more_than_the_attached_writers(
    kafka: KafkaCluster, topic: str
) -> None:
    async with Producer(kafka.bootstrap_servers, transactional_id=topic) as owner:
        await owner.init_transactions()
        await owner.begin_transaction()
        async with Producer.attach(owner.transaction_handle(), kafka.bootstrap_servers) as one:
            await one.send(topic, "one|0", partition=1)
        await owner.send(topic, "owner|0", partition=0)
        with pytest.raises(NotWritten) as refused:
            await owner.send(topic, "owner|1", partition=1)
        assert isinstance(refused.value.__cause__, SharedPartition)
        await owner.abort_transaction()

    assert not await seen(kafka, topic)


async def test_writers_begin_in_an_epoch_without_sequences(kafka: KafkaCluster) -> None:
    """Else brokers with version 1 take their first records for repeats, and with LogAppendTime that would go unnoticed."""
    topic = f"stamped-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, 2, config={"message.timestamp.type": "LogAppendTime"})
    async with Producer(kafka.bootstrap_servers, transactional_id=topic) as owner:
        async with owner.transaction() as txn:
            await txn.send(topic, "alone|0", partition=1)
        if kafka.version < "4":
            with pytest.raises(TransactionStateError):
                async with owner.transaction() as txn:
                    txn.handle()
        for number in range(2):
            async with owner.transaction() as txn, Producer.attach(txn.handle(), kafka.bootstrap_servers) as one:
                await one.send(topic, f"shared|{number}", partition=1)

    assert await seen(kafka, topic) == {"alone": 1, "shared": 2}
