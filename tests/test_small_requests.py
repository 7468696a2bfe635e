"""A small request written without messages is the request that the messages write, with the same outcomes."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from aioproducer import Delivery, Producer
from aioproducer.engine.lone_batch import LoneBatchSender, Use
from aioproducer.engine.sender import Sender
from aioproducer.engine.small_requests import SmallRequests
from aioproducer.errors import DeliveryError
from aioproducer.protocol.messages import ProduceRequest
from aioproducer.testing import FakeBroker, Logins
from aioproducer.testing.broker.request import ReceivedRequest
from tests.conftest import QUICK, Clock, turns, until

NOW = int(time.time() * 1000)
TOPICS = {"orders": 4, "payments": 3, "a": 1}
MESSAGE = Sender._send_message


class Seen:
    """The results of a run of the same bursts."""

    def __init__(self) -> None:
        self.requests: list[object] = []
        self.outcomes: list[object] = []
        self.values: list[object] = []
        self.metrics: dict[str, object] = {}


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Gets the number of batches of each request that is left to the messages."""
    monkeypatch.setattr(LoneBatchSender, "use", Use.NEVER)
    monkeypatch.setattr(SmallRequests, "enabled", True)
    counted: list[int] = []

    def send(self: Sender, node: int, version: int, batches: Any, take: Any) -> None:
        counted.append(len(batches))
        MESSAGE(self, node, version, batches, take)

    monkeypatch.setattr(Sender, "_send_message", send)  # patched: nothing else shows how a request was encoded
    return counted


async def burst(producer: Producer, number: int, size: int = 50) -> list[Delivery]:
    """A record for each partition, the topics in turns."""
    return [
        await producer.enqueue(
            topic, b"%d" % number * size, key=b"k", headers={"h": b"v"}, partition=partition, timestamp_ms=NOW + number
        )
        for partition in range(4)
        for topic, partitions in TOPICS.items()
        if partition < partitions
    ]


async def bursts(version: int, *, in_transaction: bool = False, **options: Any) -> Seen:
    seen = Seen()
    if in_transaction:
        options["transactional_id"] = "t"
    with FakeBroker(topics=TOPICS, max_versions={"Produce": version}) as broker:
        async with Producer(broker.bootstrap_servers, client_id="same", **options) as producer:
            for topic in TOPICS:
                await producer.partitions_for(topic)
            if in_transaction:
                await producer.init_transactions()
                await producer.begin_transaction()
            for number in range(4):
                for delivery in await burst(producer, number):
                    metadata = await delivery
                    seen.outcomes.append((*metadata.topic_partition, metadata.offset, metadata.timestamp_ms))
            engine = producer._engine
            assert engine is not None
            assert not engine.accumulator.has_unsettled
            assert engine.pool.free == engine.pool.total
            if in_transaction:
                await producer.commit_transaction()
            kept = ("record-send-total", "record-retry-total", "batch-size-avg", "produce-request-total")
            seen.metrics = {name: value for name, value in producer.metrics().items() if name in kept}
        seen.requests = [content(request) for request in broker.requests_of("Produce")]
        seen.values = [(record.topic, record.partition, record.value, record.key) for record in broker.records()]
    return seen


def content(request: ReceivedRequest) -> object:
    """All that a request says; its topics may stand in any order."""
    assert request.problem is None
    assert isinstance(request.body, ProduceRequest)
    body = request.body
    batches = {
        (topic.name, topic.topic_id, each.index): b"".join(map(bytes, each.records or ()))
        if isinstance(each.records, tuple)
        else bytes(each.records or b"")
        for topic in body.topic_data
        for each in topic.partition_data
    }
    return request.version, request.client_id, body.transactional_id, body.acks, body.timeout_ms, batches


