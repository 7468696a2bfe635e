"""Trap 2: a record whose fate is unknown is treated as not produced, and its sequence is given to another one."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from aioproducer import NotWritten, RecordMetadata
from aioproducer.errors import Unknown, UnknownTimeout
from aioproducer.testing import FakeBroker, RequestContext
from tests.conftest import Clock, until
from tests.traps.judge import audited
from tests.traps.schedules import (
    a_few_and_many,
    corrupt,
    disconnect,
    hold_requests,
    lose_answer,
    lose_request,
    omit_topic,
    refuse,
    refuse_after_write,
    run_schedule,
    swallow_answer,
    swallow_request,
)

#: A batch expires before its first request runs out of time and could be repeated, when the clock is put forward.
SHORT: dict[str, Any] = {"request_timeout_ms": 10_000, "delivery_timeout_ms": 10_000, "linger_ms": 0, "batch_size": 0}


@pytest.mark.parametrize("written", [True, False])
async def test_an_expired_record_of_unknown_fate_costs_no_later_one(broker: FakeBroker, written: bool) -> None:
    clock = Clock()
    async with audited(broker, **SHORT) as audit:
        await audit.send()
        broker.swallow("Produce", applied=written)
        lost = await audit.enqueue()
        await until(lambda: not broker.cluster.faults.pending)
        clock.advance(11)
        await audit.outcome(lost)
        later = [await audit.send() for _ in range(3)]

    assert isinstance(lost.outcome, UnknownTimeout)
    assert audit.acknowledged == 4
    assert len(broker.records("orders", 0)) == (5 if written else 4)
    assert not any(isinstance(each.outcome, NotWritten) for each in later)


@pytest.mark.parametrize("written", [True, False])
@pytest.mark.parametrize("lost_at", range(5))
async def test_an_expired_record_of_unknown_fate_at_any_place_in_flight_costs_no_later_one(
    broker: FakeBroker, written: bool, lost_at: int
) -> None:
    served = itertools.count()  # not broker.count(), which may have read the next one when this one is served

    def lose_the_next_but(context: RequestContext) -> None:
        if next(served) == lost_at:
            broker.swallow("Produce", applied=written)

    clock = Clock()
    async with audited(broker, **SHORT | {"delivery_timeout_ms": 15_000}) as audit:
        broker.control("Produce", lose_the_next_but, times=None)
        await audit.send()
        for _ in range(5):
            await audit.enqueue()
        await until(lambda: broker.count("Produce") >= lost_at + 2)
        clock.advance(11)
        await audit.all_outcomes()
        later = [await audit.send() for _ in range(3)]

    assert isinstance(later[-1].outcome, RecordMetadata)


async def test_an_unknown_fate_during_a_cancelled_send_costs_no_later_one(broker: FakeBroker) -> None:
    clock = Clock()
    async with audited(broker, **SHORT) as audit:
        await audit.send()
        broker.swallow("Produce")
        cancelled = asyncio.ensure_future(audit.send())
        await until(lambda: not broker.cluster.faults.pending)
        cancelled.cancel()
        for _ in range(5):
            await audit.enqueue()
        await until(lambda: len(broker.records("orders", 0)) >= 6)  # or the end of their connection may overtake them
        clock.advance(11)

    assert len(broker.records("orders", 0)) >= 6


@pytest.mark.parametrize(
    "error", ["REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "NOT_LEADER_OR_FOLLOWER", "UNKNOWN_SERVER_ERROR"]
)
async def test_an_unknown_outcome_behind_an_error_that_follows_the_write_is_detected(
    broker: FakeBroker, error: str
) -> None:
    async with audited(broker) as audit:
        broker.fail_after_apply("Produce", error)
        first = await audit.send()
        await audit.send()

    if error == "UNKNOWN_SERVER_ERROR":  # not retriable, and it says nothing
        assert isinstance(first.outcome, Unknown)
    else:
        assert audit.acknowledged == 2


async def test_an_unknown_outcome_is_not_reported_as_not_written_when_retries_are_exhausted(broker: FakeBroker) -> None:
    async with audited(broker, retries=1, request_timeout_ms=2000) as audit:
        broker.drop_connection("Produce", when="after")
        broker.drop_connection("Produce", when="before")
        lost = await audit.send()
        await audit.send()

    assert isinstance(lost.outcome, Unknown)
    assert len(broker.records("orders", 0)) == 2


async def test_an_unknown_fate_stays_unknown_through_certain_refusals(broker: FakeBroker) -> None:
    clock = Clock()
    async with audited(broker, **SHORT) as audit:
        broker.drop_connection("Produce", when="after")
        broker.fail("Produce", "NOT_ENOUGH_REPLICAS", times=None)
        lost = await audit.enqueue()
        await until(lambda: broker.count("Produce") >= 4)
        clock.advance(11)
        await audit.outcome(lost)
        broker.clear_faults()
        await audit.send()

    assert isinstance(lost.outcome, Unknown)


@pytest.mark.parametrize("partition", [None, 0])
async def test_a_sequence_goes_on_where_it_was_after_a_gap_in_the_metadata(
    broker: FakeBroker, partition: int | None
) -> None:
    async with audited(broker, metadata_max_age_ms=5) as audit:
        for _ in range(3):
            await audit.send()
        broker.omit_from_metadata("orders", partition=partition, times=3)
        asked = broker.count("Metadata")
        while broker.count("Metadata") < asked + 5:
            await audit.send()

    records = broker.records("orders", 0)
    assert [record.sequence for record in records] == list(range(len(records)))
    assert {record.producer_epoch for record in records} == {0}
    assert audit.acknowledged == len(records)


@a_few_and_many(begin=2000)
async def test_an_unknown_fate_in_a_random_schedule_is_never_treated_as_known(seed: int) -> None:
    faults = [
        lose_answer,
        lose_request,
        swallow_answer,
        swallow_request,
        refuse_after_write,
        refuse,
        corrupt,
        disconnect,
        omit_topic,
        hold_requests,
    ]
    await run_schedule(seed, faults)
