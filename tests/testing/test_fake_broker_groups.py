"""Other people's consumers share the partitions of a topic with the help of the fake broker, as with Kafka's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from typing import Any, cast
from uuid import UUID

import pytest
from aiokafka import AIOKafkaConsumer  # type: ignore[import-untyped]
from confluent_kafka import Consumer, KafkaException

from aioproducer import CommitFailed, ConfigError, ConsumerGroupMetadata, Producer, TopicPartition
from aioproducer.protocol import ErrorCode, encode_request
from aioproducer.protocol.frames import decode_response_header
from aioproducer.protocol.messages import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from aioproducer.testing import FakeBroker, FakeCluster
from aioproducer.testing.broker.request import RequestContext
from aioproducer.testing.raw_client import RawClient
from tests.conftest import until
from tests.testing.raw_groups import NEW, RawGroup

RELEASES = ["2.1", "2.8", "3.9", "4.3"]
PATIENCE = 30.0
UNKNOWN = UUID(int=7)


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(brokers=2, topics={"orders": 4}) as broker:
        yield broker


@asynccontextmanager
async def consumer(broker: FakeBroker, **options: Any) -> AsyncIterator[Any]:
    defaults = {"auto_offset_reset": "earliest", "heartbeat_interval_ms": 50, "retry_backoff_ms": 20, "group_id": "g"}
    consumer = AIOKafkaConsumer(
        "orders", bootstrap_servers=broker.bootstrap_servers, **{**defaults, "metadata_max_age_ms": 500, **options}
    )
    async with consumer:
        yield consumer


async def fill(broker: FakeBroker, count: int) -> list[bytes]:
    values = [b"%d" % number for number in range(count)]
    async with Producer(broker.bootstrap_servers) as producer:
        for number, value in enumerate(values):
            await producer.enqueue("orders", value, partition=number % 4)
    return values


async def read(*consumers: Any, count: int) -> list[bytes]:
    """So many values, from any reader."""
    found: list[bytes] = []
    async with asyncio.timeout(PATIENCE):
        while len(found) < count:
            for each in consumers:
                batches = await each.getmany(timeout_ms=20)
                found += [record.value for records in batches.values() for record in records]
    return found


@pytest.mark.parametrize("release", RELEASES)
async def test_two_members_of_aiokafka_share_a_topic_and_take_over_from_each_other(
    broker: FakeBroker, release: str
) -> None:
    broker.set_versions(release)
    values = await fill(broker, 40)

    async with consumer(broker) as first:
        assert sorted(await read(first, count=40)) == sorted(values)
        assert len(first.assignment()) == 4
        async with consumer(broker) as second:
            await until(lambda: len(first.assignment()) == len(second.assignment()) == 2)
            assert not first.assignment() & second.assignment()
            group = broker.consumer_group("g")
            assert (group.state, len(group.members), group.protocol) == ("Stable", 2, "roundrobin")
            more = await fill(broker, 40)
            assert sorted(await read(first, second, count=40)) == sorted(more)
        await until(lambda: len(first.assignment()) == 4)

    assert {offset for offset, _, _ in broker.committed_offsets("g").values()} == {20}
    assert (broker.consumer_group("g").state, broker.consumer_group("g").members) == ("Empty", {})


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_two_members_of_confluent_kafka_share_a_topic(broker: FakeBroker, release: str, strategy: str) -> None:
    broker.set_versions(release)
    asyncio.run(fill(broker, 40))
    config = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "partition.assignment.strategy": strategy,
        "heartbeat.interval.ms": 50,
        "session.timeout.ms": 6000,
        "log_level": 0,
    }
    with closing(Consumer(config)) as first:
        first.subscribe(["orders"])
        found: list[bytes] = []
        poll_until(lambda: len(found) == 40, first, found=found)
        first.commit(asynchronous=False)
        with closing(Consumer(config)) as second:
            second.subscribe(["orders"])
            poll_until(lambda: len(first.assignment()) == len(second.assignment()) == 2, first, second)
        poll_until(lambda: len(first.assignment()) == 4, first)

    assert sorted(found) == sorted(b"%d" % number for number in range(40))
    assert broker.committed_offsets("g")["orders", 3].offset == 10


def poll_until(condition: Callable[[], bool], *consumers: Consumer, found: list[bytes] | None = None) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        for each in consumers:
            message = each.poll(0.02)
            if message is not None and found is not None:
                assert message.error() is None, message.error()
                found.append(message.value() or b"")


async def test_a_silent_members_partitions_go_to_the_others_when_its_session_is_over(broker: FakeBroker) -> None:
    broker.session_timeouts_ms = (100, 10_000)
    with closing(RawGroup(broker.addresses[1], NEW, "orders", "g")) as steps:
        silent = steps.new("silent", protocols=["roundrobin"])
        await asyncio.to_thread(steps.join, silent, protocols=["roundrobin"], session_timeout_ms=400)
        await asyncio.to_thread(steps.sync, silent)
        assert list(broker.consumer_group("g").members) == [silent.member_id]

        async with consumer(broker) as alive:
            await until(lambda: len(alive.assignment()) == 4)

        steps.heartbeat(silent)
        assert steps.notes[-1] == ("silent", "heartbeat", "UNKNOWN_MEMBER_ID")


async def test_a_member_that_a_test_expires_joins_again_by_itself(broker: FakeBroker) -> None:
    async with consumer(broker) as alive:
        await until(lambda: len(alive.assignment()) == 4)
        (before,) = broker.consumer_group("g").members

        broker.expire_member("g", before)

        await until(lambda: broker.consumer_group("g").state == "Stable")
        (after,) = broker.consumer_group("g").members
        assert after != before


async def test_a_transaction_commits_offsets_for_a_member_and_is_refused_when_the_group_has_moved_on(
    broker: FakeBroker,
) -> None:
    async with consumer(broker, enable_auto_commit=False) as alive, transactional(broker) as producer:
        await until(lambda: len(alive.assignment()) == 4)
        group = broker.consumer_group("g")
        member = ConsumerGroupMetadata("g", group.generation, *group.members)
        async with producer.transaction() as txn:
            await txn.send_offsets({TopicPartition("orders", 0): 3}, member)

        broker.expire_member("g", member.member_id)
        with pytest.raises(CommitFailed):
            async with producer.transaction() as txn:
                await txn.send_offsets({TopicPartition("orders", 0): 4}, member)

    assert {where: each.offset for where, each in broker.committed_offsets("g").items()} == {("orders", 0): 3}


def transactional(broker: FakeBroker) -> Producer:
    return Producer(broker.bootstrap_servers, transactional_id="t")


async def test_a_consumer_follows_its_coordinator_and_outlasts_its_errors(broker: FakeBroker) -> None:
    broker.fail("JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS")
    broker.fail("SyncGroup", "REBALANCE_IN_PROGRESS")
    async with consumer(broker) as alive:
        await until(lambda: len(alive.assignment()) == 4)
        broker.move_group_coordinator("g", 2)
        await until(lambda: broker.count("Heartbeat", node=2) > 1)
        broker.drop_connection("Heartbeat", when="after")
        await until(lambda: broker.count("Heartbeat", node=2) > 4)
        await alive.commit()

    assert broker.count("OffsetCommit", node=2) >= 1


def test_confluent_kafka_reports_a_commit_of_a_past_generation(broker: FakeBroker) -> None:
    asyncio.run(fill(broker, 4))
    config = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    with closing(Consumer({**config, "log_level": 0, "enable.auto.commit": False})) as member:
        member.subscribe(["orders"])
        found: list[bytes] = []
        poll_until(lambda: len(found) == 4, member, found=found)
        broker.fail("OffsetCommit", "ILLEGAL_GENERATION")
        with pytest.raises(KafkaException, match="ILLEGAL_GENERATION"):
            member.commit(asynchronous=False)

    assert broker.committed_offsets("g") == {}


def test_offsets_are_committed_by_the_id_of_the_topic(broker: FakeBroker) -> None:
    topic_id = broker.cluster.topic("orders").topic_id
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=5, committed_metadata=None)
        for index in (0, 9)
    ]
    topics = [OffsetCommitRequestTopic(topic_id=each, partitions=partitions) for each in (topic_id, UNKNOWN)]
    with RawClient(broker.addresses[1]) as client:
        answer = client.ask(OffsetCommitRequest(group_id="g", topics=topics), 10)

    codes = [[ErrorCode(each.error_code).name for each in topic.partitions] for topic in answer.topics]
    assert codes == [["NONE", "UNKNOWN_TOPIC_OR_PARTITION"], ["UNKNOWN_TOPIC_ID"] * 2]
    assert {where: each.offset for where, each in broker.committed_offsets("g").items()} == {("orders", 0): 5}


def join_request(member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=6000,
        rebalance_timeout_ms=20_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def test_a_broker_that_closes_does_not_wait_for_those_who_join(broker: FakeBroker) -> None:
    broker.initial_rebalance_delay_ms = 60_000
    with RawClient(broker.addresses[1]) as client:
        client.send(join_request(), 3)
        broker.wait_for(lambda broker: len(broker.consumer_group("g").members) == 1 if knows(broker) else False)
        broker.close()
        assert client.is_closed_by_peer()


def knows(broker: FakeBroker) -> bool:
    return "g" in broker.cluster.groups.groups


def test_a_control_function_that_applies_a_request_is_not_kept_waiting(broker: FakeBroker) -> None:
    broker.initial_rebalance_delay_ms = 60_000
    codes: list[int] = []

    def look(context: RequestContext) -> JoinGroupResponse:
        answer = cast("JoinGroupResponse", context.apply())
        codes.append(answer.error_code)
        return answer

    broker.control("JoinGroup", look)
    with RawClient(broker.addresses[1]) as client:
        assert client.ask(join_request(), 3).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert codes == [ErrorCode.REBALANCE_IN_PROGRESS]


def test_a_cluster_without_a_clock_lets_waiting_take_no_time() -> None:
    cluster = FakeCluster()
    cluster.group_coordinator.initial_rebalance_delay_ms = 3000
    frame = b"".join(encode_request(1, "c", join_request(), 3))[4:]

    answer = cluster.handle(1, frame)

    assert answer is not None
    _, body = decode_response_header(answer, JoinGroupRequest, 3)
    assert JoinGroupRequest.response_type.decode(3, body).generation_id == 1


def test_an_unknown_group_or_member_is_reported(broker: FakeBroker) -> None:
    with pytest.raises(ConfigError, match="no consumer group 'g'"):
        broker.consumer_group("g")
    broker.set_group("g", 3, {"m": "i"})
    with pytest.raises(ConfigError, match="no member 'other'"):
        broker.expire_member("g", "other")
    assert broker.consumer_group("g").members == {"m": "i"}
    assert broker.session_timeouts_ms == (6000, 1_800_000)
    assert broker.initial_rebalance_delay_ms == 0