@pytest.mark.parametrize(
    ("version", "how"),
    [
        *((version, {}) for version in (8, 9, 10, 12, 13)),
        *((version, {"in_transaction": True}) for version in (12, 13)),  # earlier ones add partitions separately
        (13, {"compression_type": "lz4"}),
        (13, {"acks": 1, "enable_idempotence": False}),
    ],
    ids=str,
)
async def test_requests_outcomes_and_metrics_are_those_of_the_messages(
    version: int, how: dict[str, Any], messages: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = await bursts(version, **how)
    left = len(messages)
    monkeypatch.setattr(SmallRequests, "enabled", False)
    reference = await bursts(version, **how)

    assert small.requests == reference.requests
    assert small.outcomes == reference.outcomes
    assert small.values == reference.values
    assert small.metrics == reference.metrics
    assert len(messages) > left
    if version >= 9:
        assert left == 0, "messages encode none of them"


async def test_a_request_without_a_response_or_with_much_data_is_left_to_the_messages(messages: list[int]) -> None:
    with FakeBroker(topics=TOPICS) as broker:
        async with Producer(broker.bootstrap_servers, acks=0, enable_idempotence=False) as producer:
            await asyncio.gather(*await burst(producer, 1))
        assert messages
        del messages[:]
        async with Producer(broker.bootstrap_servers) as producer:
            await producer.partitions_for("orders")
            await producer.send("orders", b"v" * 65_000)
            assert not messages
            await producer.send("orders", b"v" * 66_000)
            assert messages == [1]


async def test_a_topic_that_is_created_again_has_its_new_id(messages: list[int]) -> None:
    with FakeBroker(topics={"orders": 1}) as broker:
        async with Producer(broker.bootstrap_servers, **QUICK) as producer:
            await producer.send("orders", b"before")
            broker.recreate_topic("orders")
            assert (await producer.send("orders", b"after")).offset == 0
        assert [record.value for record in broker.records("orders", 0)] == [b"after"]
    assert not messages


async def test_one_batch_of_several_that_is_refused_is_sent_again(messages: list[int]) -> None:
    with FakeBroker(topics=TOPICS) as broker:
        async with Producer(broker.bootstrap_servers, retry_backoff_ms=1) as producer:
            await asyncio.gather(*await burst(producer, 0))
            broker.fail("Produce", "NOT_ENOUGH_REPLICAS", partition=2)
            offsets = [(await each).offset for each in await burst(producer, 1)]
        assert offsets == [1] * 8
        assert producer.metrics()["record-retry-total"] >= 1
        assert len(broker.records()) == 16
    assert not messages


async def test_one_batch_of_several_that_is_refused_for_good_fails_alone(messages: list[int]) -> None:
    with FakeBroker(topics=TOPICS) as broker:
        async with Producer(broker.bootstrap_servers) as producer:
            await asyncio.gather(*await burst(producer, 0))
            broker.fail("Produce", "INVALID_RECORD", partition=3)
            outcomes = await asyncio.gather(*await burst(producer, 1), return_exceptions=True)
        failed = [each for each in outcomes if isinstance(each, BaseException)]
        assert len(failed) == 1
        assert isinstance(failed[0], DeliveryError)
        assert (failed[0].topic, failed[0].partition) == ("orders", 3)
        assert len(broker.records()) == 15


async def test_a_lost_response_costs_no_record_and_doubles_none(messages: list[int]) -> None:
    with FakeBroker(topics=TOPICS) as broker:
        async with Producer(broker.bootstrap_servers, retry_backoff_ms=1, reconnect_backoff_ms=1) as producer:
            await asyncio.gather(*await burst(producer, 0))
            broker.drop_connection("Produce", when="after")
            offsets = [(await each).offset for each in await burst(producer, 1)]
        assert offsets == [1] * 8
        assert len(broker.records()) == 16


async def test_five_small_requests_are_in_flight_and_answered_in_order(messages: list[int]) -> None:
    with FakeBroker(topics={"orders": 10}) as broker:
        async with Producer(broker.bootstrap_servers, max_in_flight_requests_per_connection=5) as producer:
            await producer.partitions_for("orders")
            with broker.hold("Produce"):
                deliveries: list[Delivery] = []
                for pair in range(5):
                    deliveries += [await producer.enqueue("orders", b"v", partition=2 * pair + i) for i in range(2)]
                    await until(lambda: broker.count("Produce") == pair + 1)  # noqa: B023
                assert producer.metrics()["requests-in-flight"] >= 5
            await asyncio.gather(*deliveries)
        assert len(broker.records()) == 10
    assert not messages


async def test_small_requests_wait_while_the_connection_logs_in_again(messages: list[int]) -> None:
    clock, logins = Clock(), Logins({"alice": "secret"}, session_lifetime_ms=100_000)
    options: dict[str, Any] = {
        **QUICK,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "alice",
        "sasl_password": "secret",
        "request_timeout_ms": 1_000_000,
        "delivery_timeout_ms": 2_000_000,
    }
    with FakeBroker(topics=TOPICS, logins=logins) as broker:
        async with Producer(broker.bootstrap_servers, **options) as producer:
            await asyncio.gather(*await burst(producer, 0))
            assert not messages
            with broker.hold("SaslHandshake") as held:
                clock.advance(95)
                await until(lambda: held.waiting)
                sent = broker.count("Produce")
                deliveries = await burst(producer, 1)
                await turns()
                assert broker.count("Produce") == sent
            await asyncio.gather(*deliveries)
        assert len(broker.records()) == 16
        assert len(broker.connections(closed=True)) == 1
    assert not messages
