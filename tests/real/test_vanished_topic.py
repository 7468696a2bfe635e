"""A topic that is deleted while records wait for it: what brokers say then, and what the records say."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from aioproducer import DeliveryError, Producer
from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.plugin import KafkaFactory

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(params=["4.3.1", "3.9.2"])
def kafka(request: pytest.FixtureRequest, kafka_factory: KafkaFactory) -> KafkaCluster:
    """One broker."""
    return kafka_factory(request.param)


async def sent_after_deletion(kafka: KafkaCluster, *, auto_create: bool) -> BaseException:
    """Return the error of the first record for partition 2 that a broker refuses after the topic was deleted."""
    topic = f"vanished-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, 3)
    async with Producer(
        kafka.bootstrap_servers,
        allow_auto_create_topics=auto_create,
        delivery_timeout_ms=8000,
        request_timeout_ms=4000,
    ) as producer:
        await producer.send(topic, b"value", partition=2)
        kafka.admin.delete_topic(topic)
        while True:  # the broker takes records until it has carried the deletion out
            (outcome,) = await asyncio.gather(producer.send(topic, b"value", partition=2), return_exceptions=True)
            if isinstance(outcome, BaseException):
                return outcome


async def test_the_error_of_a_record_for_a_deleted_topic_names_the_deletion(
    kafka: KafkaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    outcome = await sent_after_deletion(kafka, auto_create=False)

    assert isinstance(outcome, DeliveryError)
    assert "does not exist any more, or this client has no permission to see it: brokers have not known it for" in str(
        outcome
    )
    assert "it had 3 partitions, 0 to 2" in str(outcome)
    assert "delivery_timeout_ms (8 s) expired" in str(outcome)
    assert "is not known to the brokers any more" in caplog.text


async def test_the_error_of_a_record_for_a_vanished_partition_names_it(kafka: KafkaCluster) -> None:
    """The producer's own question for the topic creates it again, as brokers do by default: with one partition."""
    outcome = await sent_after_deletion(kafka, auto_create=True)

    assert isinstance(outcome, DeliveryError)
    assert "does not exist any more: the topic was created again with 1 partition, 0, and had 3 before" in str(outcome)
