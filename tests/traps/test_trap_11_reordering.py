"""Trap 11: records that overtake each other, and retries that are not the same bytes."""

from __future__ import annotations

import asyncio
import struct
from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest

from aioproducer import TopicPartition
from aioproducer.protocol import decode_request_header
from aioproducer.protocol.messages import ProduceRequest
from aioproducer.testing import FakeBroker, ReceivedRequest, RequestContext
from tests.conftest import until
from tests.traps.judge import Audit, audited
from tests.traps.schedules import (
    ANY,
    a_few_and_many,
    begin_at,
    disconnect,
    lose_answer,
    lose_request,
    move_leader,
    refuse,
    run_schedule,
)

OPTIONS: dict[str, Any] = {"linger_ms": 0, "batch_size": 0, "request_timeout_ms": 20_000}


def without_correlation_id(request: ReceivedRequest) -> bytes:
    """A request's bytes, of which only the correlation id may differ in a repeat."""
    assert struct.unpack_from(">i", request.raw, 4) == (request.correlation_id,)
    assert decode_request_header(request.raw)[0].correlation_id == request.correlation_id
    return request.raw[:4] + request.raw[8:]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("loss", ["before", "after", "error", "garbage"])
@pytest.mark.usefixtures("no_batch_fast_path")
async def test_reordering_and_retries_leave_the_bytes_as_they_were(broker: FakeBroker, codec: str, loss: str) -> None:
    async with audited(broker, **OPTIONS | {"batch_size": 16_000}, compression_type=codec) as audit:
        await audit.send()
        match loss:
            case "error":
                broker.fail_after_apply("Produce", "REQUEST_TIMED_OUT", times=3)
            case "garbage":
                broker.corrupt_answer("garbage", times=3)
            case _:
                broker.drop_connection("Produce", when="before" if loss == "before" else "after", times=3)
        for _ in range(20):
            await audit.enqueue(size=200)
        await audit.all_outcomes()

    first, *repeats = broker.requests_of("Produce")[1:]
    assert len(repeats) >= 3
    assert {without_correlation_id(each) for each in repeats} == {without_correlation_id(first)}
    assert audit.acknowledged == 21


async def wait_numbered(audit: Audit, batches: int) -> None:
    """Wait until so many batches were sent; the requests in flight may be about other things."""
    engine = audit.producer._engine
    assert engine is not None
    await until(lambda: engine.sequences.in_flight(TopicPartition("orders", 0)) == batches)


FAULTS = ["NOT_ENOUGH_REPLICAS", "REQUEST_TIMED_OUT", "drop before", "drop after"]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("position", range(5))
@pytest.mark.parametrize("start", [2**31 - 3, *(pytest.param(each, marks=pytest.mark.slow) for each in (0, 2**31 - 1))])
async def test_reordering_does_not_follow_a_failure_at_any_position_in_flight_or_at_the_wrap(
    broker: FakeBroker, fault: str, position: int, start: int
) -> None:
    served = 0

    def fail_one(context: RequestContext) -> None:
        # The rules for a request are looked up before it is served: this arms those of the one behind it.
        nonlocal served
        if served == position:
            match fault:
                case "drop before" | "drop after":
                    broker.drop_connection("Produce", when="before" if fault == "drop before" else "after")
                case "REQUEST_TIMED_OUT":
                    broker.fail_after_apply("Produce", fault)
                case _:
                    broker.fail("Produce", fault)
        served += 1

    async with audited(broker, **OPTIONS) as audit:
        await audit.send()
        if start:
            begin_at(broker, audit.producer, start, TopicPartition("orders", 0))
        broker.control("Produce", fail_one, times=None)
        await audit.send()
        await until(lambda: not audit.metric("requests-in-flight"))  # all five places are for records now
        with broker.hold("Produce"):
            for in_flight in range(1, 6):
                await audit.enqueue()
                await wait_numbered(audit, in_flight)
        await audit.all_outcomes()
        for _ in range(5):
            await audit.enqueue()
        await audit.all_outcomes()
        epoch = audit.metric("producer-epoch")

    assert audit.acknowledged == 12
    assert epoch == 0
    sequences = [record.sequence for record in broker.records()][1:]
    assert sequences == [(max(start, 1) + number) % 2**31 for number in range(11)]


