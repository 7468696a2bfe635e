"""Trap 3: a new epoch that not all partitions move to in the right order, at the right sequence, or only once."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from aioproducer.errors import Unknown
from aioproducer.testing import FakeBroker, LoggedRecord
from tests.conftest import until
from tests.traps.judge import Audit, audited
from tests.traps.schedules import (
    ANY,
    World,
    a_few_and_many,
    disconnect,
    move_leader,
    refuse,
    run_schedule,
    throttle,
)

OPTIONS: dict[str, Any] = {"linger_ms": 0, "batch_size": 0, "request_timeout_ms": 20_000}


def check_epochs(broker: FakeBroker) -> None:
    """In each partition ids and epochs only grow, and each begins with sequence 0 and goes on without gaps."""
    by_partition: dict[tuple[str, int], list[LoggedRecord]] = defaultdict(list)
    for record in broker.records():
        by_partition[record.topic, record.partition].append(record)
    for records in by_partition.values():
        last = (-1, -1, -1)
        for record in records:
            current = (record.producer_id, record.producer_epoch)
            assert current >= last[:2], f"{record} came after {last}"
            assert record.sequence == (last[2] + 1 if current == last[:2] else 0), f"{record} came after {last}"
            last = (*current, record.sequence)


async def fill(audit: Audit, partitions: int, each: int) -> None:
    for _ in range(each):
        for partition in range(partitions):
            await audit.enqueue("orders", partition)


@pytest.mark.parametrize("brokers", [1, 3])
async def test_an_epoch_bump_happens_once_and_every_partition_moves_after_its_own_drain(brokers: int) -> None:
    with FakeBroker(brokers, topics={"orders": 8}) as broker:
        async with audited(broker, **OPTIONS) as audit:
            await fill(audit, 8, 1)
            await audit.all_outcomes()
            (producer_id,) = {record.producer_id for record in broker.records()}
            before = broker.count("Produce")
            with broker.hold("Produce"):
                await fill(audit, 8, 5)
                await until(lambda: broker.count("Produce") == before + 5 * brokers)
                broker.forget_producer(producer_id, topic="orders", partition=3, unknown=True)
            await audit.all_outcomes()
            await fill(audit, 8, 3)
            await audit.all_outcomes()
            epoch = audit.metric("producer-epoch")

        assert epoch == 1
        assert broker.count("InitProducerId") == 1
        assert audit.acknowledged == 8 * 9
        check_epochs(broker)
        for partition in range(8):
            assert {record.producer_epoch for record in broker.records("orders", partition)} == {0, 1}
        assert [record.producer_epoch for record in broker.records("orders", 3)] == [0] + [1] * 8


@pytest.mark.usefixtures("no_batch_fast_path")  # a lone batch is refused, and has the epoch bumped, by itself
async def test_an_epoch_bump_at_32766_is_the_last_one_and_the_next_takes_a_new_producer_id(broker: FakeBroker) -> None:
    broker.next_producer_epoch = 32766
    async with audited(broker, **OPTIONS) as audit:
        for _ in range(3):
            await fill(audit, 3, 4)
            await audit.all_outcomes()
            broker.forget_producer(max(record.producer_id for record in broker.records()), unknown=True)
            broker.next_producer_epoch = 0
        await fill(audit, 3, 4)

    check_epochs(broker)
    ids = {(record.producer_id, record.producer_epoch) for record in broker.records("orders", 0)}
    assert sorted(ids) == [(1000, 32766), (1000, 32767), (1001, 0), (1001, 1)]
    assert broker.count("InitProducerId") == 2
    assert audit.acknowledged == 48


async def test_an_epoch_bump_with_several_partitions_that_ask_for_it_is_one(broker: FakeBroker) -> None:
    async with audited(broker, **OPTIONS) as audit:
        await fill(audit, 3, 1)
        await audit.all_outcomes()
        with broker.hold("Produce"):
            await fill(audit, 3, 5)
            broker.forget_producer(1000, unknown=True)
        await audit.all_outcomes()
        epoch = audit.metric("producer-epoch")

    assert audit.acknowledged == 18
    assert epoch <= 3, "one for each partition at most, where they are not answered together"
    check_epochs(broker)


async def test_an_epoch_bump_is_needed_by_brokers_before_2_5_that_forget_a_producer() -> None:
    with FakeBroker(versions="2.4", topics={"orders": 3}) as broker:
        async with audited(broker, **OPTIONS) as audit:
            await fill(audit, 3, 3)
            await audit.all_outcomes()
            broker.forget_producer(1000)
            await fill(audit, 3, 3)

        check_epochs(broker)
        assert audit.acknowledged == 18


async def test_an_epoch_is_not_bumped_for_a_batch_that_another_one_precedes(broker: FakeBroker) -> None:
    async with audited(broker, **OPTIONS) as audit:
        await audit.send()
        with broker.hold("Produce"):
            await fill(audit, 1, 5)
            broker.fail("Produce", "NOT_ENOUGH_REPLICAS", partition=0)
        await audit.all_outcomes()
        epoch = audit.metric("producer-epoch")

    assert epoch == 0
    assert [record.sequence for record in broker.records()] == list(range(6))


async def test_an_epoch_bump_closes_the_hole_of_a_batch_that_was_refused_for_good(broker: FakeBroker) -> None:
    async with audited(broker, **OPTIONS) as audit:
        await fill(audit, 3, 1)
        await audit.all_outcomes()
        broker.fail("Produce", "INVALID_RECORD", topic="orders", partition=1)
        with broker.hold("Produce"):
            await fill(audit, 3, 5)
        await audit.all_outcomes()
        await fill(audit, 3, 2)

    check_epochs(broker)
    assert (audit.acknowledged, audit.not_written) == (23, 1)


@pytest.mark.parametrize("in_flight", [1, 5])
async def test_a_fenced_producer_id_is_left_for_a_fresh_one_and_later_sends_work(
    broker: FakeBroker, in_flight: int
) -> None:
    async with audited(broker, **OPTIONS) as audit:
        await fill(audit, 3, 2)
        await audit.all_outcomes()
        broker.fence(1000)
        before = broker.count("Produce")
        with broker.hold("Produce"):
            await fill(audit, 1, in_flight)
            await until(lambda: broker.count("Produce") == before + in_flight)
        await audit.all_outcomes()
        await fill(audit, 3, 3)

    check_epochs(broker)
    assert (audit.acknowledged, audit.not_written) == (6 + 9, in_flight)
    assert {record.producer_id for record in broker.records("orders", 0)} == {1000, 1001}
    assert broker.count("InitProducerId") == 2


async def test_a_fenced_batch_that_may_be_in_the_log_is_not_followed_by_a_second_copy_of_the_next(
    broker: FakeBroker,
) -> None:
    async with audited(broker, **OPTIONS) as audit:
        await audit.send()
        before = broker.count("Produce")
        with broker.hold("Produce", applied=True):
            await fill(audit, 1, 2)
            await until(lambda: broker.count("Produce") == before + 2)
            await until(lambda: len(broker.records()) == 2)
            broker.disconnect()
            broker.fence(1000)
        await audit.all_outcomes()
        await audit.send()

    assert (audit.acknowledged, audit.count(Unknown)) == (2, 2)


def disown(world: World) -> None:
    """A leader loses what it knows of the producer, and says so; only where nothing is on its way that it had written."""
    topic, partition = world.partition
    for producer_id in range(1000, world.broker.next_producer_id):
        world.broker.forget_producer(producer_id, topic=topic, partition=partition, unknown=True)


def refuse_for_good(world: World) -> None:
    """A batch is refused, and leaves a hole."""
    topic, partition = world.partition
    world.broker.fail("Produce", "INVALID_RECORD", topic=topic, partition=partition)


@pytest.mark.parametrize("start", [0, 32766])
@a_few_and_many(few=3, many=100, begin=3000)
async def test_an_epoch_bump_in_a_random_schedule_keeps_everything_exact(seed: int, start: int) -> None:
    """No answer is lost here: a leader that forgets a batch which it had not acknowledged cannot tell it from a new one."""

    def prepare(world: World) -> None:
        world.broker.next_producer_epoch = start

    audit = await run_schedule(
        seed,
        [disown, disown, refuse_for_good, refuse, throttle],
        prepare=prepare,
        request_timeout_ms=9000,
        delivery_timeout_ms=10_000,  # some wait for it: what stands behind a lost one and may itself have been written
    )

    check_epochs(audit.broker)


@a_few_and_many(few=3, many=100, begin=3500)
async def test_an_epoch_bump_amid_lost_answers_keeps_everything_exact(seed: int) -> None:
    await run_schedule(seed, [*ANY, refuse_for_good, refuse_for_good, disconnect, move_leader])
