"""Failures that nobody looks at reach the log, and do not drown it."""

from __future__ import annotations

import asyncio
import gc
import logging

import pytest

from aioproducer import Producer, ProducerRecord
from aioproducer.delivery import BatchFailure
from aioproducer.engine.foreign import ForeignTasks
from aioproducer.engine.unobserved import UnobservedFailures
from aioproducer.errors import BrokerError, DeliveryError, UnknownTimeout
from aioproducer.testing import FakeBroker
from aioproducer.types import TopicPartition
from tests.conftest import Clock, opened, turns, until


@pytest.fixture(autouse=True)
def collected() -> None:
    """Let what earlier tests dropped report now, so that none of its lines lands among those of a test here."""
    gc.collect()


def failure(topic: str = "orders", *, possibly_written: bool = False) -> BatchFailure:
    records = [ProducerRecord(topic, b"value")] * 10
    return BatchFailure(TopicPartition(topic, 0), BrokerError(1, "X", "why"), possibly_written, False, lambda: records)


async def test_an_outage_is_logged_at_once_and_then_summed_up(caplog: pytest.LogCaptureFixture) -> None:
    failures = UnobservedFailures(asyncio.get_running_loop(), None, ForeignTasks(asyncio.get_running_loop()))
    for _ in range(1000):
        failures.unobserved(failure(), range(10))
    failures.unobserved(failure(possibly_written=True), range(3))
    failures.unobserved(failure("other"), range(2))
    await asyncio.sleep(0)
    at_once = list(caplog.messages)

    failures.close()

    assert [line.split(" that")[0] for line in at_once] == [
        "10 record(s) for topic 'orders'",
        "3 record(s) for topic 'orders'",
        "2 record(s) for topic 'other'",
    ]
    assert [line.split(" that")[0] for line in caplog.messages[3:]] == ["9990 record(s) for topic 'orders'"]
    failures.unobserved(failure(), range(1))
    await asyncio.sleep(0)
    assert caplog.messages[-1].startswith("1 record(s)"), "after the end nothing is held back"


async def test_a_callback_is_told_every_record_and_may_raise(caplog: pytest.LogCaptureFixture) -> None:
    told: list[DeliveryError] = []

    def callback(error: DeliveryError) -> None:
        told.append(error)
        raise ValueError("never mind")

    failures = UnobservedFailures(asyncio.get_running_loop(), callback, ForeignTasks(asyncio.get_running_loop()))
    failures.unobserved(failure(), range(4))
    await asyncio.sleep(0)

    assert len(told) == 4
    assert caplog.text.count("on_delivery_error raised") == 4


def test_without_an_event_loop_there_is_still_the_log(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.new_event_loop()
    failures = UnobservedFailures(loop, None, ForeignTasks(loop))
    loop.close()

    failures.unobserved(failure(), range(5))

    assert "5 record(s)" in caplog.text


async def test_records_that_nobody_waits_for_are_logged_when_they_fail(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", times=None)
    async with opened(broker) as producer:
        for _ in range(5):
            await producer.enqueue("orders", b"value", partition=0)
        await producer.flush(30)
        await until(lambda: "TOPIC_AUTHORIZATION_FAILED" in caplog.text)

    assert "are not in the log" in caplog.text


async def test_records_that_are_acknowledged_after_their_time_was_over_are_logged_and_summed_up(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    options = {"request_timeout_ms": 30_000, "delivery_timeout_ms": 33_000, "linger_ms": 0}
    async with opened(broker, **options, max_in_flight_requests_per_connection=1) as producer:
        await producer.send("orders", b"first", partition=0)
        before, late = broker.hold("Produce", times=1), broker.hold("Produce")
        held = await producer.enqueue("orders", b"held", partition=0)
        await until(lambda: before.waiting)
        delivery = await producer.enqueue("orders", b"late", partition=1)
        clock.advance(20)
        before.release()
        await held
        await until(lambda: broker.count("Produce") == 3)
        clock.advance(15)
        with pytest.raises(UnknownTimeout):  # it left late in its life, and its request has time left
            await delivery
        late.release()
        await until(lambda: "acknowledged later" in caplog.text)

    assert "1 record(s) for topic 'orders' that were given up as Unknown were acknowledged later" in caplog.text


async def test_late_successes_are_summed_up(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    failures = UnobservedFailures(loop, None, ForeignTasks(loop))
    for partition in range(500):
        failures.acknowledged_late(TopicPartition("orders", partition), 2)

    failures.close()

    assert [line.split(" that")[0] for line in caplog.messages] == [
        "2 record(s) for topic 'orders'",
        "998 record(s) for topic 'orders'",
    ]


async def test_an_interceptor_hears_of_a_send_that_was_cancelled_while_it_waited() -> None:
    heard: list[BaseException | None] = []

    class Listening:
        def on_acknowledgement(self, metadata: object, error: BaseException | None, headers: object) -> None:
            heard.append(error)

    async with Producer("127.0.0.1:1", interceptors=[Listening()], close_timeout_ms=100) as producer:
        task = asyncio.create_task(producer.send("orders", b"value"))
        await turns()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    assert [type(error) for error in heard] == [asyncio.CancelledError]
