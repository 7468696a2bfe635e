"""``warm_up()`` leaves nothing for the first record to wait for, and ``list_topics()`` shows the cluster as it is."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from aioproducer import (
    AuthenticationError,
    BrokerError,
    BrokerInfo,
    ClusterInfo,
    InvalidRecord,
    KafkaTimeoutError,
    PartitionInfo,
    SyncProducer,
    TopicInfo,
)
from aioproducer.testing import FakeBroker, Logins
from tests.conftest import QUICK, opened, until


async def test_the_first_record_waits_for_nothing_but_its_acknowledgement() -> None:
    with FakeBroker(brokers=3, topics={"orders": 3, "payments": 1}) as broker:
        async with opened(broker) as producer:
            await producer.warm_up("orders", "payments")
            assert sorted(producer.health().connected_brokers) == [1, 2, 3]
            broker.forget_requests()
            for partition in range(3):
                await producer.send("orders", b"value", partition=partition)

            assert broker.counts == {"Produce": 3}


async def test_all_topics_are_asked_for_in_one_request() -> None:
    topics = [f"topic-{number}" for number in range(20)]
    with FakeBroker(topics=dict.fromkeys(topics, 1)) as broker:
        async with opened(broker) as producer:
            await producer.ready()
            broker.forget_requests()
            await producer.warm_up(*topics)

            assert broker.count("Metadata") <= 2


async def test_without_topics_it_is_ready_and_has_a_producer_id(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        await producer.warm_up()
        assert broker.count("InitProducerId") == 1
        assert producer.metrics()["producer-epoch"] == 0


async def test_a_partition_without_a_leader_is_passed_over(broker: FakeBroker) -> None:
    broker.move_leader("orders", 1, -1)
    async with opened(broker) as producer:
        await producer.warm_up("orders")


async def test_a_leader_that_cannot_be_reached() -> None:
    with FakeBroker(brokers=2, topics={"orders": 2}) as broker:
        async with opened(broker) as producer:
            await producer.ready()
            broker.stop_node(2)
            with pytest.raises(KafkaTimeoutError, match="Not all leaders were connected in time") as caught:
                await producer.warm_up("orders", timeout=0.5)
            assert caught.value.__cause__ is not None
            broker.start_node(2)
            await producer.warm_up("orders", timeout=30)


async def test_a_leader_that_refuses_the_credentials() -> None:
    with FakeBroker(brokers=2, topics={"orders": 2}, logins=Logins({"me": "right"})) as broker:
        options: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
        async with opened(broker, **options, sasl_username="me", sasl_password="right") as producer:
            await producer.ready()
            other = 3 - producer.health().connected_brokers[0]
            broker.fail("SaslAuthenticate", "SASL_AUTHENTICATION_FAILED", times=None, node=other)
            with pytest.raises(AuthenticationError):
                await producer.warm_up("orders", timeout=600)


async def test_no_producer_id(broker: FakeBroker) -> None:
    broker.fail("InitProducerId", "COORDINATOR_LOAD_IN_PROGRESS", times=None)
    async with opened(broker) as producer:
        with pytest.raises(KafkaTimeoutError, match="No producer id was obtained in time"):
            await producer.warm_up(timeout=0.5)
        broker.clear_faults()
        await producer.warm_up("orders", timeout=30)


async def test_a_topic_that_does_not_exist_or_may_not_exist() -> None:
    with FakeBroker(auto_create_topics=False) as broker:
        async with opened(broker) as producer:
            with pytest.raises(KafkaTimeoutError, match="'missing'"):
                await producer.warm_up("missing", timeout=0.5)
            with pytest.raises(InvalidRecord):
                await producer.warm_up("not a topic")


async def test_a_topic_that_may_not_be_described(broker: FakeBroker) -> None:
    broker.fail("Metadata", "TOPIC_AUTHORIZATION_FAILED", times=None, topic="orders")
    async with opened(broker) as producer:
        with pytest.raises(BrokerError, match="orders"):
            await producer.warm_up("orders")


# -- the cluster -------------------------------------------------------------------------------------------------------


async def test_the_cluster_as_a_broker_describes_it() -> None:
    with FakeBroker(brokers=3, topics={"orders": 2, "payments": 1}) as broker:
        broker.cluster.nodes[2].rack = "east"
        broker.shrink_isr("orders", 0, [1, 3])
        broker.move_leader("orders", 1, -1)
        async with opened(broker) as producer:
            found = await producer.list_topics()
            assert await producer.partitions_for("orders") == found.topics["orders"].partitions

    addresses = broker.addresses
    topic_id = broker.cluster.topics["orders"].topic_id
    epochs = [each.leader_epoch for each in broker.cluster.topics["orders"].partitions]
    assert found.cluster_id == broker.cluster.cluster_id
    assert found.controller_id in (1, 2, 3)
    assert found.brokers == (
        BrokerInfo(1, *addresses[1], None),
        BrokerInfo(2, *addresses[2], "east"),
        BrokerInfo(3, *addresses[3], None),
    )
    assert list(found.topics) == ["orders", "payments"]
    assert isinstance(topic_id, uuid.UUID)
    assert found.topics["orders"] == TopicInfo(
        "orders",
        topic_id,
        False,
        (
            PartitionInfo("orders", 0, 1, epochs[0], (1, 2, 3), (1, 3), ()),
            PartitionInfo("orders", 1, -1, epochs[1], (2, 3, 1), (2, 3, 1), ()),
        ),
    )


async def test_replicas_that_change_are_seen_at_the_next_refresh(broker: FakeBroker) -> None:
    with FakeBroker(brokers=2, topics={"orders": 1}) as broker:
        async with opened(broker, metadata_max_age_ms=50) as producer:
            (before,) = await producer.partitions_for("orders")
            broker.shrink_isr("orders", 0, [1])
            asked = broker.count("Metadata")
            await until(lambda: broker.count("Metadata") >= asked + 2)
            (after,) = await producer.partitions_for("orders")

    assert (before.in_sync_replicas, after.in_sync_replicas) == ((1, 2), (1,))


async def test_old_brokers_have_no_topic_ids(broker: FakeBroker) -> None:
    broker.set_versions("2.7")
    async with opened(broker) as producer:
        found = await producer.list_topics()
    assert {each.topic_id for each in found.topics.values()} == {None}


async def test_no_topic_is_created(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        before = set(broker.cluster.topics)
        assert set((await producer.list_topics()).topics) == before == set(broker.cluster.topics)


async def test_no_broker_answers_and_the_records_in_flight_stay_there(broker: FakeBroker) -> None:
    async with opened(broker, enable_idempotence=False, acks=1) as producer:
        await producer.warm_up("orders")
        with broker.hold("Produce", applied=True):
            delivery = await producer.enqueue("orders", b"value", partition=0)
            await until(lambda: broker.count("Produce"))
            with pytest.raises(KafkaTimeoutError, match="No broker has answered a request for all topics in time"):
                await producer.list_topics(timeout=0.1)
        await delivery
        assert isinstance(await producer.list_topics(), ClusterInfo)
    assert len(broker.records("orders")) == 1


def test_threads(broker: FakeBroker) -> None:
    with SyncProducer(broker.bootstrap_servers, **QUICK) as producer:
        producer.warm_up("orders")
        assert "orders" in producer.list_topics().topics
        assert producer.partitions_for("orders")[0].replicas == (1,)
