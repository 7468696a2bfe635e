"""Trap 6: a background task is cancelled or crashes, and it is never reported."""

from __future__ import annotations

import asyncio
import gc
import logging
from random import Random
from typing import Any

import pytest

from aioproducer import (
    Delivery,
    HealthStatus,
    InvalidRecord,
    Producer,
    ProducerDied,
    ProducerRecord,
    SerializationError,
)
from aioproducer.net.addresses import Resolver
from aioproducer.testing import FakeBroker
from tests.conftest import QUICK, turns, until
from tests.traps.judge import Audit, audited, complaints
from tests.traps.schedules import a_few_and_many

OPTIONS: dict[str, Any] = {**QUICK, "request_timeout_ms": 500, "delivery_timeout_ms": 5000, "close_timeout_ms": 1000}


def internal_tasks(before: set[asyncio.Task[Any]]) -> list[asyncio.Task[Any]]:
    """The producer's own tasks, in the order of their names."""
    own = asyncio.all_tasks() - before
    return sorted((task for task in own if task is not asyncio.current_task()), key=lambda task: task.get_name())


async def check_dead_or_well(producer: Producer, audit: Audit) -> None:
    """Every accepted record has its outcome soon, and the next send either works or says that the producer died."""
    await audit.all_outcomes()
    try:
        await producer.send("orders", b"is anybody there?", partition=2, timeout=30)
    except ProducerDied:
        assert producer.health().status is HealthStatus.FAILED
    assert producer.health().alive == (producer.health().status is not HealthStatus.FAILED)


NAMES = [
    "aioproducer",
    "aioproducer client",
    "aioproducer sender",
    "aioproducer tidy",
    "aioproducer metadata",
    "aioproducer new topics",
]


