"""Trap 15: blocked event loops, forks, frozen clocks, producers that are never closed, and flushes from callbacks."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import selectors
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from aioproducer import Delivery, Producer
from aioproducer.errors import UnknownTimeout
from aioproducer.testing import FakeBroker
from tests.conftest import QUICK, Clock, opened, until
from tests.traps.judge import audited
from tests.traps.schedules import run_schedule

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop, uvloop.new_event_loop]


class TurnTimer(selectors.DefaultSelector):
    """Measures the processor time of the event loop's longest turn: a busy machine adds nothing to it."""

    def __init__(self) -> None:
        super().__init__()
        self.longest = 0.0
        self._began: float | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self._began is not None:
            self.longest = max(self.longest, time.thread_time() - self._began)
        ready = super().select(timeout)
        self._began = time.thread_time()
        return ready


def longest_turn(broker: FakeBroker, codec: str, **options: Any) -> float:
    """The seconds that the longest turn of the event loop takes while large batches are sent."""
    chance = random.Random(15)
    words = [chance.randbytes(6).hex().encode() for _ in range(4)]  # so few that the search for repeats is long
    values = [b" ".join(chance.choices(words, k=80)) for _ in range(1000)]
    level = 9 if codec == "gzip" else 15
    options |= {"batch_size": 2**20, "max_request_size": 2**21, "compression_level": level, "linger_ms": 50}
    timer = TurnTimer()

    async def main() -> float:
        async with opened(broker, compression_type=codec, **options) as producer:
            await producer.send("orders", b"first", partition=0)
            await asyncio.sleep(0)
            timer.longest = 0.0
            await producer.send_many("orders", values * 4, partition=0)
            return timer.longest

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(timer)) as runner:
        return runner.run(main())


@pytest.mark.parametrize("codec", ["zstd", "gzip"])
def test_the_loop_is_not_blocked_by_the_compression_of_large_batches(broker: FakeBroker, codec: str) -> None:
    longest = longest_turn(broker, codec)
    in_the_loop = longest_turn(broker, codec, compression_threshold_bytes=2**30)

    assert longest < in_the_loop / 2
    assert max(len(batch.records) for batch in broker.batches("orders", 0)) > 500, "they were large ones"
    assert len(broker.records("orders", 0)) == 2 * 4001


