"""The pulse measures how late the event loop runs, blames a block for what it made late, and rests when nothing waits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from aioproducer import NotWrittenTimeout, Producer, UnknownTimeout
from aioproducer.errors import KafkaTimeoutError
from aioproducer.runtime.log import ClientLog
from aioproducer.runtime.pulse import BEAT_S, Pulse
from aioproducer.testing import FakeBroker
from tests.conftest import Clock, opened, turns, until

BLOCKED = "The event loop was blocked for"


def still(pulse: Pulse) -> bool:
    """Whether it rests: a call, because mypy believes that an attribute stays what it was."""
    return pulse.is_still


class Rhythm:
    """A pulse whose clock the test moves, and what it has measured."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.loop_clock = Clock()
        self.needed = True
        self.on_needed: Callable[[], object] = lambda: None
        self.lags: list[float] = []
        self.changes = 0
        self.pulse = Pulse(
            asyncio.get_running_loop(),
            ClientLog("shop"),
            self._is_needed,
            self.lags.append,
            self._change,
            clock=lambda: self.now,
        )

    def _is_needed(self) -> bool:
        self.on_needed()
        return self.needed

    def _change(self) -> None:
        self.changes += 1

    async def beat(self, after_s: float = BEAT_S) -> None:
        self.now += after_s
        self.loop_clock.advance(after_s)
        await turns(3)


async def test_each_beat_measures_how_late_it_is() -> None:
    rhythm = Rhythm()
    rhythm.pulse.start()

    for after_s in (0.1, 0.35, 0.1, 4.1):
        await rhythm.beat(after_s)
    rhythm.pulse.stop()

    assert rhythm.lags == pytest.approx([0, 0.25, 0, 4.0])


async def test_it_rests_when_nothing_has_been_needed_for_three_seconds_and_begins_again() -> None:
    rhythm = Rhythm()
    rhythm.pulse.start()
    for _ in range(50):
        await rhythm.beat()
    assert not still(rhythm.pulse)

    rhythm.needed = False
    for _ in range(29):
        await rhythm.beat()
    assert not still(rhythm.pulse)
    await rhythm.beat()
    assert still(rhythm.pulse)
    assert (len(rhythm.lags), rhythm.changes) == (80, 2)
    await rhythm.beat()
    assert len(rhythm.lags) == 80, "no timer runs"

    rhythm.pulse.start()
    assert rhythm.changes == 3
    await rhythm.beat()
    assert len(rhythm.lags) == 81
    rhythm.pulse.stop()


async def test_a_block_is_blamed_for_all_that_it_made_late_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    rhythm = Rhythm()
    now = asyncio.get_running_loop().time
    rhythm.pulse.start()
    before = now()
    await rhythm.beat(0.9)
    assert rhythm.pulse.blame(before, now()) == "", "a short one is not worth a word"

    began = now()
    await rhythm.beat(3.1)
    blocked_until = now()
    await rhythm.beat()

    assert rhythm.pulse.blame(began, now()).startswith(f"{BLOCKED} 3.0 s of that time, so responses")
    assert rhythm.pulse.blame(before, now()).startswith(f"{BLOCKED} 3.8 s"), "short ones count together"
    assert rhythm.pulse.blame(blocked_until - 1.5, now()).startswith(f"{BLOCKED} 1.5 s"), "only what overlaps"
    assert rhythm.pulse.blame(blocked_until + 0.05, now()) == "", "it began after the block"
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "asyncio.to_thread" in caplog.text

    await rhythm.beat(2.1)
    assert rhythm.pulse.blame(began, now()).startswith(f"{BLOCKED} 5.0 s")
    assert len(caplog.records) == 2, "another block is another line"
    rhythm.pulse.stop()