async def test_a_bug_while_connecting_is_reported_at_once_although_others_want_to_connect_as_well(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = 0

    async def resolve(*_: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ZeroDivisionError
        await asyncio.sleep(60)  # the next attempt, which would hold up the end of the first one
        return []

    monkeypatch.setattr(
        Resolver, "resolve", resolve
    )  # patched: the bug that must be reported cannot be provoked otherwise
    with caplog.at_level(logging.CRITICAL, "aioproducer"):
        producer = await Producer(broker.bootstrap_servers, **OPTIONS).start()
        with pytest.raises(ProducerDied, match="ZeroDivisionError"):
            await producer.send("orders", b"value", timeout=5)
        await producer.close()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("busy", [True, False])
async def test_a_dead_task_of_any_kind_is_reported_to_everybody_who_waits(
    broker: FakeBroker, name: str, busy: bool, caplog: pytest.LogCaptureFixture
) -> None:
    before = asyncio.all_tasks()
    producer = await Producer(broker.bootstrap_servers, **OPTIONS).start()
    audit = Audit(broker, producer)
    await audit.send()
    hold = broker.hold("Produce")
    if busy:
        for _ in range(10):
            await audit.enqueue()
        await until(lambda: hold.waiting)
    waiting = asyncio.ensure_future(producer.send("no-metadata-ever", b"value", timeout=30)) if busy else None
    await turns()
    with caplog.at_level(logging.CRITICAL, "aioproducer"):
        next(task for task in internal_tasks(before) if task.get_name() == name).cancel()
        await until(lambda: producer.health().status is HealthStatus.FAILED)
        hold.release()
        if waiting is not None:
            with pytest.raises(ProducerDied):
                await asyncio.wait_for(waiting, 20)
        await check_dead_or_well(producer, audit)
        with pytest.raises(ProducerDied):
            await producer.flush(1)
        await producer.close(timeout=1)

    assert asyncio.all_tasks() == before
    assert complaints(audit.attempts, broker.records()) == []


async def test_a_dead_task_that_never_began_is_also_reported(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    before = asyncio.all_tasks()
    producer = await Producer(broker.bootstrap_servers, **OPTIONS).start()
    (task,) = internal_tasks(before)
    task.cancel()
    with pytest.raises(ProducerDied):
        await producer.send("orders", b"value", timeout=30)
    await producer.close(timeout=1)

    assert asyncio.all_tasks() == before


async def test_a_dead_producer_can_be_closed_and_started_again(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    before = asyncio.all_tasks()
    producer = await Producer(broker.bootstrap_servers, **OPTIONS).start()
    await producer.send("orders", b"one", partition=0)
    next(task for task in internal_tasks(before) if task.get_name() == "aioproducer sender").cancel()
    await until(lambda: producer.health().status is HealthStatus.FAILED)
    await producer.close()

    async with producer:
        assert (await producer.send("orders", b"two", partition=0)).offset == 1


@pytest.mark.parametrize("api", ["ApiVersions", "Metadata", "InitProducerId"])
async def test_a_dead_helper_task_is_harmless_or_reported(
    broker: FakeBroker, api: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The short-lived tasks: one that connects, one that asks for the producer id."""
    before = asyncio.all_tasks()
    with broker.hold(api) as held:
        producer = await Producer(broker.bootstrap_servers, **OPTIONS).start()
        audit = Audit(broker, producer)
        sending = asyncio.ensure_future(audit.send())
        await until(lambda: held.waiting)
        for task in internal_tasks(before):
            if task is not sending and task.get_name() not in NAMES:
                task.cancel()
        await turns()
    await asyncio.wait_for(sending, 30)
    await check_dead_or_well(producer, audit)
    await producer.close(timeout=1)

    assert asyncio.all_tasks() == before


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited", "ignore::pytest.PytestUnraisableExceptionWarning")
@a_few_and_many(few=6, begin=6000)
async def test_a_dead_task_at_a_random_moment_leaves_no_caller_waiting(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    random = Random(seed)
    before = asyncio.all_tasks()
    with FakeBroker(2, topics={"orders": 3}) as broker:
        producer = await Producer(
            broker.bootstrap_servers,
            **OPTIONS,
            compression_type="zstd",
            compression_threshold_bytes=100,
            batch_size=1000,
            buffer_memory=20_000,
            max_request_size=10_000,
            linger_ms=random.choice([0, 5]),
        ).start()
        audit = Audit(broker, producer)
        fatal = random.randrange(60)
        own = asyncio.current_task()
        for step in range(60):
            if step == fatal:
                tasks = internal_tasks(before)
                if tasks:
                    random.choice(tasks).cancel()
            await audit.enqueue(partition=random.randrange(3), size=random.choice([40, 500]), timeout=1)
            for _ in range(random.randint(0, 3)):
                await asyncio.sleep(0)
            if random.random() < 0.1:
                await asyncio.sleep(0.003)
        assert own is asyncio.current_task()
        await check_dead_or_well(producer, audit)
        await producer.close(timeout=1)
        await asyncio.sleep(0)

        assert asyncio.all_tasks() == before
        wrong = complaints(audit.attempts, [each for each in broker.records() if b"anybody" not in (each.value or b"")])
        assert not wrong, wrong
    del producer, audit
    gc.collect()  # here, where the warning about a task that was cancelled before it began is ignored


class Cruel:
    """Raises wherever the producer lets foreign code run, once in a while."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.calls = 0

    def maybe_raise(self, where: str) -> None:
        if where == self.where:
            self.calls += 1
            if self.calls % 3 == 2:
                raise ZeroDivisionError(f"from {where}")

    def serialize(self, value: object) -> bytes:
        self.maybe_raise("serializer")
        return str(value).encode()

    async def serialize_later(self, value: object) -> bytes:
        await asyncio.sleep(0)
        self.maybe_raise("async serializer")
        return str(value).encode()

    def partition(self, topic: str, key: object, value: object, partitions: object) -> int | None:
        self.maybe_raise("partitioner")
        return None

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.maybe_raise("on_send")
        return record

    async def on_acknowledgement(self, metadata: object, error: object, headers: object) -> None:
        self.maybe_raise("on_acknowledgement")
        await asyncio.sleep(0)
        self.maybe_raise("on_acknowledgement, later")

    def close(self) -> None:
        self.maybe_raise("close")

    def delivered(self, delivery: Delivery) -> None:
        self.maybe_raise("callback")

    def failed(self, error: object) -> None:
        self.maybe_raise("on_delivery_error")


PLACES = [
    "serializer",
    "async serializer",
    "partitioner",
    "on_send",
    "on_acknowledgement",
    "on_acknowledgement, later",
    "close",
    "callback",
    "on_delivery_error",
]


@pytest.mark.parametrize("where", PLACES)
async def test_a_dead_task_is_never_the_price_of_foreign_code_that_raises(
    broker: FakeBroker, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = asyncio.all_tasks()
    cruel = Cruel(where)
    options: dict[str, Any] = {
        **OPTIONS,
        "value_serializer": cruel.serialize_later if where == "async serializer" else cruel.serialize,
        "partitioner": cruel.partition,
        "interceptors": [cruel],
        "on_delivery_error": cruel.failed,
    }
    refused = 0
    async with Producer(broker.bootstrap_servers, **options) as producer:
        for number in range(12):
            if where == "on_delivery_error":
                broker.fail("Produce", "INVALID_RECORD")
                await producer.enqueue("orders", number)
                await producer.flush(30)
                continue
            try:
                delivery = await producer.enqueue("orders", number, on_delivery=cruel.delivered)
                await delivery
            except (SerializationError, InvalidRecord):
                refused += 1
        await until(lambda: cruel.calls >= 12 or where in ("close", "on_acknowledgement, later"))
        assert producer.health().status is HealthStatus.READY
        free, total = (producer.metrics()[f"buffer-{what}-bytes"] for what in ("available", "total"))

    assert free == total
    assert asyncio.all_tasks() == before
    assert refused == (4 if where in ("serializer", "async serializer", "partitioner") else 0)
    assert len(broker.records("orders")) == (0 if where == "on_delivery_error" else 12 - refused)


async def test_a_dead_loop_is_not_awaited_by_the_report_of_failures(caplog: pytest.LogCaptureFixture) -> None:
    """An unobserved failure is logged even by a delivery that outlives everything."""
    with FakeBroker(topics={"orders": 1}) as broker:
        async with audited(broker, check=False) as audit:
            broker.fail("Produce", "INVALID_RECORD")
            await audit.producer.enqueue("orders", b"value")
            await audit.producer.flush(30)
            await until(lambda: "were not awaited" in caplog.text)
