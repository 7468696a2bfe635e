"""Trap 7: OUT_OF_ORDER_SEQUENCE after a change of leader kills the producer, or wedges a partition."""

from __future__ import annotations

from typing import Any

import pytest

from aioproducer.testing import FakeBroker, RequestContext, TopicConfig, TopicSpec
from tests.conftest import until
from tests.traps.judge import audited
from tests.traps.schedules import (
    World,
    a_few_and_many,
    disconnect,
    lose_answer,
    lose_request,
    move_leader,
    refuse,
    refuse_after_write,
    run_schedule,
    swallow_answer,
)

OPTIONS: dict[str, Any] = {"linger_ms": 0, "batch_size": 0, "request_timeout_ms": 2000, "delivery_timeout_ms": 10_000}


@pytest.mark.parametrize("lost_at", range(6))
@pytest.mark.parametrize("written", [True, False])
async def test_a_leader_change_with_five_in_flight_and_an_answer_lost_on_the_way_costs_nothing(
    lost_at: int, written: bool
) -> None:
    with FakeBroker(3, topics={"orders": 1}) as broker:
        served = 0

        def lose_and_move(context: RequestContext) -> None:
            nonlocal served
            if served == lost_at:
                broker.drop_connection("Produce", when="after" if written else "before")
                broker.cluster.move_leader("orders", 0, 2)
            served += 1

        async with audited(broker, **OPTIONS) as audit:
            await audit.send()
            with broker.hold("Produce"):
                for _ in range(5):
                    await audit.enqueue()
                await until(lambda: broker.count("Produce") == 6)
                broker.control("Produce", lose_and_move, times=None)
            await audit.all_outcomes()
            await audit.send()
            epoch = audit.metric("producer-epoch")

        assert audit.acknowledged == 7
        assert epoch == 0, "nothing was lost for good, so no sequence number had to be assigned again"
        assert [record.sequence for record in broker.records()] == list(range(7))


async def test_a_leader_change_back_and_forth_costs_nothing() -> None:
    with FakeBroker(3, topics={"orders": 2}) as broker:
        async with audited(broker, **OPTIONS) as audit:
            for turn in range(12):
                for _ in range(5):
                    await audit.enqueue(partition=turn % 2)
                broker.move_leader("orders", turn % 2, turn % 3 + 1)
            await audit.all_outcomes()

        assert audit.acknowledged == 60


async def test_a_leader_without_enough_replicas_is_waited_for() -> None:
    topics = {"orders": TopicSpec(2, config=TopicConfig(min_insync_replicas=2))}
    with FakeBroker(3, topics=topics) as broker:
        async with audited(broker, **OPTIONS) as audit:
            await audit.send()
            broker.shrink_isr("orders", 0, [1])
            for _ in range(12):
                await audit.enqueue()
            other = await audit.send(partition=1)
            await until(lambda: broker.count("Produce") > 20)
            broker.shrink_isr("orders", 0, [1, 2, 3])
            await audit.all_outcomes()
            epoch = audit.metric("producer-epoch")

        assert other.outcome is not None
        assert audit.acknowledged == 14
        assert epoch == 0


async def test_a_leader_that_is_not_there_for_a_while_is_waited_for() -> None:
    with FakeBroker(3, topics={"orders": 1}) as broker:
        async with audited(broker, **OPTIONS, metadata_max_age_ms=20) as audit:
            await audit.send()
            broker.move_leader("orders", 0, -1)
            for _ in range(8):
                await audit.enqueue()
            await until(lambda: broker.count("Metadata") > 5)
            broker.move_leader("orders", 0, 3)
            await audit.all_outcomes()

        assert audit.acknowledged == 9


async def test_a_leader_that_dies_is_succeeded() -> None:
    with FakeBroker(3, topics={"orders": 3}) as broker:
        async with audited(broker, **OPTIONS) as audit:
            for partition in range(3):
                await audit.send(partition=partition)
            for _ in range(5):
                for partition in range(3):
                    await audit.enqueue(partition=partition)
            broker.stop_node(2, elect=True)
            await audit.all_outcomes()
            broker.start_node(2)
            await audit.send(partition=1)

        assert audit.acknowledged == 19


async def test_a_leader_that_lost_the_last_batches_gets_the_rest_under_a_new_epoch(broker: FakeBroker) -> None:
    """An unclean election: what was acknowledged is gone, and the next sequence is out of order for ever."""
    async with audited(broker, check=False, **OPTIONS) as audit:
        for _ in range(3):
            await audit.send()
        log = broker.cluster.partition("orders", 0).log
        log.producers[1000].batches.pop()
        for _ in range(5):
            await audit.enqueue()
        await audit.all_outcomes()
        epoch = audit.metric("producer-epoch")

    assert audit.acknowledged == 8
    assert epoch == 1
    assert [record.producer_epoch for record in broker.records()] == [0] * 3 + [1] * 5


def lose_some_and_move(world: World) -> None:
    """A leader answers some of what is in flight, and moves."""
    lose_answer(world)
    move_leader(world)


@a_few_and_many(begin=7000)
async def test_a_leader_change_in_a_random_schedule_costs_nothing(seed: int) -> None:
    await run_schedule(
        seed,
        [move_leader, lose_some_and_move, refuse, refuse_after_write, disconnect, lose_request, swallow_answer],
        batch_size=150,
        max_in_flight_requests_per_connection=5,
    )