FORK = """
    import asyncio, os, traceback, warnings
    from aioproducer import Producer
    from aioproducer.errors import ForkedProcess
    from aioproducer.testing import FakeBroker

    warnings.simplefilter("ignore", DeprecationWarning)

    def use_in_child(producer):
        for use in (
            lambda: producer.enqueue_nowait("orders", b"x"),
            lambda: producer.send("orders", b"x").send(None),
            lambda: producer.send("orders", b"x", timeout=1).send(None),
            lambda: producer.flush().send(None),
            lambda: producer.close().send(None),
        ):
            try:
                use()
            except ForkedProcess as error:
                assert str(os.getpid()) in str(error)
            else:
                raise AssertionError("it was not refused")

    async def main():
        with FakeBroker(topics={"orders": 1}) as broker:
            async with Producer(broker.bootstrap_servers) as producer:
                await producer.send("orders", b"before")
                child = os.fork()
                if child == 0:
                    try:
                        use_in_child(producer)
                        del producer
                    except BaseException:
                        traceback.print_exc()
                        os._exit(3)
                    os._exit(0)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
                await producer.send("orders", b"after")
            assert len(broker.records("orders")) == 2

    asyncio.run(main())

    producer = Producer("127.0.0.1:1")  # made before a fork and started after it, in both
    child = os.fork()
    async def live():
        async with producer:
            pass
    asyncio.run(live())
    if child:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


def run_script(script: str, *options: str) -> str:
    done = subprocess.run(
        [sys.executable, *options, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_fork_is_reported_and_leaves_the_parent_alone() -> None:
    assert run_script(FORK) == ""


def test_a_loop_that_ends_without_a_close_leaves_nothing_hanging() -> None:
    """asyncio.run() cancels what is left: that is reported, and nothing is left pending."""
    script = """
        import asyncio
        from aioproducer import Producer
        from aioproducer.testing import FakeBroker

        async def main():
            producer = await Producer(broker.bootstrap_servers, linger_ms=10_000).start()
            await producer.send("orders", b"one")
            await producer.enqueue("orders", b"two")

        with FakeBroker(topics={"orders": 1}) as broker:
            asyncio.run(main())
            print("ended")
    """
    output = run_script(script, "-X", "dev")

    assert "never retrieved" not in output
    assert "never awaited" not in output
    assert "destroyed" not in output


async def test_a_closed_producer_is_collected(broker: FakeBroker) -> None:
    producer = Producer(broker.bootstrap_servers, **QUICK)
    async with producer:
        await producer.send("orders", b"value")
        engine = weakref.ref(producer._engine)
    gone = weakref.ref(producer)
    del producer
    await asyncio.sleep(0)
    gc.collect()

    assert gone() is None
    assert engine() is None


class FlushingInterceptor:
    """Flushes when a record is acknowledged, and waits for it."""

    def __init__(self) -> None:
        self.producer: Producer | None = None
        self.flushed = 0

    async def on_acknowledgement(self, metadata: object, error: object, headers: object) -> None:
        assert self.producer is not None
        await self.producer.flush(30)
        self.flushed += 1


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_a_flush_in_a_callback_or_an_interceptor_does_not_deadlock(
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def main() -> None:
        interceptor = FlushingInterceptor()
        flushes: list[asyncio.Task[None]] = []

        def delivered(delivery: Delivery) -> None:
            flushes.append(asyncio.ensure_future(producer.flush(30)))

        async with opened(broker, interceptors=[interceptor], linger_ms=1000) as producer:
            interceptor.producer = producer
            for _ in range(5):
                await producer.enqueue("orders", b"value", on_delivery=delivered)
            await producer.flush(30)
            await until(lambda: len(flushes) == 5 and interceptor.flushed == 5)
            await asyncio.gather(*flushes)

    with FakeBroker(topics={"orders": 1}) as broker, asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


async def test_a_frozen_clock_stops_no_timer(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """As test libraries freeze it: the time module stands still, and the event loop's own clock goes on."""
    loop = asyncio.get_running_loop()
    now, wall = time.monotonic, time.time()
    monkeypatch.setattr(loop, "time", lambda: now())  # its own takes the time module's, which is to stand still
    clock = Clock()
    options: dict[str, Any] = {
        "request_timeout_ms": 20_000,
        "delivery_timeout_ms": 21_000,
        "linger_ms": 10,
        "metadata_max_age_ms": 30,
    }
    async with audited(broker, **options) as audit:
        await audit.send()
        frozen = now()
        for name, value in (("time", wall), ("monotonic", frozen), ("perf_counter", frozen)):
            monkeypatch.setattr(time, name, lambda value=value: value)
        monkeypatch.setattr(time, "time_ns", lambda: int(wall * 1e9))
        began = now()
        await audit.send()
        asked = broker.count("Metadata")
        await until(lambda: broker.count("Metadata") > asked + 1)
        broker.fail("Produce", "NOT_ENOUGH_REPLICAS", times=3)
        await audit.send()
        with broker.hold("Produce") as held:
            late = await audit.enqueue()
            await until(lambda: held.waiting)
            clock.advance(22)
            await audit.outcome(late)
        took = now() - began
        monkeypatch.undo()

    assert isinstance(late.outcome, UnknownTimeout)
    assert took < 30
    assert broker.records("orders")[1].timestamp_ms == int(wall * 1000)


async def test_a_clock_that_jumps_stops_no_timer(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.set_versions("3.9")  # does not mind timestamps of the future
    jumps = random.Random(1)
    monkeypatch.setattr(time, "time", lambda: jumps.uniform(0, 2e9))
    monkeypatch.setattr(time, "time_ns", lambda: jumps.randint(0, 1_700_000_000_000_000_000))
    async with audited(broker, linger_ms=5) as audit:
        for _ in range(50):
            await audit.enqueue()
            await asyncio.sleep(0.001)

    assert audit.acknowledged == 50


@pytest.mark.parametrize("loop_factory", LOOPS)
@pytest.mark.parametrize("seed", [15000, 15001])
def test_a_random_schedule_is_exact_on_every_kind_of_loop(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], seed: int
) -> None:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(run_schedule(seed))


async def test_a_callback_runs_in_the_loop_of_its_producer(broker: FakeBroker) -> None:
    threads: list[int] = []
    async with opened(
        broker, compression_type="zstd", compression_threshold_bytes=100, on_delivery_error=lambda _: note()
    ) as producer:

        def note(*_: object) -> None:
            threads.append(threading.get_ident())
            assert asyncio.get_running_loop() is loop

        loop = asyncio.get_running_loop()
        for number in range(10):
            if number == 5:
                broker.fail("Produce", "INVALID_RECORD", times=None)
            await producer.enqueue("orders", b"x" * 500, on_delivery=note)
            await producer.enqueue("orders", b"x" * 500)
            await producer.flush(30)
        await until(lambda: len(threads) >= 15)

    assert set(threads) == {threading.get_ident()}


async def test_an_unobserved_exception_is_logged_and_not_swallowed(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("from a callback")

    with caplog.at_level(logging.ERROR, "aioproducer"):
        async with opened(broker) as producer:
            await producer.send("orders", b"value", on_delivery=fail)
            await until(lambda: "ZeroDivisionError" in caplog.text)

            assert producer.health().alive
