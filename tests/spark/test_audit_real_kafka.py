"""Of a topic on real Kafka both readers of the audit tell the same, offsets without a record and their reasons included."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aioproducer.spark.audit.audit import AuditPlan, AuditReader, run_audit
from aioproducer.spark.audit.facts import Where
from aioproducer.spark.audit.offsets import stable_ranges
from aioproducer.spark.audit.reader import RangeReader
from aioproducer.testing.certificates import CertificateAuthority
from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.kafka.security import KafkaSecurity
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


def verdicts(spark: SparkSession, kafka: KafkaCluster | Mapping[str, str], topic: str, **plan: Any) -> dict[str, Any]:
    """The verdict of both readers, which must agree; for a cluster, or for librdkafka's options."""
    config = {"bootstrap.servers": kafka.bootstrap_servers} if isinstance(kafka, KafkaCluster) else kafka
    result = {
        reader: run_audit(spark, AuditPlan(topic, config, reader=reader, **plan), lambda *_: None).as_json()
        for reader in AuditReader
    }
    for reader, verdict in result.items():
        assert verdict.pop("reader") == reader
        verdict.pop("seconds")
    one, other = result.values()
    assert one == other
    return one


async def test_over_tls_with_a_login(spark: SparkSession, topic: str, tmp_path: Path) -> None:
    authority = CertificateAuthority()
    ca = tmp_path / "ca.pem"
    ca.write_text(authority.pem)
    security = KafkaSecurity(authority, {"alice": "alice-secret"}, super_users=["alice"])
    with KafkaCluster("4.3.1", security=security) as kafka:
        kafka.create_topic(topic, 2)
        login: dict[str, Any] = {
            "security_protocol": "SASL_SSL",
            "ssl_cafile": str(ca),
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_username": "alice",
            "sasl_password": "alice-secret",
        }
        async with opened(kafka.bootstrap("SASL_SSL"), transactional_id=topic, **login) as producer:
            for number in range(5):
                async with producer.transaction():
                    await producer.send(topic, None, key=b"k", partition=0, headers={"seq": b"%d" % number})
            await producer.begin_transaction()
            await producer.send(topic, None, key=b"k", partition=1)
            await producer.abort_transaction()

        config = {
            "bootstrap.servers": kafka.bootstrap("SASL_SSL"),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(ca),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "alice",
            "sasl.password": "alice-secret",
        }
        verdict = verdicts(spark, config, topic, sequence=Where.parse("header:seq"), checks_partition=False)

    assert (verdict["verdict"], verdict["read"]) == ("clean", 5)
    assert verdict["offsets_without_record"] == {"control": 6, "aborted": 1, "unexplained": 0}
    assert verdict["faults"]["missing"] == verdict["faults"]["withheld"] == 0


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

    reported = verdicts(spark, kafka, topic, sequence=Where.parse("header:seq"), checks_partition=False)

    assert (reported["read"], reported["keys"]) == (135, 1)
    assert reported["offsets_without_record"] == {"control": 30 + 2 + 1 + 1, "aborted": 30, "unexplained": 0}
    assert reported["faults"]["lost"] == 31
    assert reported["faults"]["missing"] == reported["faults"]["withheld"] == 0
    assert [each["read"] for each in reported["partitions"]] == [30, 100, 0, 5, 0]


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

    reported = verdicts(spark, kafka, topic, checks_partition=False)

    assert reported["faults"]["missing"] == 300 - reported["read"]
    assert reported["offsets_without_record"] == {"control": 0, "aborted": 0, "unexplained": 0}


def records_of(servers: dict[str, str], topic: str) -> int:
    (wanted,) = stable_ranges(servers, topic, 5.0)
    return sum(batch.num_rows for batch in RangeReader(servers, topic, 1).read(wanted))