@pytest.mark.parametrize("fault", [*FAULTS, "move"])
async def test_reordering_does_not_happen_without_idempotence_either(fault: str) -> None:
    """One batch of a partition is in flight, as a broker cannot put retries into order without sequences."""
    with FakeBroker(2, topics={"orders": 2}) as broker:
        async with audited(broker, check=False, **OPTIONS, enable_idempotence=False) as audit:
            for number in range(40):
                if number % 8 == 3:
                    match fault:
                        case "drop before" | "drop after":
                            broker.drop_connection("Produce", when="before" if fault == "drop before" else "after")
                        case "move":
                            broker.move_leader("orders", 0, number % 2 + 1)
                        case _:
                            broker.fail("Produce", fault, topic="orders", partition=0)
                await audit.enqueue(partition=number % 2)
                await asyncio.sleep(0.001)
            await audit.all_outcomes()

        for partition in range(2):
            values = [record.value for record in broker.records("orders", partition)]
            assert list(dict.fromkeys(values)) == sorted(set(values), key=_number), "repeats stand beside each other"
            repeats = [value for one, value in pairwise(values) if one == value]
            assert len(values) - len(repeats) == len(set(values)) == 20


def _number(value: bytes | None) -> int:
    return int((value or b"").split(b"|")[2])


async def test_reordering_does_not_follow_from_gathering_sends(broker: FakeBroker) -> None:
    """Tasks that each send one record keep the order in which they were made, however much that is together."""
    async with audited(broker) as audit:
        await asyncio.gather(*(audit.enqueue(size=200) for _ in range(300)))  # nothing is known yet
        await asyncio.gather(*(audit.enqueue(size=20_000) for _ in range(40)))
        await audit.all_outcomes()
        await asyncio.gather(*(audit.enqueue(size=200) for _ in range(2000)))

    assert audit.acknowledged == 2340


async def test_reordering_does_not_follow_from_waiting_for_the_metadata(broker: FakeBroker) -> None:
    """Records that came while the topic was unknown are not overtaken by one that comes in the moment it is known."""
    tasks = []
    async with audited(broker) as audit:
        for _ in range(100):
            tasks.append(asyncio.ensure_future(audit.enqueue()))
            await asyncio.sleep(0)
            tasks.append(asyncio.ensure_future(audit.enqueue()))
            await asyncio.sleep(0.0002)
        await asyncio.gather(*tasks)

    assert audit.acknowledged == 200


@a_few_and_many(begin=11000)
async def test_reordering_in_a_random_schedule_never_happens(seed: int) -> None:
    audit = await run_schedule(
        seed,
        [lose_answer, lose_request, refuse, move_leader, disconnect],
        max_in_flight_requests_per_connection=5,
        delivery_timeout_ms=20_000,  # the number of a batch that was refused and given up is given to the next one
    )

    check_repeats(audit.broker)


@a_few_and_many(few=3, begin=11500)
async def test_reordering_at_the_wrap_in_a_random_schedule_never_happens(seed: int) -> None:
    await run_schedule(seed, [*ANY, lose_answer, disconnect], first_sequence=2**31 - 30)


def check_repeats(broker: FakeBroker) -> None:
    """Whatever was sent under the same numbers was the same bytes."""
    seen: dict[tuple[object, ...], set[bytes]] = defaultdict(set)
    for request in broker.requests_of("Produce"):
        assert isinstance(request.body, ProduceRequest)
        for topic in request.body.topic_data:
            for partition in topic.partition_data:
                batch = bytes(partition.records or b"")
                producer_id, epoch, sequence = struct.unpack_from(">qhi", batch, 43)
                seen[topic.topic_id, partition.index, producer_id, epoch, sequence].add(batch)
    assert all(len(variants) == 1 for variants in seen.values())