async def test_a_block_that_took_the_smaller_part_of_the_time_is_named_and_not_blamed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rhythm = Rhythm()
    began = asyncio.get_running_loop().time()
    rhythm.pulse.start()
    await rhythm.beat(1.3)
    for _ in range(30):
        await rhythm.beat()

    assert rhythm.pulse.blame(began, asyncio.get_running_loop().time()) == f"{BLOCKED} 1.2 s of that time."
    assert not caplog.records
    rhythm.pulse.stop()


async def test_a_block_that_no_beat_has_measured_yet_counts_once() -> None:
    rhythm = Rhythm()
    now = asyncio.get_running_loop().time
    began = now()
    rhythm.pulse.start()
    rhythm.now += 2.1
    rhythm.loop_clock.advance(2.1)
    assert rhythm.pulse.blame(began, now()).startswith(f"{BLOCKED} 2.0 s")

    in_the_beat: list[str] = []
    rhythm.on_needed = lambda: in_the_beat.append(rhythm.pulse.blame(began, now()))  # as another thread may ask
    await turns(3)
    rhythm.pulse.stop()
    assert [text[:36] for text in in_the_beat] == [f"{BLOCKED} 2.0 s"]


# -- in a producer ----------------------------------------------------------------------------------------------------


def block(producer: Producer, clock: Clock, seconds: float) -> None:
    """Let the event loop look as if a call had blocked it for so long."""
    pulse = producer._usable().pulse
    before = pulse.clock
    pulse.clock = lambda: before() + seconds
    clock.advance(seconds)


async def test_the_timeouts_of_records_name_a_blocked_event_loop(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    async with opened(broker, delivery_timeout_ms=20_000, request_timeout_ms=15_000) as producer:
        await producer.send("orders", b"value", partition=0)
        with broker.hold("Produce"):
            delivery = await producer.enqueue("orders", b"value", partition=0)
            flush = asyncio.ensure_future(producer.flush(14))
            send = asyncio.ensure_future(producer.send("orders", b"value", partition=1, timeout=14))
            await turns()
            batches = producer._usable().accumulator.outcomes.incomplete
            await until(lambda: all(batch.is_in_flight for batch in batches))
            block(producer, clock, 14.5)
            with pytest.raises(KafkaTimeoutError, match=BLOCKED):
                await flush
            with pytest.raises(UnknownTimeout, match=BLOCKED):
                await send
            clock.advance(6)
            with pytest.raises(
                UnknownTimeout, match=rf"{BLOCKED} 14\.\d s of that time, so responses could not be read"
            ):
                await delivery

    assert ["asyncio.to_thread" in message for message in caplog.messages].count(True) == 1


async def test_a_wait_for_a_topic_that_a_block_made_late_names_it(broker: FakeBroker) -> None:
    clock = Clock()
    async with opened(broker, max_block_ms=10_000, request_timeout_ms=3_600_000) as producer:
        await producer.ready()
        with broker.hold("Metadata") as hold:
            send = asyncio.ensure_future(producer.send("orders", b"value"))
            await until(lambda: hold.waiting)
            block(producer, clock, 11)
            with pytest.raises(NotWrittenTimeout, match=BLOCKED):
                await send


async def test_a_timeout_in_an_event_loop_that_runs_does_not_blame_it(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    async with opened(broker, delivery_timeout_ms=20_000, request_timeout_ms=15_000) as producer:
        await producer.send("orders", b"value", partition=0)
        with broker.hold("Produce") as held:
            delivery = await producer.enqueue("orders", b"value", partition=0)
            await until(lambda: held.waiting)
            clock.advance(21)
            with pytest.raises(UnknownTimeout) as raised:
                await delivery

    assert "blocked" not in str(raised.value) + caplog.text


async def test_an_idle_producer_has_no_timer_for_it(broker: FakeBroker) -> None:
    clock = Clock()
    async with opened(broker) as producer:
        await producer.send("orders", b"value")
        pulse = producer._usable().pulse
        for _ in range(200):
            clock.advance(BEAT_S)
            await turns(2)
        assert still(pulse)

        await producer.send("orders", b"value")
        assert not still(pulse)
    assert still(pulse), "nor has one that is closed"
