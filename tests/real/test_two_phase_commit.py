"""Two-phase commits (KIP-939) on released brokers: refusals are reported, and nothing is lost."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from aioproducer import PreparedTransactionState, Producer, TransactionFatal
from aioproducer.testing.kafka import KafkaCluster, KafkaJars
from aioproducer.testing.kafka.java_tools import JavaTools
from aioproducer.testing.plugin import KafkaFactory
from tests.conftest import QUICK

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

UNSTABLE = {"unstable.api.versions.enable": "true"}
ALLOWED = {**UNSTABLE, "transaction.two.phase.commit.enable": "true"}


def read_committed(kafka: KafkaCluster, topic: str) -> list[bytes | None]:
    """The records that Java's consumer gets, sorted."""
    tools = JavaTools(KafkaJars.get(kafka.version))
    found = tools.read_back(kafka.bootstrap_servers, topic, properties={"isolation.level": "read_committed"})
    return sorted((each.value for each in found), key=lambda each: each or b"")


def two_phased(kafka: KafkaCluster, topic: str) -> Producer:
    """A producer whose transactional id is the topic's name."""
    options: dict[str, Any] = {"transactional_id": topic, "transaction_two_phase_commit_enable": True}
    return Producer(kafka.bootstrap_servers, **QUICK, **options)


def new_topic(kafka: KafkaCluster) -> str:
    name = f"two-phase-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name, 2)
    return name


async def prepared(producer: Producer, topic: str, *values: bytes) -> PreparedTransactionState:
    """A transaction with these records, up to its first phase."""
    await producer.begin_transaction()
    for number, value in enumerate(values):
        await producer.enqueue(topic, value, partition=number % 2)
    return await producer.prepare_transaction()


@pytest.mark.parametrize(
    ("version", "properties", "reason"),
    [
        ("3.9.2", {}, "up to version 5"),
        ("3.9.2", UNSTABLE, "up to version 5"),
        ("4.3.1", {}, "up to version 5"),
        ("4.3.1", UNSTABLE, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
    ],
)
async def test_a_cluster_that_takes_no_part_is_refused_clearly(
    kafka_factory: KafkaFactory, version: str, properties: dict[str, str], reason: str
) -> None:
    kafka = kafka_factory(version, properties=properties)
    for keep_prepared_txn in (False, True):
        async with two_phased(kafka, "no-part") as producer:
            with pytest.raises(TransactionFatal, match=reason) as refused:
                await producer.init_transactions(keep_prepared_txn=keep_prepared_txn)

        assert "Two-phase commits (KIP-939) need" in str(refused.value)


async def test_a_cluster_that_takes_part_commits_what_was_decided_and_nothing_else(
    kafka_factory: KafkaFactory,
) -> None:
    kafka = kafka_factory("4.3.1", properties=ALLOWED)
    topic = new_topic(kafka)
    async with two_phased(kafka, topic) as producer:
        await producer.init_transactions()
        for number in range(4):
            state = await prepared(producer, topic, b"a%d" % number, b"b%d" % number)
            if number % 2:
                state = PreparedTransactionState(state.producer_id, state.epoch + 1)
            await producer.complete_transaction(state)
        await prepared(producer, topic, b"left")

    async with two_phased(kafka, topic) as successor:
        with pytest.raises(TransactionFatal, match="KAFKA-20739"):
            await successor.init_transactions(keep_prepared_txn=True)
        await successor.init_transactions()
        await successor.complete_transaction(await prepared(successor, topic, b"next"))

    assert await asyncio.to_thread(read_committed, kafka, topic) == [b"a0", b"a2", b"b0", b"b2", b"next"]
