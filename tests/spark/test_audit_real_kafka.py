"""Of a topic on real Kafka both readers of the audit tell the same, offsets without a record and their reasons included."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest

from aioproducer.spark.audit.audit import AuditPlan, AuditReader, run_audit
from aioproducer.spark.audit.facts import Where
from aioproducer.spark.audit.offsets import stable_ranges
from aioproducer.spark.audit.reader import RangeReader
from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.plugin import KafkaFactory
from tests.conftest import opened, until
from tests.spark.kafka_source import kafka_source_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def kafka(kafka_factory: KafkaFactory) -> KafkaCluster:
    """One broker whose cleaner does not rest."""
    return kafka_factory(properties={"log.cleaner.backoff.ms": "100"})


@pytest.fixture
def topic() -> str:
    return f"orders-{uuid.uuid4().hex[:8]}"


@pytest.fixture(autouse=True)
def jars(spark: SparkSession) -> None:
    for jar in kafka_source_jars():
        spark.sql(f"ADD JAR '{jar}'")


def verdicts(spark: SparkSession, kafka: KafkaCluster, topic: str, **plan: Any) -> dict[str, Any]:
    """What both say, as one, for it is the same."""
    config = {"bootstrap.servers": kafka.bootstrap_servers}
    told = {
        reader: run_audit(spark, AuditPlan(topic, config, reader=reader, **plan), lambda *_: None).as_json()
        for reader in AuditReader
    }
    for reader, verdict in told.items():
        assert verdict.pop("reader") == reader
        verdict.pop("seconds")
    one, other = told.values()
    assert one == other
    return one


async def test_of_transactions(spark: SparkSession, kafka: KafkaCluster, topic: str) -> None:
    kafka.create_topic(topic, 5)
    numbers = iter(range(1000))
    async with opened(kafka.bootstrap_servers, transactional_id=topic) as producer:

        async def send(partition: int, records: int) -> None:
            for _ in range(records):
                headers = {"seq": b"%d" % next(numbers)}
                await producer.enqueue(topic, None, key=b"k", partition=partition, headers=headers)
            await producer.flush()

        for _ in range(30):  # small ones: a control record behind each
            async with producer.transaction():
                await send(0, 1)
        async with producer.transaction():
            await send(1, 100)
        await producer.begin_transaction()
        await send(1, 10)  # the end of a partition is aborted
        await send(2, 20)  # all of a partition is
        next(numbers)  # a number that is lost
        await producer.abort_transaction()
        async with producer.transaction():
            await send(3, 5)

    told = verdicts(spark, kafka, topic, sequence=Where.parse("header:seq"), checks_partition=False)

    assert (told["read"], told["keys"]) == (135, 1)
    assert told["offsets_without_record"] == {"control": 30 + 2 + 1 + 1, "aborted": 30, "unexplained": 0}
    assert told["faults"]["lost"] == 31
    assert told["faults"]["missing"] == told["faults"]["withheld"] == 0
    assert [each["read"] for each in told["partitions"]] == [30, 100, 0, 5, 0]


async def test_of_a_compacted_topic(spark: SparkSession, kafka: KafkaCluster, topic: str) -> None:
    segment = 1 << 20
    config = {"cleanup.policy": "compact", "segment.bytes": str(segment), "min.cleanable.dirty.ratio": "0.01"}
    kafka.create_topic(topic, 1, config=config)
    async with opened(kafka.bootstrap_servers) as producer:
        for number in range(300):
            await producer.enqueue(topic, b"." * 10_000, key=b"k%d" % (number % 10), partition=0)
        await producer.flush()
    servers = {"bootstrap.servers": kafka.bootstrap_servers}
    # All but the segment that is written to, of which there are a hundred records, then has each key once at most.
    await until(lambda: records_of(servers, topic) <= segment // 10_000 + 10, 120)

    told = verdicts(spark, kafka, topic, checks_partition=False)

    assert told["faults"]["missing"] == 300 - told["read"]
    assert told["offsets_without_record"] == {"control": 0, "aborted": 0, "unexplained": 0}


def records_of(servers: dict[str, str], topic: str) -> int:
    (wanted,) = stable_ranges(servers, topic, 5.0)
    return sum(batch.num_rows for batch in RangeReader(servers, topic, 1).read(wanted))
