"""Trap 10: linger as a rate limit, a flush that waits for it, timers that never fire under a steady load."""

from __future__ import annotations

import asyncio

from aioproducer.testing import FakeBroker
from tests.conftest import Clock, opened, turns, until
from tests.rig import LINGER, Rig
from tests.traps.judge import audited


def test_linger_ends_at_its_very_moment_and_not_one_moment_earlier() -> None:
    rig = Rig()
    rig.one_in_flight()
    rig.put(now=10.0)

    assert rig.accumulator.queues.next_deadline() == 10.0 + LINGER
    assert not rig.ready(10.0 + LINGER - 1e-6)
    assert rig.ready(10.0 + LINGER)


def test_linger_is_not_put_off_by_a_steady_trickle() -> None:
    """The clock of a batch is that of its first record; one behind it every 0.5 s does not wind it up again."""
    rig = Rig(batch_size=100_000)
    in_flight = [rig.one_in_flight()]
    ages: list[float] = []
    for tick in range(1000):
        now = tick * 0.5
        if rig.ready(now):
            drained = rig.drain(now)
            ages.extend(now - batch.created_at for batch in drained)
            rig.acknowledge(*in_flight, now=now)
            in_flight = drained
        rig.put(now=now)

    assert len(ages) > 90, "each batch collects for as long as linger, and no longer"
    assert set(ages) == {LINGER}


def test_linger_of_rounding_errors_makes_no_progressless_loop() -> None:
    """Looking again at exactly the time that was returned is enough, whatever the floats are."""
    rig = Rig(linger_s=0.1)
    in_flight = [rig.one_in_flight()]
    now = 0.1 + 0.2
    for _ in range(100):
        rig.put(now=now)
        due = rig.accumulator.queues.next_deadline()
        assert due is not None
        assert rig.ready(due)
        drained = rig.drain(due)
        assert drained
        rig.acknowledge(*in_flight, now=due)
        in_flight = drained
        now = due * (1 + 1e-16)


def test_linger_is_no_rate_limit_when_batches_are_full() -> None:
    rig = Rig(batch_size=1000)
    rig.one_in_flight()
    for _ in range(40):
        rig.put(now=1.0, size=400)

    assert rig.ready(1.0)
    assert len([batch for _ in range(4) for batch in rig.drain(1.0)]) == 4


def test_linger_ends_at_once_for_a_flush_and_for_those_who_wait_for_memory() -> None:
    rig = Rig()
    rig.one_in_flight()
    rig.put(now=1.0)
    assert not rig.ready(1.0)

    rig.accumulator.begin_flush(lambda: None, 1.0)

    assert rig.ready(1.0)


def test_linger_of_a_record_behind_a_flush_is_short_as_long_as_the_flush_runs() -> None:
    rig = Rig()
    rig.one_in_flight()
    flush = rig.accumulator.begin_flush(lambda: None, 1.0)
    rig.put(now=1.0)
    assert rig.ready(1.0)
    rig.drain(1.0)
    rig.accumulator.end_flush(flush)
    rig.put(now=1.0)

    assert not rig.ready(1.0)


def test_linger_costs_a_timer_for_each_partition_at_most() -> None:
    rig = Rig(partitions=100, memory=10 * 2**20)
    for partition in range(100):
        rig.put(partition)
    rig.acknowledge(*rig.drain())
    for partition in range(100):
        rig.put(partition)
    in_flight = rig.drain()
    for round_ in range(50):
        for partition in range(100):
            rig.put(partition, now=round_ * 0.01, size=1)

    assert len(in_flight) == 100
    assert len(rig.accumulator.queues._timers) <= 100
    assert len(rig.accumulator.queues._expiries) <= 200
    assert rig.ready(LINGER + 1)
    assert len(rig.drain(LINGER + 1)) == 100


def test_linger_does_not_outlast_the_batch_before() -> None:
    """Nothing of the partition travels any more, so there is nothing to wait for."""
    rig = Rig()
    before = rig.one_in_flight()
    rig.put(now=1.0)
    assert not rig.ready(1.0)

    rig.acknowledge(before, now=1.5)

    assert rig.ready(1.5)


async def test_linger_leaves_a_steady_trickle_alone(broker: FakeBroker) -> None:
    async with opened(broker, linger_ms=30_000) as producer:
        async with asyncio.timeout(30):  # what one record would linger
            for _ in range(20):
                await producer.send("orders", b"value", partition=0)


async def test_linger_is_the_longest_that_a_record_waits_behind_one_in_flight(broker: FakeBroker) -> None:
    clock = Clock()
    async with audited(broker, linger_ms=20_000) as audit:
        await audit.send()
        with broker.hold("Produce"):
            await audit.enqueue()
            await until(lambda: broker.count("Produce") == 2)
            for _ in range(10):
                await audit.enqueue()
                clock.advance(1)
                await turns()
            assert audit.metric("produce-request-total") == 2
            clock.advance(10)
            await until(lambda: broker.count("Produce") == 3)

    assert len(broker.batches("orders", 0)) == 3


async def test_linger_is_skipped_by_flush_and_close(broker: FakeBroker) -> None:
    loop = asyncio.get_running_loop()
    async with opened(broker, linger_ms=60_000) as producer:
        await producer.send("orders", b"1", partition=0)
        with broker.hold("Produce"):
            await producer.enqueue("orders", b"2", partition=0)
            await until(lambda: broker.count("Produce") == 2)
            await producer.enqueue("orders", b"3", partition=0)
            began = loop.time()
            flushing = asyncio.ensure_future(producer.flush(40))
            await until(lambda: broker.count("Produce") == 3)
        await flushing
        assert loop.time() - began < 30

        with broker.hold("Produce"):
            await producer.enqueue("orders", b"4", partition=0)
            await until(lambda: broker.count("Produce") == 4)
            await producer.enqueue("orders", b"5", partition=0)
            began = loop.time()
            closing = asyncio.ensure_future(producer.close(40))
            await until(lambda: broker.count("Produce") == 5)
        await closing

    assert loop.time() - began < 30
    assert len(broker.records("orders")) == 5
