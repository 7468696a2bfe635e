"""Trap 1: memory that a socket still reads is given to other records, which then land in the wrong topic (KAFKA-19012)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioproducer.errors import UnknownTimeout
from aioproducer.testing import FakeBroker
from tests.conftest import Clock, turns, until
from tests.traps.judge import audited
from tests.traps.schedules import a_few_and_many, disconnect, hold_reads, hold_requests, run_schedule, swallow_answer

#: The first attempt is refused and the second comes 10 s later; so the batch expires while its second request has time.
SLOW: dict[str, Any] = {
    "request_timeout_ms": 20_000,
    "delivery_timeout_ms": 20_000,
    "retry_backoff_ms": 10_000,
    "retry_backoff_max_ms": 10_000,
    "linger_ms": 0,
    "batch_size": 0,
    "send_buffer_bytes": 8192,
}


@pytest.mark.parametrize("codec", ["none", "lz4"])
async def test_a_buffer_in_a_socket_is_not_reused_when_its_batch_expires(codec: str) -> None:
    big, clock = 400_000, Clock()
    options = {"buffer_memory": 600_000, "max_request_size": 500_000, "compression_type": codec}
    with FakeBroker(topics={"orders": 1, "payments": 1}, receive_buffer=4096) as broker:
        async with audited(broker, **SLOW | options) as audit:
            await audit.send("payments")
            broker.fail("Produce", "NOT_ENOUGH_REPLICAS")
            first = await audit.enqueue(size=big)
            await until(lambda: audit.metric("record-retry-total") == 1)
            reads = broker.hold_reads(1)
            clock.advance(12.5)  # the pause, and its jitter
            await until(lambda: audit.metric("produce-request-total") == 3)
            clock.advance(8)
            await audit.outcome(first)

            assert isinstance(first.outcome, UnknownTimeout)
            assert audit.total - audit.free > big, "its memory is in use as long as the socket may read it"

            others = [asyncio.ensure_future(audit.enqueue("payments", size=100_000)) for _ in range(8)]
            await turns()
            assert not all(other.done() for other in others), "there is no room for all of them"
            reads.release()
            await asyncio.gather(*others)

    assert [record.topic for record in broker.records() if len(record.value or b"") == big] == ["orders"]
    assert audit.acknowledged == len(broker.records()) - 1


async def test_a_buffer_in_a_socket_is_given_back_when_the_connection_ends() -> None:
    clock = Clock()
    with FakeBroker(topics={"orders": 1}, receive_buffer=4096) as broker:
        async with audited(broker, **SLOW | {"buffer_memory": 600_000, "max_request_size": 500_000}) as audit:
            await audit.send()
            reads = broker.hold_reads(1)
            lost = await audit.enqueue(size=400_000)
            await until(lambda: audit.metric("produce-request-total") == 2)
            clock.advance(21)
            await until(lambda: audit.free == audit.total)
            reads.release()
            await audit.send()

    assert isinstance(lost.outcome, UnknownTimeout)


async def test_a_buffer_in_a_socket_is_not_touched_by_a_new_epoch(broker: FakeBroker) -> None:
    """A batch gets new sequence numbers while the bytes of its first attempt have not all left."""
    async with audited(broker, **SLOW | {"request_timeout_ms": 200, "retry_backoff_ms": 50}) as audit:
        await audit.send()
        broker.swallow("Produce", applied=False)
        for _ in range(5):
            await audit.enqueue(size=20_000)
        await audit.all_outcomes()

    assert audit.acknowledged == 6


@a_few_and_many(begin=1000)
async def test_a_buffer_in_a_random_schedule_is_never_reused(seed: int) -> None:
    await run_schedule(
        seed,
        [hold_reads, hold_requests, swallow_answer, disconnect],
        buffer_memory=20_000,
        batch_size=500,
        send_buffer_bytes=4096,
        delivery_timeout_ms=90,
        request_timeout_ms=80,
    )
