"""Trap 4: a flush that ends before the parts of a split batch do, and splits that never shrink (KAFKA-9312, KAFKA-19479)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from aioproducer import NotWritten, RecordMetadata, RecordTooLarge
from aioproducer.errors import Unknown, UnknownTimeout
from aioproducer.testing import FakeBroker, RequestContext, TopicConfig, TopicSpec
from tests.conftest import Clock, until
from tests.traps.judge import Audit, audited
from tests.traps.schedules import ANY, World, a_few_and_many, run_schedule

OPTIONS: dict[str, Any] = {"batch_size": 16_000, "request_timeout_ms": 20_000, "linger_ms": 60_000}


def limited(limit: int) -> FakeBroker:
    return FakeBroker(topics={"orders": TopicSpec(2, config=TopicConfig(max_message_bytes=limit))})


def limit_to(broker: FakeBroker, limit: int) -> None:
    for partition in broker.cluster.topics["orders"].partitions:
        partition.log.config = replace(partition.log.config, max_message_bytes=limit)


def limit_from_the_next_on(broker: FakeBroker, limit: int) -> None:
    """Take the next request as before, and lower the limit when the one behind it comes."""
    broker.control("Produce", lambda _: broker.control("Produce", lambda _: limit_to(broker, limit)))


async def fill(audit: Audit, count: int, size: int = 100) -> None:
    """One record travels, so that the others become a batch."""
    with audit.broker.hold("Produce"):
        for _ in range(count):
            await audit.enqueue(size=size)
        await until(lambda: audit.broker.count("Produce") > 0)


@pytest.mark.parametrize("limit", [9000, 3000, 1000, 200])
@pytest.mark.parametrize("codec", ["none", "zstd"])
async def test_a_split_goes_on_until_the_parts_fit_and_flush_waits_for_all_of_them(limit: int, codec: str) -> None:
    with limited(limit) as broker:
        async with audited(broker, **OPTIONS, compression_type=codec) as audit:
            await audit.send()
            await fill(audit, 120)
            await audit.producer.flush(30)
            assert all(each.delivery is not None and each.delivery.done() for each in audit.attempts)
            splits = audit.producer.metrics()["batch-split-total"]

        assert splits > 0
        assert audit.acknowledged == 121
        assert [record.sequence for record in broker.records()] == list(range(121))
        assert {record.producer_epoch for record in broker.records()} == {0}


async def test_a_split_of_what_compresses_well_goes_by_the_compressed_size() -> None:
    with limited(500) as broker:
        async with audited(broker, check=False, **OPTIONS, compression_type="zstd") as audit:
            deliveries = [await audit.producer.enqueue("orders", b"x" * 300 * (n % 3), partition=0) for n in range(200)]
            await audit.producer.flush(30)
            offsets = [(await delivery).offset for delivery in deliveries]

        assert offsets == list(range(200))


async def test_a_split_goes_on_when_the_limit_shrinks_meanwhile() -> None:
    limits = [8000, 4000, 3000, 2000, 1000, 500, 250]

    def shrink(context: RequestContext) -> None:
        if limits:
            limit_to(broker, limits.pop(0))

    with limited(100_000) as broker:
        async with audited(broker, **OPTIONS) as audit:
            await audit.send()
            broker.control("Produce", shrink, times=None)
            await fill(audit, 150)
            await audit.producer.flush(30)
            assert all(each.delivery is not None and each.delivery.done() for each in audit.attempts)

        assert audit.acknowledged == 151
        assert [record.sequence for record in broker.records()] == list(range(151))


async def test_a_split_leaves_the_one_record_that_is_too_large_alone() -> None:
    with limited(1000) as broker:
        async with audited(broker, **OPTIONS) as audit:
            await audit.send()
            with broker.hold("Produce"):
                for number in range(40):
                    await audit.enqueue(size=2000 if number == 17 else 100)
            await audit.producer.flush(30)
            await audit.send()

        (refused,) = [each for each in audit.attempts if not isinstance(each.outcome, RecordMetadata)]
        assert refused.number == 18
        assert isinstance(refused.outcome, NotWritten)
        assert isinstance(refused.outcome.__cause__, RecordTooLarge)
        assert refused.outcome.record is not None


async def test_a_split_never_happens_to_a_batch_that_expired() -> None:
    clock = Clock()
    options: dict[str, Any] = {"request_timeout_ms": 20_000, "linger_ms": 0, "delivery_timeout_ms": 23_000}
    with limited(1000) as broker:
        async with audited(broker, **OPTIONS | options, max_in_flight_requests_per_connection=1) as audit:
            await audit.send()
            first, second = broker.hold("Produce", times=1), broker.hold("Produce")
            await audit.enqueue()
            await until(lambda: first.waiting)
            for _ in range(30):
                await audit.enqueue()
            clock.advance(15)
            first.release()  # the batch of 30 leaves now, late in its life
            await until(lambda: broker.count("Produce") == 3)
            clock.advance(10)
            await audit.all_outcomes()
            assert broker.count("Produce") == 3
            second.release()
            await until(lambda: audit.free == audit.total)
            await audit.send()
            splits = audit.producer.metrics()["batch-split-total"]

        assert splits == 0
        assert broker.count("Produce") == 4
        assert all(isinstance(each.outcome, UnknownTimeout) for each in audit.attempts[2:-1])


async def test_a_split_of_the_first_batch_in_flight_is_not_overtaken() -> None:
    with limited(1000) as broker:
        async with audited(broker, **OPTIONS | {"batch_size": 1500, "linger_ms": 0}) as audit:
            await audit.send()
            for _ in range(200):
                await audit.enqueue(size=90)

        assert audit.acknowledged == 201


async def test_a_split_also_happens_to_a_producer_without_idempotence() -> None:
    with limited(1000) as broker:
        async with audited(broker, **OPTIONS, enable_idempotence=False) as audit:
            await audit.send()
            await fill(audit, 150)
            await audit.producer.flush(30)

        assert audit.acknowledged == 151


async def test_a_split_reaches_callbacks_waiters_and_forgotten_deliveries_alike() -> None:
    errors: list[object] = []
    called: list[object] = []
    with limited(1000) as broker:
        async with audited(broker, check=False, **OPTIONS, on_delivery_error=errors.append) as audit:
            await audit.send()
            with broker.hold("Produce"):
                for _ in range(20):
                    await audit.producer.enqueue("orders", b"x" * 100, partition=0, on_delivery=called.append)
                    delivery = await audit.producer.enqueue("orders", b"x" * 100, partition=0)
                    await audit.producer.enqueue("orders", b"x" * 2000, partition=0)  # unobserved
            await delivery
            await audit.producer.flush(30)
            await until(lambda: len(errors) == 20 and len(called) == 20)


#: What leaves open whether the batch was written.
DOUBTS: dict[str, Callable[[FakeBroker], object]] = {
    "broken connection": lambda broker: broker.drop_connection("Produce", when="before"),
    "no answer": lambda broker: broker.swallow("Produce", applied=False),
    "NOT_LEADER_OR_FOLLOWER": lambda broker: broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER"),
    "UNKNOWN_TOPIC_OR_PARTITION": lambda broker: broker.fail("Produce", "UNKNOWN_TOPIC_OR_PARTITION"),
    "REQUEST_TIMED_OUT": lambda broker: broker.fail("Produce", "REQUEST_TIMED_OUT"),
}


@pytest.mark.parametrize("doubt", DOUBTS)
async def test_a_split_happens_to_a_batch_whose_first_attempt_had_no_clear_answer(doubt: str) -> None:
    """The size is looked at first of all, so the same bytes were also refused the first time."""
    with limited(1000) as broker:
        async with audited(broker, **OPTIONS | {"request_timeout_ms": 200}) as audit:
            await audit.send()
            DOUBTS[doubt](broker)
            await fill(audit, 60)
            await audit.producer.flush(30)

        assert audit.acknowledged == 61
        assert [record.sequence for record in broker.records()] == list(range(61))


@pytest.mark.parametrize("doubt", DOUBTS)
async def test_a_split_after_an_unclear_answer_is_not_overtaken_by_what_is_in_flight_behind_it(doubt: str) -> None:
    with limited(1000) as broker:
        async with audited(
            broker, **OPTIONS | {"batch_size": 1500, "linger_ms": 0, "request_timeout_ms": 200}
        ) as audit:
            await audit.send()
            DOUBTS[doubt](broker)
            for number in range(100):
                await audit.enqueue(size=90 if number < 60 else 40)
            await audit.all_outcomes()

        assert audit.acknowledged == 101


@pytest.mark.parametrize("doubt", DOUBTS)
async def test_a_record_that_is_too_large_is_known_not_to_be_written_whatever_came_before(doubt: str) -> None:
    with limited(1000) as broker:
        async with audited(broker, **OPTIONS | {"request_timeout_ms": 200}) as audit:
            await audit.send()
            DOUBTS[doubt](broker)
            refused = await audit.send(size=2000)
            await audit.send()

        assert isinstance(refused.outcome, NotWritten)
        assert isinstance(refused.outcome.__cause__, RecordTooLarge)
        assert audit.acknowledged == 2


@pytest.mark.usefixtures("no_batch_fast_path")
async def test_the_parts_of_a_batch_that_was_written_before_the_limit_was_lowered_are_not_written_again() -> None:
    """Its answer was lost; the broker knows it as a whole only."""
    with limited(100_000) as broker:
        async with audited(broker, **OPTIONS) as audit:
            await audit.send()
            broker.drop_connection("Produce", when="after")
            limit_from_the_next_on(broker, 1000)
            await fill(audit, 60)
            await audit.producer.flush(30)
            assert audit.metric("batch-split-total") > 0
            await audit.send()

        assert audit.count(Unknown) == 60
        assert audit.acknowledged == 2


async def test_a_record_that_was_written_before_the_limit_was_lowered_is_not_reported_as_missing() -> None:
    with limited(100_000) as broker:
        async with audited(broker, **OPTIONS) as audit:
            await audit.send(size=3000)  # so much was let pass: that the limit is lower now says nothing of earlier
            broker.drop_connection("Produce", when="after")
            limit_from_the_next_on(broker, 1000)
            attempt = await audit.send(size=2000)

        assert isinstance(attempt.outcome, Unknown)


def shrink_limits(world: World) -> None:
    """A topic takes less, or more again."""
    limit = world.random.choice([200, 400, 1000, 3000, 100_000])
    for partition in world.broker.cluster.topics["orders"].partitions:
        partition.log.config = replace(partition.log.config, max_message_bytes=limit)


def leave_alone(world: World) -> None:
    """Nothing happens, for once."""


@a_few_and_many(begin=4000)
async def test_a_split_in_a_random_schedule_keeps_everything_exact(seed: int) -> None:
    await run_schedule(seed, [*ANY, leave_alone, *[shrink_limits] * 6], batch_size=4000, size_of_first=900)


@pytest.mark.parametrize("codec", ["none", "lz4"])
async def test_the_limit_of_a_topic_is_learned(codec: str) -> None:
    """Without that each batch of default size was refused and split again: hundreds of refusals for as many batches."""
    with limited(3000) as broker:
        async with audited(broker, **OPTIONS | {"batch_size": 16_384}, compression_type=codec) as audit:
            for _ in range(30):
                await fill(audit, 100)
                await audit.all_outcomes()
            splits = audit.metric("batch-split-total")

        assert audit.acknowledged == 3000
        assert splits < 25
