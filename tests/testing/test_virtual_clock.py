"""The clock that a test puts forward: what is due runs, nothing else changes, and the event loop gets its own back."""

from __future__ import annotations

import asyncio
import time

import pytest
import uvloop

from aioproducer import Producer, UnknownTimeout
from aioproducer.testing import FakeBroker, VirtualClock
from tests.conftest import turns


async def test_due_timers_run_in_their_order(virtual_clock: VirtualClock) -> None:
    loop = asyncio.get_running_loop()
    ran: list[str] = []
    loop.call_later(20, ran.append, "second")
    loop.call_later(10, ran.append, "first")
    loop.call_later(1_000, ran.append, "never")
    before, wall = loop.time(), time.time()

    virtual_clock.advance(20)
    assert ran == [], "only when the caller awaits something"
    await turns(2)

    assert ran == ["first", "second"]
    assert loop.time() >= before + 20
    assert time.time() < wall + 20
    assert (virtual_clock.added, repr(virtual_clock)) == (20.0, "<VirtualClock: 20 s added>")


async def test_time_that_passes_in_steps_lets_things_happen_again_and_again(virtual_clock: VirtualClock) -> None:
    ticks: list[float] = []

    async def tick() -> None:
        while True:
            await asyncio.sleep(10)
            ticks.append(asyncio.get_running_loop().time())

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(tick())
        await turns(2)  # it sleeps now
        await virtual_clock.run(35, step_s=0.5)
        assert len(ticks) == 3
        virtual_clock.advance(35)
        await turns(4)
        assert len(ticks) == 4, "all of it at once"
        task.cancel()


async def test_a_producer_s_time_outs_follow_it(broker: FakeBroker, virtual_clock: VirtualClock) -> None:
    async with Producer(broker.bootstrap_servers, delivery_timeout_ms=120_000) as producer:
        await producer.send("orders", b"1")
        with broker.hold("Produce"):
            delivery = await producer.enqueue("orders", b"2")
            await virtual_clock.run(29)
            assert not delivery.done()
            virtual_clock.advance(91)
            with pytest.raises(UnknownTimeout):
                await delivery


async def test_the_event_loop_gets_its_clock_back() -> None:
    loop = asyncio.get_running_loop()
    before = loop.time()
    with VirtualClock() as clock:
        clock.advance(1e6)
        assert loop.time() >= before + 1e6
    assert before <= loop.time() < before + 1e6
    assert clock.added == 0.0
    clock.restore()

    clock.advance(5)
    assert clock.added == 5.0, "it can be used again"
    clock.restore()


def test_it_moves_with_the_test_into_the_next_event_loop() -> None:
    async def advanced() -> float:
        clock.advance(100)
        return clock.added

    with VirtualClock() as clock:
        assert asyncio.run(advanced()) == 100.0
        assert asyncio.run(advanced()) == 100.0, "a new loop starts with nothing added"


async def test_two_clocks_of_one_loop_are_refused(virtual_clock: VirtualClock) -> None:
    virtual_clock.advance(1)
    with pytest.raises(RuntimeError, match="one VirtualClock at a time"):
        VirtualClock().advance(1)


def test_uvloop_is_refused() -> None:
    async def advance() -> None:
        VirtualClock().advance(1)

    with (
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        pytest.raises(RuntimeError, match="clock of uvloop's event loop cannot be replaced"),
    ):
        runner.run(advance())


async def test_a_clock_does_not_go_back(virtual_clock: VirtualClock) -> None:
    with pytest.raises(ValueError, match="0 or more seconds, not -1"):
        virtual_clock.advance(-1)
    with pytest.raises(ValueError, match="0 or more seconds, not nan"):
        await virtual_clock.run(float("nan"))
    with pytest.raises(ValueError, match="longer than 0 seconds, not 0"):
        await virtual_clock.run(1, step_s=0)


def test_it_needs_a_running_event_loop() -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        VirtualClock().advance(1)
