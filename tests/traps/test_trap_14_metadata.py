"""Trap 14: a cluster that moves, topics that are recreated, and brokers that ask for a break or know less than others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioproducer import HealthStatus
from aioproducer.errors import DeliveryError
from aioproducer.protocol.messages import ApiVersionsRequest, MetadataResponse
from aioproducer.testing import FakeBroker, RequestContext
from aioproducer.testing.raw_client import RawClient
from tests.conftest import Clock, turns, until
from tests.traps.judge import audited
from tests.traps.schedules import ANY, World, a_few_and_many, omit_topic, run_schedule, throttle

OPTIONS: dict[str, Any] = {
    "linger_ms": 0,
    "request_timeout_ms": 500,
    "delivery_timeout_ms": 20_000,
    "reconnect_backoff_max_ms": 20,
}


async def test_a_cluster_whose_brokers_all_moved_at_once_is_found_through_the_bootstrap_servers() -> None:
    """A load balancer stays where it is: a port that leads to whatever broker there is now."""
    with FakeBroker(3, topics={"orders": 3}) as broker:
        balancer = await asyncio.start_server(lambda r, w: _forward(broker, r, w), "127.0.0.1", 0)
        port = balancer.sockets[0].getsockname()[1]
        async with balancer, audited(broker, bootstrap=f"127.0.0.1:{port}", **OPTIONS) as audit:
            for partition in range(3):
                await audit.send(partition=partition)
            for node in (1, 2, 3):
                broker.restart_on_new_port(node)
            for partition in range(3):
                for _ in range(5):
                    await audit.enqueue(partition=partition)
            await audit.all_outcomes()
            assert audit.producer.health().status is HealthStatus.READY

        assert audit.acknowledged == 18


async def _forward(broker: FakeBroker, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    host, port = next(iter(broker.addresses.values()))
    try:
        inner_reader, inner_writer = await asyncio.open_connection(host, port)
    except OSError:
        writer.close()
        return
    await asyncio.gather(_copy(reader, inner_writer), _copy(inner_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
    except OSError:
        pass
    finally:
        writer.close()


async def test_a_broker_at_its_limit_of_requests_is_no_reason_to_bootstrap_again(broker: FakeBroker) -> None:
    clock = Clock()
    options = {"request_timeout_ms": 10_000, "batch_size": 0, "max_in_flight_requests_per_connection": 1}
    async with audited(broker, **OPTIONS | options) as audit:
        await audit.send()
        connections = len(broker.connections(closed=True))
        with broker.hold("Produce") as held:
            await audit.enqueue()
            await until(lambda: held.waiting)
            asking = asyncio.create_task(audit.producer.partitions_for("payments"))
            for _ in range(4):
                await audit.enqueue()
                clock.advance(1)
                await turns()
            assert not asking.done(), "no broker is reachable"
            with RawClient(broker.addresses[1]) as last:  # a broker accepts in turn: what came before this one is seen
                last.ask(ApiVersionsRequest(), 3)
            assert len(broker.connections(closed=True)) == connections + 1
        await audit.all_outcomes()
        await asking

    assert len(broker.connections(closed=True)) == connections + 1


@pytest.mark.parametrize("partitions", [3, 5, 1])
async def test_a_recreated_topic_is_written_to_at_once(broker: FakeBroker, partitions: int) -> None:
    async with audited(broker, check=False, **OPTIONS) as audit:
        for _ in range(5):
            await audit.send()
        broker.recreate_topic("orders", partitions)
        sent = [await audit.send() for _ in range(5)]
        epoch = audit.metric("producer-epoch")

    acknowledged = [each for each in sent if not isinstance(each.outcome, DeliveryError)]
    assert len(acknowledged) == 5
    assert len(broker.records("orders", 0)) == 5
    assert len({record.value for record in broker.records("orders")}) == 5
    assert epoch <= 1


@pytest.mark.parametrize("versions", ["2.4", "2.7"])
async def test_a_recreated_topic_without_id_is_written_to_although_its_leader_had_moved(
    versions: str,
) -> None:
    with FakeBroker(2, versions=versions, topics={"orders": 3}) as broker:
        async with audited(broker, check=False, **OPTIONS) as audit:
            for _ in range(2):
                broker.move_leader("orders", 0, 3 - broker.leader("orders", 0))
                await audit.send()
            broker.recreate_topic("orders", 2)
            broker.move_leader("orders", 0, 2)
            await audit.send()  # brokers before 2.5 miss the batches that came before it, and so its fate is not known
            sent = await audit.send()

    assert not isinstance(sent.outcome, DeliveryError)
    assert broker.records("orders", 0)


async def test_a_leader_epoch_that_makes_no_sense_does_not_lose_the_partition() -> None:
    lies: list[str] = []

    def lie(context: RequestContext) -> Any:
        answer = context.apply()
        assert isinstance(answer, MetadataResponse)
        for topic in answer.topics:
            if not lies:
                lies.append(topic.name or "")
                topic.partitions[0].leader_epoch = 2**31 - 1
                topic.partitions[0].leader_id = 2
        return answer

    with FakeBroker(2, topics={"orders": 2}) as broker:
        broker.control("Metadata", lie, times=None)
        async with audited(broker, **OPTIONS) as audit:
            await audit.send(partition=0)

    assert lies
    assert audit.acknowledged == 1


async def test_a_topic_recreated_with_batches_in_flight_gets_each_record_once(broker: FakeBroker) -> None:
    options = {"request_timeout_ms": 10_000, "batch_size": 0}
    async with audited(broker, check=False, **OPTIONS | options) as audit:
        await audit.send()
        with broker.hold("Produce"):
            for _ in range(5):
                await audit.enqueue()
            await until(lambda: broker.count("Produce") == 6)
            broker.recreate_topic("orders")
        await audit.all_outcomes()
        await audit.send()

    values = [record.value for record in broker.records("orders", 0)]
    assert len(values) == len(set(values)) == 6
    assert audit.acknowledged == 7


def ask_for_a_break(context: RequestContext) -> Any:
    """One of a minute, which the broker itself does not wait for: whatever comes meanwhile is heard at once."""
    answer: Any = context.apply()
    answer.throttle_time_ms = 60_000
    return answer


async def test_a_throttle_means_that_no_byte_is_sent_for_so_long_and_nothing_times_out(broker: FakeBroker) -> None:
    clock = Clock()
    options = {"request_timeout_ms": 10_000, "delivery_timeout_ms": 100_000, "batch_size": 0}
    async with audited(broker, **OPTIONS | options) as audit:
        await audit.send()
        broker.control("Produce", ask_for_a_break)
        await audit.send()
        before = len(broker.requests)
        for _ in range(5):
            await audit.enqueue()
            clock.advance(10)
            await turns()
        assert len(broker.requests) == before
        assert audit.metric("produce-request-total") == 2, "nor is one on its way"
        clock.advance(11)
        await audit.all_outcomes()

    assert audit.acknowledged == 7
    assert len(broker.connections(closed=True)) == len({request.connection for request in broker.requests})
    assert len({request.connection for request in broker.requests_of("Produce")}) == 1, "no request ran out of time"


async def test_a_throttle_gives_those_in_flight_so_much_more_time(broker: FakeBroker) -> None:
    clock = Clock()
    options = {"request_timeout_ms": 10_000, "delivery_timeout_ms": 100_000, "batch_size": 0}
    async with audited(broker, **OPTIONS | options) as audit:
        await audit.send()
        broker.control("Produce", ask_for_a_break)
        with broker.hold("Produce", times=1) as first, broker.hold("Produce") as others:
            for _ in range(5):
                await audit.enqueue()
            await until(lambda: first.waiting and audit.metric("produce-request-total") == 6)
            first.release()
            await until(lambda: audit.acknowledged == 2)
            clock.advance(30)
            await turns()
            others.release()
            await audit.all_outcomes()

    assert audit.acknowledged == 6
    assert len(broker.requests_of("Produce")) == 6, "nothing was sent twice"


async def test_a_throttle_of_one_broker_is_none_of_the_others() -> None:
    with FakeBroker(2, topics={"orders": 2}) as broker:
        async with audited(broker, **OPTIONS) as audit:
            await audit.send(partition=0)
            await audit.send(partition=1)
            broker.throttle("Produce", 60_000, node=1)
            await audit.send(partition=0)
            async with asyncio.timeout(30):
                for _ in range(5):
                    await audit.send(partition=1)


async def test_a_hint_about_the_leader_is_followed_without_waiting_for_metadata() -> None:
    with FakeBroker(3, topics={"orders": 3}) as broker:
        async with audited(broker, **OPTIONS | {"retry_backoff_ms": 1000, "retry_backoff_max_ms": 1000}) as audit:
            for partition in range(3):
                await audit.send(partition=partition)
            nodes = audit.producer.health().connected_brokers
            broker.move_leader("orders", 0, 2)
            with broker.hold("Metadata"):
                moved = await audit.send(partition=0)
                others = [await audit.send(partition=partition) for partition in (1, 2)]

        assert len(nodes) == 3
        assert moved.outcome is not None
        assert audit.acknowledged == 6
        assert all(other.outcome is not None for other in others), "the other brokers are known as before"


async def test_a_stale_view_of_one_broker_fails_no_record() -> None:
    """A broker that has not heard of a partition leaves it out; what was known of it stays known."""
    with FakeBroker(3, topics={"orders": 3}) as broker:
        async with audited(broker, **OPTIONS, metadata_max_age_ms=10) as audit:
            for partition in range(3):
                await audit.send(partition=partition)
            broker.omit_from_metadata("orders", partition=2, times=5)
            asked = broker.count("Metadata")
            while broker.count("Metadata") < asked + 6:
                await audit.send(partition=2)
            broker.omit_from_metadata("orders", times=5)
            asked = broker.count("Metadata")
            while broker.count("Metadata") < asked + 6:
                await audit.send(partition=0)

        assert audit.not_written == 0


async def test_a_stale_view_does_not_lead_back_to_a_leader_of_the_past() -> None:
    with FakeBroker(2, topics={"orders": 1}) as broker:
        old: list[Any] = []

        def remember(context: RequestContext) -> Any:
            answer: Any = context.apply()
            if old:
                answer.topics = old
            elif any(topic.name == "orders" for topic in answer.topics):
                old.extend(answer.topics)
            return answer

        broker.control("Metadata", remember, times=None)
        async with audited(broker, **OPTIONS, metadata_max_age_ms=20) as audit:
            await audit.send()
            broker.move_leader("orders", 0, 2)
            await audit.send()  # the hint names the leader
            refused = broker.count("Produce", node=1)
            asked = broker.count("Metadata")
            while broker.count("Metadata") < asked + 4:
                await audit.send()

        assert broker.count("Produce", node=1) == refused


async def test_an_idle_connection_that_is_closed_meets_a_send_halfway(broker: FakeBroker) -> None:
    async with audited(broker, **OPTIONS, connections_max_idle_ms=20) as audit:
        for pause in (0.005, 0.015, 0.019, 0.021, 0.025, 0.03, 0.04, 0.02, 0.02):
            await audit.send()
            await asyncio.sleep(pause)

    assert audit.acknowledged == 9


async def test_an_idle_connection_that_the_broker_closes_meets_a_send_halfway(broker: FakeBroker) -> None:
    async with audited(broker, **OPTIONS) as audit:
        for _ in range(10):
            await audit.send()
            broker.disconnect()

    assert audit.acknowledged == 10


def restart(world: World) -> None:
    """A node is elsewhere; the first one stays, or no broker could name the others."""
    world.broker.restart_on_new_port(world.random.choice([2, 3]))


@a_few_and_many(few=3, begin=14000)
async def test_a_cluster_that_moves_in_a_random_schedule_loses_nothing(seed: int) -> None:
    await run_schedule(seed, [*ANY, *[restart, throttle, omit_topic] * 3])
