"""Unobserved failures reach the log, and do not drown it."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar

import pytest

from aioproducer import Delivery, Producer, ProducerRecord
from aioproducer.delivery import BatchFailure, ProduceResult
from aioproducer.engine.tally import LogKey, Tally
from aioproducer.engine.unobserved import UnobservedFailures
from aioproducer.errors import BrokerError, DeliveryError, KafkaError, UnknownTimeout
from aioproducer.runtime.foreign import ForeignTasks
from aioproducer.runtime.log import ClientLog
from aioproducer.testing import FakeBroker
from aioproducer.types import TopicPartition
from tests.conftest import Clock, opened, turns, until
from tests.forks import in_a_fork


@pytest.fixture(autouse=True)
def collected() -> None:
    """Let what earlier tests dropped report now, so that none of its lines lands among those of a test here."""
    gc.collect()


def failure(topic: str = "orders", *, possibly_written: bool = False, cause: KafkaError | None = None) -> BatchFailure:
    records = [ProducerRecord(topic, b"value")] * 10
    why = cause or BrokerError(1, "X", "why")
    return BatchFailure(TopicPartition(topic, 0), why, possibly_written, False, lambda: records)


def made(
    loop: asyncio.AbstractEventLoop, callback: Callable[[DeliveryError], object] | None = None
) -> UnobservedFailures:
    log = ClientLog("shop")
    return UnobservedFailures(loop, callback, ForeignTasks(loop, log), log)


def counts(lines: Sequence[str], topic: str = "orders") -> list[int]:
    """The number of records in each line about a topic."""
    found = [re.search(rf"(\d+) record\(s\) for topic '{topic}'", line) for line in lines]
    return [int(match[1]) for match in found if match]


async def test_an_outage_is_logged_at_once_and_then_summed_up(caplog: pytest.LogCaptureFixture) -> None:
    failures = made(asyncio.get_running_loop())
    for _ in range(1000):
        failures.unobserved(failure(), range(10))
    failures.unobserved(failure(possibly_written=True), range(3))
    failures.unobserved(failure("other"), range(2))
    await turns()
    assert [line.split(" that")[0] for line in caplog.messages] == [
        "[shop] 10000 record(s) for topic 'orders'",
        "[shop] 3 record(s) for topic 'orders'",
        "[shop] 2 record(s) for topic 'other'",
    ]

    clock = Clock()
    for _ in range(100):
        failures.unobserved(failure(), range(10))
        await turns(2)
    assert len(caplog.messages) == 3, "a second has to pass"
    clock.advance(1)
    await until(lambda: len(caplog.messages) > 3)
    assert counts(caplog.messages[3:]) == [1000]

    failures.unobserved(failure(), range(7))
    await turns()
    failures.close()
    assert counts(caplog.messages[4:]) == [7]
    failures.unobserved(failure(), range(1))
    await turns()
    assert counts(caplog.messages[5:]) == [1], "after the end nothing is held back"


def done(sink: UnobservedFailures, *callbacks: Callable[[Delivery], object]) -> None:
    """A batch is acknowledged, with a record for each callback."""
    result = ProduceResult(TopicPartition("orders", 3), sink)
    for index, callback in enumerate(callbacks):
        Delivery(result, index, 0, -1, 1).add_done_callback(callback)
    result.succeed(10, -1)


async def test_a_callback_that_raises_keeps_no_other_from_being_called(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[int] = []
    sink = made(asyncio.get_running_loop())

    def see(delivery: Delivery) -> None:
        seen.append(delivery.result().offset)

    done(sink, lambda _: 1 / 0, see)
    done(sink, lambda _: seen[10])
    done(sink, see)
    await turns()

    assert seen == [11, 10]
    assert caplog.text.count("raised for a record of orders-3") == 2
    assert "ZeroDivisionError" in caplog.text
    assert "IndexError" in caplog.text


async def test_all_callbacks_of_a_batch_are_called_in_one_turn_of_the_event_loop_outside_of_its_completion() -> None:
    seen: list[int] = []

    def see(delivery: Delivery) -> None:
        seen.append(delivery.result().offset)

    done(made(asyncio.get_running_loop()), *[see] * 100)
    assert not seen
    await asyncio.sleep(0)
    assert seen == list(range(10, 110))


async def test_each_callback_has_a_context_of_its_own() -> None:
    variable: ContextVar[int] = ContextVar("variable", default=0)
    seen: list[int] = []

    async def later() -> None:
        seen.append(variable.get())

    def change(delivery: Delivery) -> Awaitable[None]:
        seen.append(variable.get())
        variable.set(variable.get() + 1)
        return later()

    variable.set(5)
    done(made(asyncio.get_running_loop()), change, change, change)
    await turns()
    assert seen == [5, 5, 5, 6, 6, 6]
    assert variable.get() == 5


async def test_coroutines_of_callbacks_are_run() -> None:
    seen: list[int] = []

    async def later(delivery: Delivery) -> None:
        await asyncio.sleep(0)
        seen.append((await delivery).offset)

    done(made(asyncio.get_running_loop()), later, later)
    await turns()
    assert seen == [10, 11]


def test_a_callback_that_ends_the_event_loop_keeps_no_other_from_being_called() -> None:
    seen: list[int] = []

    def leave(delivery: Delivery) -> None:
        raise SystemExit(3)

    def see(delivery: Delivery) -> None:
        seen.append(delivery.result().offset)

    async def main() -> None:
        done(made(loop), leave, see, see)
        await turns()

    loop = asyncio.new_event_loop()
    task = loop.create_task(main())
    with pytest.raises(SystemExit):
        loop.run_until_complete(task)
    loop.run_until_complete(task)
    loop.close()

    assert seen == [11, 12]


async def test_a_callback_is_reported_every_record_and_may_raise(caplog: pytest.LogCaptureFixture) -> None:
    reported: list[DeliveryError] = []

    def callback(error: DeliveryError) -> None:
        reported.append(error)
        raise ValueError("never mind")

    failures = made(asyncio.get_running_loop(), callback)
    failures.unobserved(failure(), range(4))
    await asyncio.sleep(0)

    assert len(reported) == 4
    assert caplog.text.count("on_delivery_error raised") == 4


def test_without_an_event_loop_there_is_still_the_log(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.new_event_loop()
    failures = made(loop)
    loop.close()

    failures.unobserved(failure(), range(5))

    assert "5 record(s)" in caplog.text


async def test_unawaited_records_are_logged_when_they_fail(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", times=None)
    async with opened(broker) as producer:
        for _ in range(5):
            await producer.enqueue("orders", b"value", partition=0)
        await producer.flush(30)
        await until(lambda: "TOPIC_AUTHORIZATION_FAILED" in caplog.text)

    assert "were not written" in caplog.text


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

    assert "1 record(s) for topic 'orders' that had failed with Unknown were acknowledged later" in caplog.text


async def test_late_successes_are_summed_up(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    failures = made(loop)
    for partition in range(500):
        failures.acknowledged_late(TopicPartition("orders", partition), 2)

    failures.close()

    assert counts(caplog.messages) == [1000]


# -- after the producer was closed ------------------------------------------------------------------------------------

#: The number of unawaited records that fail, and the most lines of the log about them.
MANY, FEW = 3000, 4


#: The first line is that of close(), for a delivery that is held.
YET = "were not written, and the program has not asked their deliveries yet"


async def failed_deliveries(broker: FakeBroker, topics: Sequence[str] = ("orders",)) -> list[Delivery]:
    """Deliveries of records that failed, of a producer that is closed: each topic has one line in the log."""
    broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", times=None)
    async with opened(broker, client_id="shop") as producer:
        deliveries = [await producer.enqueue(topics[at % len(topics)], b"value") for at in range(MANY)]
        await producer.flush(30)
    return deliveries


async def test_many_that_are_dropped_after_close_are_one_line(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    deliveries = await failed_deliveries(broker)
    caplog.clear()
    deliveries.clear()
    await turns()

    assert counts(caplog.messages) == [MANY]


async def test_each_topic_has_its_own_line(broker: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    broker.create_topic("clicks")
    deliveries = await failed_deliveries(broker, ["orders", "clicks"])
    caplog.clear()
    deliveries.clear()
    await turns()

    assert counts(caplog.messages) == [MANY // 2]
    assert counts(caplog.messages, "clicks") == [MANY // 2]


async def test_each_kind_of_cause_has_its_own_line(caplog: pytest.LogCaptureFixture) -> None:
    failures = made(asyncio.get_running_loop())
    failures.close()
    for code in (1, 2):
        for attempt in range(10):
            failures.unobserved(failure(cause=BrokerError(code, f"ERROR_{code}", f"attempt {attempt}")), [0])
    await turns()

    assert counts(caplog.messages) == [10, 10]
    assert ["ERROR_1" in line for line in caplog.messages] == [True, False]


async def test_many_that_are_dropped_one_by_one_after_close_are_a_few_lines(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    deliveries = await failed_deliveries(broker)
    caplog.clear()
    while deliveries:
        deliveries.pop()
        await asyncio.sleep(0)
    await turns()
    assert len(counts(caplog.messages)) <= FEW
    clock.advance(2)
    await until(lambda: sum(counts(caplog.messages)) == MANY)

    assert len(counts(caplog.messages)) <= FEW


def test_many_that_are_dropped_after_the_event_loop_was_closed_are_a_few_lines(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    deliveries = asyncio.run(failed_deliveries(broker))
    caplog.clear()
    deliveries.clear()
    gc.collect()

    assert sum(counts(caplog.messages)) == MANY
    assert len(counts(caplog.messages)) <= FEW


def test_many_that_are_dropped_when_the_event_loop_ends_are_a_few_lines(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        deliveries = await failed_deliveries(broker)
        caplog.clear()
        while deliveries:
            deliveries.pop()
            await asyncio.sleep(0)

    asyncio.run(main())
    gc.collect()

    assert sum(counts(caplog.messages)) == MANY
    assert len(counts(caplog.messages)) <= FEW


def test_many_that_are_left_to_the_end_of_the_interpreter_are_a_few_lines(broker: FakeBroker) -> None:
    broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", times=None)
    script = f"""
