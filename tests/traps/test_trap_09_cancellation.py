"""Trap 9: a cancelled send leaves half a record, a lost byte of memory, or a future that is set twice."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from aioproducer import Delivery, Producer, ProducerRecord
from aioproducer.errors import Unknown
from aioproducer.testing import FakeBroker
from aioproducer.testing.broker.faults import Hold
from tests.conftest import QUICK, opened, turns, until
from tests.traps.judge import audited, payload
from tests.traps.steps import Steps, at_every_step

SMALL: dict[str, Any] = {"buffer_memory": 3000, "batch_size": 1000, "max_request_size": 2500, "linger_ms": 0}


async def slowly(value: object) -> bytes:
    """A serializer with its own suspension point."""
    await asyncio.sleep(0)
    assert isinstance(value, bytes)
    return value


class Slow:
    """An interceptor that suspends."""

    async def on_send(self, record: ProducerRecord) -> ProducerRecord:
        await asyncio.sleep(0)
        return record


def value_of(record: Any) -> bytes:
    return bytes(record.value or b"")


@pytest.mark.parametrize("state", ["cold", "known", "full"])
async def test_a_cancelled_enqueue_buffers_all_or_nothing_at_every_step(state: str) -> None:
    async def run(at: int) -> bool:
        with FakeBroker(topics={"orders": 1}) as broker:
            options = {**SMALL, "value_serializer": slowly, "interceptors": [Slow()]}
            async with opened(broker, **options) as producer:
                if state != "cold":
                    await producer.partitions_for("orders")
                hold = broker.hold("Produce")
                if state == "full":
                    await producer.enqueue("orders", b"x" * 2000, partition=0)
                    releasing = asyncio.ensure_future(_release_when_a_caller_waits(producer, hold))
                else:
                    hold.release()
                steps = Steps(producer.enqueue("orders", b"y" * 2000, partition=0), at)
                outcome: object = None
                try:
                    outcome = await steps
                except asyncio.CancelledError:
                    assert steps.reached
                if state == "full":
                    releasing.cancel()
                    hold.release()
                if isinstance(outcome, Delivery):
                    await outcome
                await producer.flush(30)
                assert producer.health().waiting_senders == 0
                metrics = producer.metrics()
                assert metrics["buffer-available-bytes"] == metrics["buffer-total-bytes"]
                await producer.send("orders", b"z", partition=0)
            there = [value_of(record)[:1] for record in broker.records("orders")]
            assert there.count(b"y") == (1 if isinstance(outcome, Delivery) else 0)
            return steps.reached

    assert await at_every_step(run) >= {"cold": 3, "known": 2, "full": 3}[state]


async def _release_when_a_caller_waits(producer: Producer, hold: Hold) -> None:
    await until(lambda: producer.health().waiting_senders)
    hold.release()


@pytest.mark.parametrize("timeout", [None, 5.0])
async def test_a_cancelled_send_delivers_what_it_had_buffered_at_every_step(timeout: float | None) -> None:
    async def run(at: int) -> bool:
        errors: list[object] = []
        with FakeBroker(topics={"orders": 1}) as broker:
            async with opened(broker, on_delivery_error=errors.append) as producer:
                steps = Steps(producer.send("orders", b"y", partition=0, timeout=timeout), at)
                with suppress(asyncio.CancelledError):
                    await steps
                accepted = producer.metrics()["records-pending"]
                await producer.flush(30)
                acknowledged = (await producer.send("orders", b"z", partition=0)).offset
            assert len(broker.records("orders")) == acknowledged + 1 >= accepted
            assert errors == []
            return steps.reached

    assert await at_every_step(run) >= 2


async def test_a_cancelled_life_leaves_no_task_and_no_socket_at_every_step() -> None:
    before = asyncio.all_tasks()

    async def life(producer: Producer) -> None:
        async with producer:
            for number in range(3):
                await producer.send("orders", str(number))
            await producer.flush()
            await producer.send_many("orders", [b"a", b"b"])

    async def run(at: int) -> bool:
        with FakeBroker(topics={"orders": 1}) as broker:
            producer = Producer(broker.bootstrap_servers, **QUICK)
            steps = Steps(life(producer), at)
            with suppress(asyncio.CancelledError):
                await steps
            await producer.close()
            await asyncio.sleep(0)
            assert asyncio.all_tasks() == before
            await until(lambda: not broker.connections())
            return steps.reached

    assert await at_every_step(run) >= 5


async def test_a_cancelled_flush_leaves_the_records_alone(broker: FakeBroker) -> None:
    async with audited(broker, linger_ms=60_000) as audit:
        await audit.send()
        with broker.hold("Produce"):
            await audit.enqueue()
            flushing = asyncio.ensure_future(audit.producer.flush())
            await turns()
            flushing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await flushing
        await audit.all_outcomes()

    assert audit.acknowledged == 2


async def test_a_cancelled_wait_for_a_delivery_cancels_nothing_else(broker: FakeBroker) -> None:
    async with audited(broker) as audit:
        with broker.hold("Produce"):
            attempt = await audit.enqueue()
            assert attempt.delivery is not None
            waiters = [asyncio.ensure_future(_wait(attempt.delivery)) for _ in range(10)]
            await turns()
            for waiter in waiters[::2]:
                waiter.cancel()
        outcomes = await asyncio.gather(*waiters, return_exceptions=True)

    assert [isinstance(outcome, asyncio.CancelledError) for outcome in outcomes] == [True, False] * 5


async def _wait(delivery: Delivery) -> object:
    return await delivery


@pytest.mark.parametrize("size", [40, pytest.param(400, marks=pytest.mark.slow)])
async def test_a_cancelled_send_in_a_storm_of_timeouts_is_delivered_once_or_not_at_all(
    broker: FakeBroker, size: int
) -> None:
    """10,000 sends under wait_for, of which many run out of time: while waiting for room, and while on their way."""
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    errors: list[object] = []
    late = 0
    async with audited(
        broker, buffer_memory=100_000, max_request_size=10_000, on_delivery_error=errors.append
    ) as audit:
        await audit.producer.partitions_for("orders")

        async def one(number: int) -> None:
            nonlocal late
            attempt = audit.attempt("orders", number % 3)
            value = payload(*attempt.name, size)
            try:
                # None would continue in a separate task.
                timeout = 0.002 * (number % 50) if number % 50 < 49 else 3600
                attempt.outcome = await asyncio.wait_for(
                    audit.producer.send("orders", value, partition=number % 3), timeout
                )
            except TimeoutError:
                late += 1
                attempt.outcome = Unknown("the caller no longer waited for it")

        for begin in range(0, 10_000, 1000):
            await asyncio.gather(*(one(number) for number in range(begin, begin + 1000)))
        await audit.producer.flush(30)

    assert 0 < late < 10_000
    assert complaints == []
    assert errors == []
