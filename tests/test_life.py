"""The life of a producer in a program: in which event loop it lives, and what happens to it if it is never closed."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import weakref
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
import pytest
import uvloop

from aioproducer import CloseReport, Delivery, NotWritten, Producer, SyncProducer, Unknown, WrongEventLoop
from aioproducer.testing import FakeBroker
from aioproducer.testing.broker.faults import Hold
from aioproducer.transactions.client import TransactionCoordinatorClient
from tests.conftest import opened, turns, until
from tests.forks import in_a_fork

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


@pytest.fixture(params=LOOPS, ids=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest) -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that the test runs in pieces, as some programs do, and may close."""
    loop: asyncio.AbstractEventLoop = request.param()
    yield loop
    if not loop.is_closed():
        loop.close()


async def send_one(producer: Producer) -> int:
    async with producer:
        return (await producer.send("orders", b"value", partition=0)).offset


# -- one event loop after another -------------------------------------------------------------------------------------


def test_a_producer_of_a_module_serves_one_asyncio_run_after_another(broker: FakeBroker) -> None:
    producer = Producer(broker.bootstrap_servers)

    assert [asyncio.run(send_one(producer)) for _ in range(3)] == [0, 1, 2]


def test_a_producer_that_was_left_open_can_be_entered_in_the_next_asyncio_run(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    producer = Producer(broker.bootstrap_servers)

    async def leave_open() -> None:
        await producer.start()
        await producer.send("orders", b"value", partition=0)

    asyncio.run(leave_open())
    assert "before it was closed" in caplog.text

    assert asyncio.run(send_one(producer)) == 1
    assert asyncio.run(send_one(producer)) == 2


@pytest.mark.parametrize(
    "use",
    [
        lambda producer: producer.send("orders", b"value"),
        lambda producer: producer.enqueue("orders", b"value"),
        lambda producer: producer.flush(),
        lambda producer: producer.partitions_for("orders"),
        lambda producer: producer.ready(),
    ],
    ids=["send", "enqueue", "flush", "partitions_for", "ready"],
)
def test_the_error_of_a_producer_left_open_by_an_earlier_asyncio_run_explains_how_to_go_on(
    broker: FakeBroker, use: Callable[[Producer], Awaitable[object]]
) -> None:
    producer = Producer(broker.bootstrap_servers)

    async def leave_open() -> None:
        await producer.start()
        await producer.send("orders", b"value")

    async def run(call: Awaitable[object]) -> None:
        await call

    asyncio.run(leave_open())
    with pytest.raises(WrongEventLoop, match=r"is closed.*each asyncio\.run\(\).*Enter it again.*async with"):
        asyncio.run(run(use(producer)))

    asyncio.run(send_one(producer))


def test_a_producer_that_is_in_use_in_another_event_loop_cannot_be_entered(
    broker: FakeBroker, loop: asyncio.AbstractEventLoop
) -> None:
    producer = Producer(broker.bootstrap_servers)
    loop.run_until_complete(producer.start())

    for use in (producer.start, producer.close, lambda: send_one(producer)):
        with pytest.raises(WrongEventLoop, match="another event loop"):
            asyncio.run(use())

    assert loop.run_until_complete(producer.send("orders", b"value")).offset == 0
    loop.run_until_complete(producer.close())


def test_a_producer_is_not_used_in_two_threads(broker: FakeBroker) -> None:
    errors: list[BaseException | None] = []

    async def main() -> None:
        async with Producer(broker.bootstrap_servers) as producer:

            def use() -> None:
                with pytest.raises(WrongEventLoop, match="SyncProducer") as caught:
                    asyncio.run(producer.send("orders", b"value"))
                errors.append(caught.value)

            await asyncio.to_thread(use)
            await producer.send("orders", b"value")

    asyncio.run(main())
    assert len(errors) == 1


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning", "ignore:loop is closed:ResourceWarning")
def test_a_record_that_waits_when_its_event_loop_is_closed_fails_at_the_latest_when_the_producer_is_closed(
    broker: FakeBroker, loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    """`loop.close()` without a cancellation of its tasks: they never run again."""
    producer = Producer(broker.bootstrap_servers, client_id="shop")
    holds: list[Hold] = []

    async def leave_open() -> Delivery:
        await producer.start()
        await producer.send("orders", b"value", partition=0)
        holds.append(broker.hold("Produce"))
        await producer.enqueue("orders", b"unawaited", partition=0)
        return await producer.enqueue("orders", b"value", partition=0)

    delivery = loop.run_until_complete(leave_open())
    loop.close()
    holds.pop().release()

    async def close() -> CloseReport:
        return await producer.close()

    report = asyncio.run(close())
    assert (report.delivered, report.failed + report.unknown, len(report.undelivered)) == (1, 2, 2)
    assert asyncio.run(close()) == report
    with pytest.raises(NotWritten, match="event loop ended"):
        delivery.result()
    assert "2 record(s) that it had accepted were not acknowledged" in caplog.text
    assert asyncio.run(send_one(producer)) >= 0


@pytest.mark.parametrize("end", ["pass", "loop.close()"])
def test_records_left_in_a_producer_at_the_end_of_a_program_are_logged(broker: FakeBroker, end: str) -> None:
    script = f"""
import asyncio
from aioproducer import Producer

async def main():
    await producer.start()
    await producer.ready()
    await producer.enqueue("orders", b"value")

loop = asyncio.new_event_loop()
producer = Producer({broker.bootstrap_servers!r}, client_id="shop")
loop.run_until_complete(main())
{end}
"""
    with broker.hold("Produce"):
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)

    assert "[shop] The event loop ended before the producer was closed. 1 record(s)" in done.stderr
    assert "Error" not in done.stderr


def test_a_producer_that_is_started_and_left_at_once_leaves_no_coroutine_behind(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """The first mistakes of a new user; Python warns of coroutines that are never awaited."""
    producer = Producer(broker.bootstrap_servers)
    asyncio.run(producer.start())
    gc.collect()

    assert len(caplog.records) == 1
    assert asyncio.run(send_one(producer)) >= 0


# -- dropped ----------------------------------------------------------------------------------------------------------

DROPPED = r"The producer 'shop' was dropped without being closed.*async with"


def drop(kept: list[Producer]) -> None:
    """Drop all references to these."""
    kept.clear()
    gc.collect()


async def test_a_dropped_producer_warns_sends_all_accepted_records_and_ends(broker: FakeBroker) -> None:
    before = asyncio.all_tasks()
    kept = [await Producer(broker.bootstrap_servers, client_id="shop", linger_ms=60_000).start()]
    await kept[0].send("orders", b"first", partition=0)
    with broker.hold("Produce"):
        for _ in range(100):
            await kept[0].enqueue("orders", b"value", partition=0)
        last = await kept[0].enqueue("orders", b"last", partition=0)
        engine = weakref.ref(kept[0]._engine)
        with pytest.warns(ResourceWarning, match=DROPPED):
            drop(kept)

    assert (await last).offset == 101
    await until(lambda: asyncio.all_tasks() == before)
    await until(lambda: not broker.connections())
    gc.collect()
    assert engine() is None


async def test_records_that_a_dropped_producer_cannot_deliver_are_logged(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    kept = [await Producer(broker.bootstrap_servers, client_id="shop", close_timeout_ms=0).start()]
    await kept[0].send("orders", b"first")
    with broker.hold("Produce"):
        await kept[0].enqueue("orders", b"value")
        with pytest.warns(ResourceWarning, match=DROPPED):
            drop(kept)
        await until(lambda: "1 record(s) for topic 'orders' that were not awaited" in caplog.text)


async def test_a_producer_is_not_dropped_while_a_call_waits(broker: FakeBroker) -> None:
    """Only the calls themselves refer to the producer."""

    async def started() -> Producer:
        return await Producer(broker.bootstrap_servers, client_id="shop").start()

    with broker.hold("Metadata"):
        sending = asyncio.create_task((await started()).send("orders", b"value"))
        await turns()
        gc.collect()
    assert (await sending).offset == 0
    with pytest.warns(ResourceWarning, match=DROPPED):
        gc.collect()
    await until(lambda: len(asyncio.all_tasks()) == 1)


async def test_a_transaction_of_a_dropped_producer_is_aborted(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    kept = [await Producer(broker.bootstrap_servers, client_id="shop", transactional_id="t").start()]
    await kept[0].init_transactions()
    await kept[0].begin_transaction()
    await kept[0].send("orders", b"value")
    with pytest.warns(ResourceWarning, match=DROPPED):
        drop(kept)
    await until(lambda: len(asyncio.all_tasks()) == 1)

    assert broker.records("orders", committed=True) == []
    assert "abort" in caplog.text


async def test_a_producer_may_be_dropped_in_another_thread(broker: FakeBroker) -> None:
    kept = [await Producer(broker.bootstrap_servers, client_id="shop").start()]
    await kept[0].send("orders", b"value")

    with pytest.warns(ResourceWarning, match=DROPPED):
        await asyncio.to_thread(drop, kept)
    await until(lambda: len(asyncio.all_tasks()) == 1)


async def test_a_producer_that_was_closed_or_never_started_is_dropped_in_silence(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        await producer.send("orders", b"value")
    never = Producer(broker.bootstrap_servers)
    closing = await Producer(broker.bootstrap_servers).start()
    waiting = asyncio.create_task(closing.close())
    await turns(1)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    del producer, never, closing, waiting
    gc.collect()

    await until(lambda: len(asyncio.all_tasks()) == 1)


async def test_a_fork_drops_the_producer_of_its_parent_in_silence(broker: FakeBroker) -> None:
    kept = [await Producer(broker.bootstrap_servers).start()]
    await kept[0].send("orders", b"value")

    in_a_fork(partial(drop, kept))
    await kept[0].send("orders", b"value")
    await kept[0].close()


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning", "ignore:loop is closed:ResourceWarning")
def test_records_of_a_producer_dropped_before_its_event_loop_is_closed_are_reported(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture, loop: asyncio.AbstractEventLoop
) -> None:
    """Closing begins in the next turn of the event loop, which never comes."""
    kept: list[Producer] = []
    holds: list[Hold] = []

    async def leave_open() -> Delivery:
        kept.append(await Producer(broker.bootstrap_servers, client_id="shop").start())
        await kept[0].send("orders", b"first")
        holds.append(broker.hold("Produce"))
        return await kept[0].enqueue("orders", b"value")

    delivery = loop.run_until_complete(leave_open())
    with pytest.warns(ResourceWarning, match="when its event loop runs again"):
        drop(kept)
    loop.close()
    holds.pop().release()
    gc.collect()
    assert not delivery.done()

    asyncio.run(opened_and_closed(broker))  # the next producer looks after those before it

    assert isinstance(delivery.exception(), NotWritten | Unknown)
    assert "[shop] The event loop ended before the producer was closed. 1 record(s)" in caplog.text


async def opened_and_closed(broker: FakeBroker) -> None:
    async with opened(broker):
        pass


async def test_records_given_up_by_a_cancelled_block_are_in_the_report(broker: FakeBroker) -> None:
    producer = Producer(broker.bootstrap_servers)
    hold: list[Hold] = []

    async def block() -> None:
        async with producer:
            await producer.send("orders", b"first", partition=0)
            hold.append(broker.hold("Produce"))
            await producer.enqueue("orders", b"value", partition=0)
            await asyncio.sleep(3600)

    task = asyncio.create_task(block())
    await until(lambda: bool(hold) and producer.health().pending_records == 1)
    for _ in range(3):
        task.cancel()
        await turns()
    with pytest.raises(asyncio.CancelledError):
        await task
    hold.pop().release()

    report = await producer.close()
    assert report.failed + report.unknown == 1
    assert [record.value for record in report.undelivered] == [b"value"]


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning", "ignore:loop is closed:ResourceWarning")
def test_the_warning_of_a_producer_dropped_after_its_event_loop_was_closed_counts_the_lost_records(
    broker: FakeBroker, loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    holds: list[Hold] = []

    async def leave_open() -> Producer:
        producer = await Producer(broker.bootstrap_servers, client_id="shop").start()
        await producer.send("orders", b"value")
        holds.append(broker.hold("Produce"))
        await producer.enqueue("orders", b"value")
        return producer

    kept = [loop.run_until_complete(leave_open())]
    loop.close()
    holds.pop().release()
    with pytest.warns(ResourceWarning, match=DROPPED):
        drop(kept)

    assert "1 record(s) that it had accepted were not acknowledged" in caplog.text


# -- without asyncio --------------------------------------------------------------------------------------------------

NO_LOOP = r"needs a running asyncio event loop, but none is running in this thread.*asyncio\.run.*SyncProducer"
TRIO = r"needs asyncio, and this is trio.*SyncProducer.*trio\.to_thread\.run_sync.*backend='asyncio'"


def step(work: Awaitable[object]) -> object:
    """Run a coroutine as no event loop of asyncio does."""
    return work.send(None)  # type: ignore[attr-defined]


def test_the_error_without_an_event_loop_names_the_ways_that_work(broker: FakeBroker) -> None:
    producer = Producer(broker.bootstrap_servers)
    for use in (producer.start, producer.flush, partial(producer.send, "orders"), partial(producer.enqueue, "orders")):
        with pytest.raises(WrongEventLoop, match=NO_LOOP):
            step(use())
    with pytest.raises(WrongEventLoop, match=NO_LOOP):
        producer.enqueue_nowait("orders", b"value")


def test_a_coordinator_client_also_needs_an_event_loop(broker: FakeBroker) -> None:
    with pytest.raises(WrongEventLoop, match=NO_LOOP):
        step(TransactionCoordinatorClient(broker.bootstrap_servers).start())


@pytest.fixture
def trio() -> Any:
    """The library, which the extra ``test`` brings."""
    return pytest.importorskip("trio")


def test_trio_is_named_with_what_works_there(trio: Any, broker: FakeBroker) -> None:
    producer = Producer(broker.bootstrap_servers)

    async def main() -> None:
        for use in (producer.start, producer.ready, partial(producer.send, "orders", b"value")):
            with pytest.raises(WrongEventLoop, match=TRIO):
                await use()
        with pytest.raises(WrongEventLoop, match=TRIO):
            async with producer:
                pass
        with pytest.raises(WrongEventLoop, match=TRIO):
            producer.enqueue_nowait("orders", b"value")

    trio.run(main)
    anyio.run(main, backend="trio")


def test_a_producer_of_an_event_loop_is_not_used_from_trio(
    trio: Any, broker: FakeBroker, loop: asyncio.AbstractEventLoop
) -> None:
    producer = Producer(broker.bootstrap_servers)
    loop.run_until_complete(producer.start())

    async def main() -> None:
        for use in (producer.start, producer.close, partial(producer.send, "orders", b"value")):
            with pytest.raises(WrongEventLoop, match=TRIO):
                await use()

    trio.run(main)
    loop.run_until_complete(producer.close())


def test_the_calls_documented_for_trio_work(trio: Any, broker: FakeBroker) -> None:
    async def threads() -> None:
        with SyncProducer(broker.bootstrap_servers) as producer:
            await trio.to_thread.run_sync(producer.send, "orders", b"from trio")
        producer = await anyio.to_thread.run_sync(producer.start)
        await anyio.to_thread.run_sync(producer.send, "orders", b"from anyio")
        await anyio.to_thread.run_sync(producer.close)

    async def main() -> None:
        async with Producer(broker.bootstrap_servers) as producer:
            await producer.send("orders", b"from anyio's asyncio")

    trio.run(threads)
    anyio.run(main, backend="asyncio")

    assert sorted(record.value or b"" for record in broker.records("orders")) == [
        b"from anyio",
        b"from anyio's asyncio",
        b"from trio",
    ]


def test_trio_is_not_imported_to_find_out() -> None:
    script = """
import sys
from aioproducer import Producer, WrongEventLoop
try:
    Producer("localhost").enqueue_nowait("orders")
except WrongEventLoop:
    sys.exit("trio" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