import asyncio
from aioproducer import Producer

deliveries = []

async def main():
    async with Producer({broker.bootstrap_servers!r}) as producer:
        for _ in range({MANY}):
            deliveries.append(await producer.enqueue("orders", b"value"))
        await producer.flush(30)

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)

    at_close, *lines = done.stderr.splitlines()
    assert YET in at_close
    assert counts([at_close]) == [MANY]
    assert sum(counts(lines)) == MANY, done.stderr[-2000:]
    assert len(lines) <= FEW, done.stderr[-2000:]


async def test_many_that_close_gives_up_are_a_few_lines(broker: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(broker, linger_ms=60_000, batch_size=1024, close_timeout_ms=0) as producer:
        await producer.partitions_for("orders")
        with broker.hold("Produce"):
            for _ in range(MANY):
                await producer.enqueue("orders", b"x" * 100)
            await producer.close()
    await turns()

    assert sum(counts(caplog.messages)) == MANY
    assert len(counts(caplog.messages)) <= FEW


# -- held when the producer is flushed --------------------------------------------------------------------------------


async def enqueue_refused(broker: FakeBroker, producer: Producer, records: int) -> list[Delivery]:
    """Deliveries of records that were refused before a flush that is over."""
    broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", times=1)
    deliveries = [await producer.enqueue("orders", b"value", partition=0) for _ in range(records)]
    await producer.flush(30)
    return deliveries


async def test_a_flush_counts_once_what_had_failed_before_it_and_was_not_asked(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()

    async def second() -> None:
        clock.advance(1.1)
        await turns()

    async with opened(broker, client_id="shop", linger_ms=60_000) as producer:
        earlier = await enqueue_refused(broker, producer, 3)
        await second()
        assert counts(caplog.messages) == [], "the program may ask now"

        later = await enqueue_refused(broker, producer, 5)
        await second()
        assert counts(caplog.messages) == [3]
        assert YET in caplog.text

        assert all(delivery.exception() for delivery in later)
        await producer.flush(30)
        await second()
    assert counts(caplog.messages) == [3], "neither again, nor when the producer is closed"
    assert all(delivery.exception() for delivery in earlier)


async def test_a_flush_does_not_count_what_is_asked_after_it(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    async with opened(broker, client_id="shop", linger_ms=60_000) as producer:
        deliveries = await enqueue_refused(broker, producer, 3)
        await producer.flush(30)
        assert all(delivery.exception() for delivery in deliveries)
        clock.advance(1.1)
        await turns()

    assert counts(caplog.messages) == []


async def test_closing_at_once_after_a_flush_counts_held_failures_once(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    async with opened(broker, client_id="shop", linger_ms=60_000) as producer:
        deliveries = await enqueue_refused(broker, producer, 3)
        await producer.flush(30)
        await producer.flush(30)
    assert counts(caplog.messages) == [3]
    clock.advance(2)
    await turns()
    assert counts(caplog.messages) == [3]
    assert all(delivery.exception() for delivery in deliveries)


def test_held_failures_are_not_counted_in_an_event_loop_that_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> tuple[UnobservedFailures, Delivery]:
        failures = made(asyncio.get_running_loop())
        result = ProduceResult(TopicPartition("orders", 0), failures)
        delivery = Delivery(result, 0, 0, -1, 5)
        result.fail(failure())
        return failures, delivery

    failures, delivery = asyncio.run(fail())
    failures.count_held(failures.failed_so_far())  # as a flush that is collected with its event loop does

    assert counts(caplog.messages) == []
    assert delivery.exception() is not None


# -- held when the producer is closed ---------------------------------------------------------------------------------


async def test_failures_whose_deliveries_are_held_are_one_line_at_close(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    deliveries = await failed_deliveries(broker)

    assert len(caplog.records) == 1
    assert caplog.records[0].levelno == logging.WARNING
    assert f"{MANY} record(s) for topic 'orders' {YET}: " in caplog.text
    assert "TOPIC_AUTHORIZATION_FAILED" in caplog.text

    assert all(delivery.exception() for delivery in deliveries)
    deliveries.clear()
    await turns()
    assert len(caplog.records) == 1


async def test_each_topic_of_held_failures_has_its_own_line(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic("clicks")
    deliveries = await failed_deliveries(broker, ["orders", "clicks"])

    assert (counts(caplog.messages), counts(caplog.messages, "clicks")) == ([MANY // 2], [MANY // 2])
    assert len(deliveries) == MANY


async def ask(delivery: Delivery) -> None:
    delivery.exception()


async def wait(delivery: Delivery) -> None:
    with pytest.raises(DeliveryError):
        await delivery


async def call_back(delivery: Delivery) -> None:
    delivery.add_done_callback(lambda _: None)


async def peek(delivery: Delivery) -> None:
    delivery.peek()


@pytest.mark.parametrize(("observe", "counted"), [(ask, 0), (wait, 0), (call_back, 0), (peek, 1)])
async def test_a_failure_that_was_observed_is_not_counted_at_close(
    broker: FakeBroker,
    caplog: pytest.LogCaptureFixture,
    observe: Callable[[Delivery], Awaitable[None]],
    counted: int,
) -> None:
    broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", times=None)
    async with opened(broker, client_id="shop") as producer:
        deliveries = [await producer.enqueue("orders", b"value", partition=0) for _ in range(3)]
        await producer.flush(30)
        await observe(deliveries[0])
        await observe(deliveries[0])

    assert counts(caplog.messages) == [2 + counted]


async def test_a_record_that_a_task_awaits_while_close_gives_it_up_is_not_counted(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(broker, linger_ms=60_000, close_timeout_ms=0) as producer:
        with broker.hold("Produce"):
            held = await producer.enqueue("orders", b"value", partition=0)
            awaited = [asyncio.ensure_future(wait(await producer.enqueue("orders", b"value"))) for _ in range(20)]
            await turns()
            await producer.close()
    await asyncio.gather(*awaited)

    assert counts(caplog.messages) == [1]
    assert not held.peek()[0]


async def test_the_records_of_an_aborted_transaction_are_no_warning(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with opened(broker, transactional_id="shop", linger_ms=60_000) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        held = await producer.enqueue("orders", b"value")
        await producer.abort_transaction()

    assert held.done()
    assert [line.levelno for line in caplog.records if YET in line.getMessage()] == [logging.DEBUG]


@pytest.mark.parametrize(("failed_parts", "counted"), [(2, [3]), (1, [])])
async def test_records_of_a_split_batch_are_counted_if_they_have_all_failed(
    caplog: pytest.LogCaptureFixture, failed_parts: int, counted: list[int]
) -> None:
    failures = made(asyncio.get_running_loop())
    place = TopicPartition("orders", 0)
    whole, first, second = (ProduceResult(place, failures) for _ in range(3))
    held = [Delivery(whole, index, 0, -1, 5) for index in range(3)]
    whole.split([first, second], [0, 2])
    first.fail(failure())
    if failed_parts == 2:
        second.fail(failure())
    else:
        second.succeed(7, -1)

    failures.close()

    assert counts(caplog.messages) == counted
    assert [delivery.done() for delivery in held] == [True] * 3
    failures.close()
    assert counts(caplog.messages)[len(counted) :] == [2 if failed_parts == 1 else 3], "now each is found in its part"


async def test_looking_at_a_record_of_a_split_batch_does_not_change_who_holds_it() -> None:
    """Interceptors look through a callback that was added before the batch was split."""
    failures = made(asyncio.get_running_loop())
    place = TopicPartition("orders", 0)
    whole, first, second = (ProduceResult(place, failures) for _ in range(3))
    held = [Delivery(whole, index, 0, -1, 5) for index in range(4)]
    for delivery in held:
        delivery.watch(lambda delivery: delivery.peek())
    whole.split([first, second], [0, 2])
    first.fail(failure())
    second.fail(failure())
    await turns()
    assert (whole.held, first.held, second.held) == (0, 2, 2)

    assert all(delivery.exception() for delivery in held)
    assert (whole.held, first.held, second.held) == (0, 0, 0)


async def test_failures_not_logged_yet_at_a_fork_are_left_to_the_parent(caplog: pytest.LogCaptureFixture) -> None:
    tally = Tally(asyncio.get_running_loop(), ClientLog("shop"))
    tally.add(LogKey("orders", "that were not awaited were not written", logging.ERROR), 5, "why")

    def end() -> None:
        tally.__del__()
        assert counts(caplog.messages) == []

    in_a_fork(end)
    await turns()

    assert counts(caplog.messages) == [5]


# -- interceptors -----------------------------------------------------------------------------------------------------


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
