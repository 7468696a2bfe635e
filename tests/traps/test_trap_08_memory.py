"""Trap 8: bytes of buffer_memory that are never given back, and senders that wait for them without success or unfairly."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from aioproducer import BufferFull, NotWrittenTimeout, Producer, ProducerClosed, RecordTooLarge
from aioproducer.accumulator.buffer_pool import BufferPool
from aioproducer.testing import FakeBroker, TopicConfig, TopicSpec
from tests.conftest import QUICK, until
from tests.traps.judge import audited, payload
from tests.traps.schedules import ANY, a_few_and_many, run_schedule

SMALL: dict[str, Any] = {"buffer_memory": 5000, "batch_size": 1000, "max_request_size": 4000, "linger_ms": 0}


def pool_of(producer: Producer) -> BufferPool:
    engine = producer._engine
    assert engine is not None
    return engine.pool


async def test_memory_is_given_back_whatever_becomes_of_a_record(broker: FakeBroker) -> None:
    async with audited(broker, **SMALL, request_timeout_ms=60, delivery_timeout_ms=60) as audit:
        await audit.send()
        broker.fail("Produce", "INVALID_RECORD")
        await audit.send()
        broker.swallow("Produce")
        await audit.send()
        with pytest.raises(RecordTooLarge):
            await audit.producer.send("orders", b"x" * 4500)
        await until(lambda: audit.free == audit.total)


async def test_memory_is_given_back_by_waiters_that_fail(broker: FakeBroker) -> None:
    async with audited(broker, **SMALL) as audit:
        await audit.producer.partitions_for("orders")
        with broker.hold("Produce"):
            await audit.enqueue(size=3000)
            waiting = [asyncio.ensure_future(audit.producer.send("orders", b"x" * 3000)) for _ in range(20)]
            with pytest.raises(NotWrittenTimeout, match="no room"):
                await audit.producer.send("orders", b"x" * 3000, timeout=0.01)
            with pytest.raises(BufferFull):
                audit.producer.enqueue_nowait("orders", b"y")
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

            assert audit.producer.health().waiting_senders == 0


async def test_memory_is_given_back_when_the_producer_closes_on_those_who_wait(broker: FakeBroker) -> None:
    producer = await Producer(broker.bootstrap_servers, **QUICK, **SMALL).start()
    await producer.partitions_for("orders")
    pool = pool_of(producer)
    with broker.hold("Produce"):
        await producer.enqueue("orders", b"x" * 3000)
        waiting = [asyncio.ensure_future(producer.send("orders", b"x" * 3000)) for _ in range(20)]
        await until(lambda: pool.waiting == 20)
        await producer.close(timeout=0.02)
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)

    assert all(isinstance(outcome, ProducerClosed) for outcome in outcomes)
    assert pool.free == pool.total


async def test_memory_is_given_out_in_the_order_in_which_it_was_asked_for(broker: FakeBroker) -> None:
    """Big and small alike: no send overtakes another, and a big one is not starved by small ones."""
    random = Random(8)
    granted: list[int] = []
    async with audited(broker, **SMALL) as audit:
        await audit.producer.partitions_for("orders")

        async def enqueue(number: int, size: int) -> None:
            await audit.enqueue(partition=number % 3, size=size)
            granted.append(number)

        with broker.hold("Produce"):
            await audit.enqueue(size=3000)
            tasks = [asyncio.ensure_future(enqueue(number, random.choice([40, 500, 3500]))) for number in range(60)]
            await until(lambda: audit.producer.health().waiting_senders > 50)
        await asyncio.gather(*tasks)

    for partition in range(3):
        of_partition = [number for number in granted if number % 3 == partition]
        assert of_partition == sorted(of_partition)
    assert max(abs(place - number) for place, number in enumerate(granted)) < 6, "their tasks resume in some order"


async def test_freed_memory_wakes_only_the_waiter_whose_turn_it_is(broker: FakeBroker) -> None:
    async with audited(broker, **SMALL) as audit:
        await audit.producer.partitions_for("orders")
        pool = pool_of(audit.producer)
        with broker.hold("Produce"):
            await audit.enqueue(size=4000 - 200)
            tasks = [asyncio.ensure_future(audit.enqueue(size=900)) for _ in range(200)]
            await until(lambda: pool.waiting >= 199)
        before = pool.grants
        await asyncio.gather(*tasks)

        assert pool.grants - before <= 200, "one wake-up for each that waited"


async def test_memory_for_one_record_is_enough_to_go_on(broker: FakeBroker) -> None:
    async with audited(broker, buffer_memory=1000, batch_size=1000, max_request_size=1000, linger_ms=5000) as audit:
        await asyncio.gather(*(audit.enqueue(partition=number % 3, size=800) for number in range(30)))

    assert audit.acknowledged == 30


async def test_memory_of_split_batches_is_given_back() -> None:
    with FakeBroker(topics={"orders": TopicSpec(1, config=TopicConfig(max_message_bytes=600))}) as broker:
        async with audited(broker, buffer_memory=8000, batch_size=4000, max_request_size=5000) as audit:
            for number in range(300):
                await audit.enqueue(size=1000 if number % 50 == 9 else 100)

        assert (audit.acknowledged, audit.not_written) == (294, 6)


async def test_memory_of_an_expired_batch_comes_back_once_and_not_twice(broker: FakeBroker) -> None:
    async with audited(broker, **SMALL, request_timeout_ms=50, delivery_timeout_ms=50) as audit:
        await audit.send()
        with broker.hold("Produce"):
            for _ in range(4):
                await audit.enqueue(size=600)
            await audit.all_outcomes()
        await until(lambda: audit.free == audit.total)
        for _ in range(10):
            await audit.send(size=600)
            assert audit.free <= audit.total


@a_few_and_many(begin=8000)
async def test_memory_in_a_random_schedule_with_cancellations_is_all_back_in_the_end(seed: int) -> None:
    random = Random(seed)
    await run_schedule(
        seed,
        ANY,
        cancel=random.choice([0.1, 0.5]),
        buffer_memory=random.choice([2000, 5000]),
        batch_size=random.choice([500, 1500]),
        max_request_size=2000,
        max_block_ms=random.choice([5, 50, 2000]),
    )


@pytest.mark.parametrize("seed", range(3))
async def test_memory_is_fair_to_many_tasks_with_timeouts_and_cancellations(broker: FakeBroker, seed: int) -> None:
    random = Random(seed)
    async with audited(broker, check=False, **SMALL) as audit:
        await audit.producer.partitions_for("orders")

        async def one(number: int) -> None:
            size = random.choice([40, 500, 2000, 3500])
            value = payload("orders", number % 3, number, size)
            await audit.producer.send("orders", value, partition=number % 3, timeout=random.choice([0.001, 0.02, 5]))

        tasks = [asyncio.ensure_future(one(number)) for number in range(300)]
        while not all(task.done() for task in tasks):
            random.choice(tasks).cancel()
            await asyncio.sleep(0)
        await asyncio.gather(*tasks, return_exceptions=True)
