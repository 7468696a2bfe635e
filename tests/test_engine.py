"""The life of a producer's parts: nothing that happens to one of them is silent, and the end always comes."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress

import pytest

from aioproducer import (
    CloseReport,
    Delivery,
    DeliveryError,
    HealthStatus,
    InvalidRecord,
    NotWritten,
    NotWrittenTimeout,
    Producer,
    ProducerClosed,
    ProducerDied,
)
from aioproducer.testing import FakeBroker
from tests.conftest import Clock, opened, turns, until


def tasks_named(*names: str) -> list[asyncio.Task[object]]:
    return [task for task in asyncio.all_tasks() if any(name in task.get_name() for name in names)]


async def test_a_helper_of_the_sender_that_is_cancelled_ends_the_producer_and_not_silently(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        with broker.hold("InitProducerId"):
            delivery = await producer.enqueue("orders", b"value")
            await until(lambda: tasks_named("_obtain_producer_id"))
            for task in tasks_named("_obtain_producer_id"):
                task.cancel()

            async with asyncio.timeout(20):
                with pytest.raises(DeliveryError) as caught:
                    await delivery
        assert isinstance(caught.value.__cause__, ProducerDied)
        with pytest.raises(ProducerDied):
            await producer.send("orders", b"value")
        assert producer.health().status is HealthStatus.FAILED


@pytest.mark.parametrize(
    "victim", ["aioproducer sender", "aioproducer client", "aioproducer metadata", "aioproducer tidy"]
)
async def test_an_internal_task_that_is_cancelled_ends_the_producer_and_not_silently(
    broker: FakeBroker, victim: str
) -> None:
    async with opened(broker) as producer:
        await producer.send("orders", b"value")
        with broker.hold("Produce"):
            delivery = await producer.enqueue("orders", b"value")
            (task,) = tasks_named(victim)
            task.cancel()

            async with asyncio.timeout(20):
                with pytest.raises(DeliveryError):
                    await delivery
        with pytest.raises(ProducerDied):
            await producer.send("orders", b"value")


async def test_closing_in_the_very_moment_in_which_a_wait_runs_out_of_time_is_no_trouble() -> None:
    clock = Clock()
    producer = Producer("127.0.0.1:1", reconnect_backoff_ms=10_000, reconnect_backoff_max_ms=10_000)
    await producer.start()
    waiting = asyncio.create_task(producer.enqueue("orders", b"value", timeout=50))
    await turns()
    engine = producer._engine
    assert engine is not None
    raised: list[Exception] = []

    def close_intake() -> None:
        try:
            engine.close_intake()
        except Exception as error:
            raised.append(error)

    engine.loop.call_later(50, close_intake)  # behind the timeout in the same turn of the event loop
    clock.advance(51)  # both are due when the loop looks again

    with pytest.raises((ProducerClosed, NotWrittenTimeout)):
        await waiting
    assert raised == []
    await producer.close(timeout=0)


async def test_an_interceptor_whose_own_work_was_cancelled_does_not_end_the_producer(broker: FakeBroker) -> None:
    began = asyncio.Event()

    class Exporting:
        async def on_acknowledgement(self, metadata: object, error: object, headers: object) -> None:
            lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            lost.cancel()
            began.set()
            await lost

    async with opened(broker, interceptors=[Exporting()]) as producer:
        await producer.send("orders", b"one")
        await began.wait()
        await turns()

        assert (await producer.send("orders", b"two", partition=0)).partition == 0


async def test_closing_waits_for_the_interceptors_of_the_last_records(broker: FakeBroker) -> None:
    class Exporting:
        reported = 0
        reported_when_closed = -1

        async def on_acknowledgement(self, metadata: object, error: object, headers: object) -> None:
            await until(lambda: tasks_named("aioproducer close"))
            await turns()
            self.reported += 1

        def close(self) -> None:
            self.reported_when_closed = self.reported

    exporting = Exporting()
    async with opened(broker, interceptors=[exporting]) as producer:
        for _ in range(3):
            await producer.enqueue("orders", b"value")

    assert exporting.reported_when_closed == 3


@pytest.mark.parametrize("hangs_in", ["on_acknowledgement", "close"])
async def test_closing_ends_in_time_whatever_an_interceptor_does(broker: FakeBroker, hangs_in: str) -> None:
    async def hang(*_: object) -> None:
        await asyncio.sleep(60)

    interceptor = type("Hanging", (), {hangs_in: staticmethod(hang)})()
    producer = Producer(broker.bootstrap_servers, interceptors=[interceptor])
    await producer.start()
    await producer.send("orders", b"value")

    async with asyncio.timeout(20):
        report = await producer.close(timeout=0.1)

    assert report.delivered == 1
    assert producer.health().status is HealthStatus.CLOSED


@pytest.mark.parametrize("swallows_in", ["on_acknowledgement", "close"])
async def test_closing_ends_in_time_though_an_interceptor_swallows_its_cancellation(
    broker: FakeBroker, swallows_in: str, caplog: pytest.LogCaptureFixture
) -> None:
    ended = asyncio.Event()

    async def swallow(*_: object) -> None:
        while not ended.is_set():
            with suppress(asyncio.CancelledError):
                await ended.wait()

    interceptor = type("Swallowing", (), {swallows_in: staticmethod(swallow)})()
    before = asyncio.all_tasks()
    producer = Producer(broker.bootstrap_servers, interceptors=[interceptor])
    await producer.start()
    await producer.send("orders", b"value")

    async with asyncio.timeout(20):
        report = await producer.close(timeout=0.1)

    assert report.delivered == 1
    assert producer.health().status is HealthStatus.CLOSED
    assert "left running: aioproducer interceptor" in caplog.text
    (left,) = asyncio.all_tasks() - before
    ended.set()
    await left


async def test_a_later_close_with_less_time_lets_the_closing_that_runs_end_in_that_time(broker: FakeBroker) -> None:
    producer = Producer(broker.bootstrap_servers)
    await producer.start()
    await producer.send("orders", b"value")
    with broker.hold("Produce") as held:
        delivery = await producer.enqueue("orders", b"value")
        closing = asyncio.create_task(producer.close(timeout=60))
        await until(lambda: held.waiting and tasks_named("aioproducer close"))

        async with asyncio.timeout(20):
            assert producer.health().status is HealthStatus.CLOSING
            longer = asyncio.create_task(producer.close())
            report = await producer.close(timeout=0.05)

    assert report.unknown == 1
    assert await closing is report
    assert await longer is report
    assert "0.05 s were not enough" in str(delivery.exception())


async def test_a_later_close_with_less_time_does_not_wait_for_interceptors_either(broker: FakeBroker) -> None:
    class Hanging:
        closed = False

        async def on_acknowledgement(self, metadata: object, error: object, headers: object) -> None:
            await asyncio.sleep(60)

        async def close(self) -> None:
            self.closed = True
            await asyncio.sleep(60)

    hanging = Hanging()
    producer = Producer(broker.bootstrap_servers, interceptors=[hanging])
    await producer.start()
    await producer.send("orders", b"value")
    closing = asyncio.create_task(producer.close(timeout=60))
    await until(lambda: tasks_named("aioproducer close"))
    await turns()

    async with asyncio.timeout(20):
        await producer.close(timeout=0.05)

    assert (await closing).delivered == 1
    assert hanging.closed


async def test_leaving_the_block_by_a_cancellation_waits_for_no_interceptor(broker: FakeBroker) -> None:
    class Hanging:
        async def on_acknowledgement(self, metadata: object, error: object, headers: object) -> None:
            await asyncio.sleep(60)

    async def use() -> None:
        async with Producer(broker.bootstrap_servers, interceptors=[Hanging()]) as producer:
            await producer.send("orders", b"value")

    before = asyncio.all_tasks()
    using = asyncio.create_task(use())
    await until(lambda: tasks_named("aioproducer close"))
    using.cancel()

    async with asyncio.timeout(20):
        with pytest.raises(asyncio.CancelledError):
            await using
    assert asyncio.all_tasks() == before


async def test_callbacks_may_be_async_and_closing_waits_for_them(broker: FakeBroker) -> None:
    reported: list[object] = []

    async def store(delivery: Delivery) -> None:
        await until(lambda: tasks_named("aioproducer close"))
        reported.append(delivery.result().offset)

    async def store_error(error: DeliveryError) -> None:
        await until(lambda: tasks_named("aioproducer close"))
        reported.append(type(error))

    async with opened(broker, on_delivery_error=store_error) as producer:
        await producer.send("orders", b"one", partition=0, on_delivery=store)
        (await producer.enqueue("orders", b"two", partition=0)).add_done_callback(store)
        producer.enqueue_nowait("orders", b"three", partition=0, on_delivery=store)
        await producer.flush()
        broker.fail("Produce", "INVALID_RECORD", times=1)
        await producer.enqueue("orders", b"four", partition=0)

    assert Counter(reported) == Counter([0, 1, 2, NotWritten]), "each once, and before closing came to its end"


async def test_an_exception_of_an_async_callback_is_logged_and_harmless(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(reported: object) -> None:
        raise LookupError("the callback is broken")

    async with opened(broker, on_delivery_error=broken, client_id="shop") as producer:
        await producer.send("orders", b"one", partition=0, on_delivery=broken)
        broker.fail("Produce", "INVALID_RECORD", times=1)
        await producer.enqueue("orders", b"two", partition=0)
        await producer.flush()
        await until(lambda: caplog.text.count("LookupError: the callback is broken") == 2)
        await producer.send("orders", b"three", partition=0)

    assert "[shop] The task 'aioproducer delivery callback' raised." in caplog.messages
    assert "[shop] The task 'aioproducer on_delivery_error' raised." in caplog.messages


async def test_an_async_callback_that_comes_after_the_end_runs_all_the_same(broker: FakeBroker) -> None:
    reported = asyncio.Event()

    async def note(delivery: Delivery) -> None:
        reported.set()

    async with opened(broker) as producer:
        delivery = await producer.enqueue("orders", b"value")
    delivery.add_done_callback(note)

    await asyncio.wait_for(reported.wait(), 20)


async def test_an_async_callback_may_close_the_producer(broker: FakeBroker) -> None:
    reports: list[CloseReport] = []

    async with opened(broker) as producer:

        async def close(delivery: Delivery) -> None:
            reports.append(await producer.close(timeout=60))

        async with asyncio.timeout(20):
            await producer.send("orders", b"value", on_delivery=close)
            await until(lambda: reports)

    assert reports[0].delivered == 1


async def test_interceptors_are_notified_of_the_records_that_a_death_has_cost(broker: FakeBroker) -> None:
    heard: list[object] = []

    class Exporting:
        async def on_acknowledgement(self, metadata: object, error: object, headers: object) -> None:
            await asyncio.sleep(0)
            heard.append(error)

    async with opened(broker, interceptors=[Exporting()]) as producer:
        await producer.send("orders", b"value")
        with broker.hold("Produce"):
            await producer.enqueue("orders", b"value")
            tasks_named("aioproducer sender")[0].cancel()
            await until(lambda: len(heard) == 2)

    assert isinstance(heard[1], DeliveryError)


async def test_a_closing_that_was_cancelled_from_outside_can_be_done_again(broker: FakeBroker) -> None:
    before = asyncio.all_tasks()
    producer = Producer(broker.bootstrap_servers)
    await producer.start()
    await producer.send("orders", b"value")
    with broker.hold("Produce") as held:
        delivery = await producer.enqueue("orders", b"value")
        closing = asyncio.create_task(producer.close(timeout=60))
        await until(lambda: held.waiting and tasks_named("aioproducer close"))
        tasks_named("aioproducer close")[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing

        report = await producer.close(timeout=0.05)

    assert (report.delivered, report.unknown) == (1, 1)
    assert delivery.done()
    assert delivery.exception() is not None
    assert asyncio.all_tasks() == before


def test_a_producer_whose_event_loop_is_gone_can_be_closed_and_entered_in_another_one(broker: FakeBroker) -> None:
    producer = Producer(broker.bootstrap_servers)

    async def start() -> None:
        await producer.start()
        await producer.send("orders", b"one")

    async def again() -> int:
        await producer.close()
        async with producer:
            return (await producer.send("orders", b"two")).partition

    asyncio.run(start())
    assert asyncio.run(again()) in range(3)


async def test_all_waiters_are_notified_of_a_death_even_if_it_left_things_in_disorder(broker: FakeBroker) -> None:
    def broken(batch: object) -> None:
        raise IndexError("a bug")

    async with opened(broker) as producer:
        await producer.send("orders", b"value", partition=0)
        engine = producer._engine
        assert engine is not None
        engine.sequences.given_up = broken  # type: ignore[method-assign]
        with broker.hold("Produce"):
            deliveries = [await producer.enqueue("orders", b"x" * 20_000, partition=number % 3) for number in range(12)]
            await until(lambda: producer.metrics()["requests-in-flight"])
            tasks_named("aioproducer sender")[0].cancel()
            async with asyncio.timeout(20):
                await until(lambda: all(delivery.done() for delivery in deliveries))
        with pytest.raises(ProducerDied):
            await producer.send("orders", b"value")


async def test_the_timeout_of_a_call_holds_for_all_of_its_parts() -> None:
    clock = Clock()
    serialized = asyncio.Event()

    async def slow(value: object) -> bytes:
        clock.advance(15)
        serialized.set()
        return b"value"

    async with opened("127.0.0.1:1", value_serializer=slow) as producer:
        sending = asyncio.create_task(producer.send("orders", b"value", timeout=20))
        await serialized.wait()
        clock.advance(6)
        async with asyncio.timeout(15):  # and not 20 s more
            with pytest.raises(NotWrittenTimeout, match="within 20 s"):
                await sending


@pytest.mark.parametrize("chosen", [1.0, "1", 17, -1])
async def test_a_partitioner_that_chooses_no_partition_is_reported(broker: FakeBroker, chosen: object) -> None:
    async with opened(broker, partitioner=lambda *_: chosen) as producer:
        with pytest.raises(InvalidRecord, match="chose"):
            await producer.send("orders", b"value", timeout=20)


async def test_a_topic_of_the_wrong_type_is_reported(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        for topic in (["orders"], {"orders": 1}, None, b"orders"):
            with pytest.raises(InvalidRecord, match="topic="):
                await producer.send(topic, b"value")  # type: ignore[arg-type]


async def test_a_partitioner_sees_the_partitions_as_they_are_now(broker: FakeBroker) -> None:
    seen: list[tuple[int, ...]] = []

    def first(topic: str, key: bytes | None, value: bytes | None, partitions: tuple[int, ...]) -> int:
        seen.append(partitions)
        return partitions[0]

    async with opened(broker, partitioner=first, metadata_max_age_ms=100) as producer:
        for _ in range(50):
            await producer.enqueue("orders", b"value")
        assert len({id(each) for each in seen}) < 25, "not created again for each record: a topic may have thousands"
        broker.add_partitions("orders", 5)
        async with asyncio.timeout(20):
            while len(seen[-1]) < 5:
                await producer.send("orders", b"value")

    assert seen[-1] == (0, 1, 2, 3, 4)


async def test_health_reports_that_no_broker_is_connected_any_more_and_recovers(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        await producer.send("orders", b"one")
        assert producer.health().status is HealthStatus.READY

        broker.stop_node(next(iter(broker.addresses)))
        delivery = await producer.enqueue("orders", b"two")
        await until(lambda: producer.health().status is HealthStatus.DEGRADED)
        degraded = producer.health()
        broker.start_node(next(iter(broker.addresses)))
        await delivery

        assert not degraded.ready
        assert (degraded.connected_brokers, degraded.pending_records) == ([], 1)
        assert degraded.error is not None
        assert producer.health().status is HealthStatus.READY


async def test_a_producer_is_configured_by_a_url_by_properties_and_by_the_environment(broker: FakeBroker) -> None:
    servers = broker.bootstrap_servers
    for producer in (
        Producer.from_url(f"kafka://{servers}/?linger_ms=7", client_id="mine"),
        Producer.from_properties({"bootstrap.servers": servers, "linger.ms": "7"}, client_id="mine"),
        Producer.from_properties(f"bootstrap.servers={servers}\nlinger.ms: 7", client_id="mine"),
        Producer.from_env("APP_", {"APP_BOOTSTRAP_SERVERS": servers, "APP_LINGER_MS": "7"}, client_id="mine"),
    ):
        assert (producer.config.linger_ms, producer.client_id) == (7, "mine")
        async with producer:
            await producer.send("orders", b"value")

    assert len(broker.records("orders")) == 4


async def test_an_interceptor_may_close_the_producer(broker: FakeBroker) -> None:
    class Closing:
        async def on_acknowledgement(self, metadata: object, error: object, headers: object) -> None:
            await producer.close(timeout=60)

    producer = Producer(broker.bootstrap_servers, interceptors=[Closing()])
    await producer.start()
    async with asyncio.timeout(20):
        await producer.send("orders", b"value")
        await until(lambda: producer.health().status is HealthStatus.CLOSED)
        assert (await producer.close()).delivered == 1


async def test_a_bug_in_the_handling_of_an_answer_ends_the_producer_and_not_silently(broker: FakeBroker) -> None:
    def broken(*_: object) -> None:
        raise IndexError("a bug")

    async with opened(broker) as producer:
        await producer.send("orders", b"value")
        engine = producer._engine
        assert engine is not None
        engine.accumulator.outcomes.complete = broken  # type: ignore[assignment]

        async with asyncio.timeout(20):
            with pytest.raises(DeliveryError) as caught:
                await producer.send("orders", b"value")
    assert isinstance(caught.value.__cause__, ProducerDied)
    assert isinstance(caught.value.__cause__.__cause__, IndexError)


@pytest.mark.parametrize("end", ["death", "close"])
async def test_a_send_that_was_granted_memory_when_the_end_came_buffers_no_record(broker: FakeBroker, end: str) -> None:
    options = {"buffer_memory": 3000, "batch_size": 1000, "max_request_size": 2500}
    async with opened(broker, **options, max_in_flight_requests_per_connection=1) as producer:
        await producer.send("orders", b"value", partition=0)
        with broker.hold("Produce"):
            await producer.enqueue("orders", b"x" * 2000, partition=0)
            await until(lambda: producer.metrics()["requests-in-flight"])
            first = await producer.enqueue("orders", b"x" * 500, partition=0)
            waiting = [asyncio.create_task(producer.enqueue("orders", b"x" * 400, partition=1)) for _ in range(3)]
            await until(lambda: producer.health().waiting_senders == 3)
            if end == "death":
                tasks_named("aioproducer sender")[0].cancel()
            else:
                await producer.close(timeout=0.05)
            outcomes = await asyncio.gather(*waiting, return_exceptions=True)

        assert first.done()
        assert [type(outcome) for outcome in outcomes] == [ProducerDied if end == "death" else ProducerClosed] * 3
