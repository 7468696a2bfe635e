"""The pool's promises: exact accounting whatever happens, first come first served, one wake-up for each share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aioproducer.accumulator.buffer_pool import BufferPool, PoolClosed
from tests.conftest import Clock


async def take(pool: BufferPool, size: int, log: list[int] | None = None, name: int = 0) -> None:
    await pool.wait(pool.join(size))
    if log is not None:
        log.append(name)


async def test_free_memory_is_handed_out_at_once() -> None:
    pool = BufferPool(100)

    assert pool.try_acquire(60)
    assert not pool.try_acquire(41)
    assert pool.try_acquire(40)

    assert (pool.free, pool.used) == (0, 100)


async def test_waiters_are_served_in_the_order_in_which_they_came() -> None:
    pool = BufferPool(100)
    assert pool.try_acquire(100)
    served: list[int] = []
    tasks = [asyncio.create_task(take(pool, 30, served, name)) for name in range(6)]
    await asyncio.sleep(0)

    for _ in range(6):
        pool.release(30)
        await asyncio.sleep(0)

    await asyncio.gather(*tasks)
    assert served == [0, 1, 2, 3, 4, 5]


async def test_a_newcomer_does_not_overtake_a_waiter_who_was_granted_and_has_not_run_yet() -> None:
    pool = BufferPool(100)
    assert pool.try_acquire(100)
    waiter = asyncio.create_task(take(pool, 10))
    await asyncio.sleep(0)

    pool.release(100)  # the waiter has its share now, and runs in the next round of the loop

    assert not pool.try_acquire(10)
    await waiter
    assert pool.try_acquire(10)


async def test_a_large_waiter_is_not_starved_by_small_ones() -> None:
    pool = BufferPool(100)
    assert pool.try_acquire(100)
    served: list[int] = []
    large = asyncio.create_task(take(pool, 100, served, 1))
    small = asyncio.create_task(take(pool, 1, served, 2))
    await asyncio.sleep(0)

    for _ in range(10):
        pool.release(10)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    assert served == [1]
    await large
    pool.release(100)
    await small


async def test_a_release_wakes_only_those_who_get_their_share() -> None:
    pool = BufferPool(1000)
    assert pool.try_acquire(1000)
    tasks = [asyncio.create_task(take(pool, 100)) for _ in range(500)]
    await asyncio.sleep(0)

    pool.release(300)

    assert pool.grants == 3
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_cancelled_waiter_leaves_its_place_to_the_next() -> None:
    pool = BufferPool(100)
    assert pool.try_acquire(100)
    large = asyncio.create_task(take(pool, 100))
    small = asyncio.create_task(take(pool, 10))
    await asyncio.sleep(0)
    pool.release(50)

    large.cancel()
    await asyncio.gather(large, return_exceptions=True)
    await small

    assert (pool.free, pool.waiting) == (40, 0)


async def test_a_waiter_cancelled_after_the_grant_gives_the_bytes_back() -> None:
    pool = BufferPool(100)
    assert pool.try_acquire(100)
    waiter = asyncio.create_task(take(pool, 70))
    await asyncio.sleep(0)
    pool.release(100)

    waiter.cancel()
    await asyncio.gather(waiter, return_exceptions=True)

    assert (pool.free, pool.waiting) == (100, 0)


async def test_leaving_before_waiting_gives_the_place_back() -> None:
    pool = BufferPool(100)
    granted = pool.join(60)
    queued = pool.join(60)

    pool.leave(granted)
    pool.leave(queued)

    assert (pool.free, pool.waiting) == (100, 0)


async def test_closing_fails_those_who_wait_and_those_who_come() -> None:
    pool = BufferPool(10)
    assert pool.try_acquire(10)
    waiter = asyncio.create_task(take(pool, 5))
    await asyncio.sleep(0)

    pool.close()

    with pytest.raises(PoolClosed):
        await waiter
    with pytest.raises(PoolClosed):
        await take(pool, 5)
    assert not pool.try_acquire(1)
    pool.release(10)
    assert (pool.free, pool.waiting) == (10, 0)


async def test_a_closed_pool_has_nothing_for_a_newcomer() -> None:
    pool = BufferPool(100)

    pool.close()

    assert pool.try_acquire(1) is False
    assert (pool.free, pool.waiting) == (100, 0)


async def test_pressure_is_reported_when_a_caller_begins_to_wait() -> None:
    reported: list[int] = []
    pool = BufferPool(10, lambda: reported.append(1))
    await take(pool, 10)
    assert reported == []

    waiters = [asyncio.create_task(take(pool, 5)) for _ in range(3)]
    await asyncio.sleep(0)

    assert reported == [1]
    for waiter in waiters:
        waiter.cancel()
    await asyncio.gather(*waiters, return_exceptions=True)


async def test_waiters_that_gave_up_behind_a_large_one_do_not_pile_up() -> None:
    pool = BufferPool(100)
    assert pool.try_acquire(100)
    served: list[int] = []
    large = asyncio.create_task(take(pool, 100, served, 0))
    await asyncio.sleep(0)
    last: list[asyncio.Task[None]] = []
    for name in range(10_000):
        ticket = pool.join(1)
        if name % 1000 == 999:
            last.append(asyncio.create_task(take(pool, 1, served, name)))
            await asyncio.sleep(0)
        pool.leave(ticket)
        assert len(pool._queue) < 200

    pool.release(100)
    await large
    pool.release(100)
    await asyncio.gather(*last)
    assert served == [0, *range(999, 10_000, 1000)]
    assert (pool.free, pool.waiting) == (90, 0)


async def cancel_at_every_step(make: Callable[[], Awaitable[object]], check: Callable[[], None]) -> None:
    """Run make() again and again, cancelling it one step of the event loop later each time; check() after each."""
    for steps in range(1000):
        task = asyncio.ensure_future(make())
        for _ in range(steps):
            await asyncio.sleep(0)
        finished = task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        check()
        if finished:
            return
    raise AssertionError("it never finished")


async def test_cancelling_at_any_step_loses_no_byte() -> None:
    pool = BufferPool(100)

    async def use() -> None:
        assert pool.try_acquire(80)
        releasing = asyncio.get_running_loop().call_soon(pool.release, 80)
        try:
            await take(pool, 90)
            pool.release(90)
        finally:
            if not releasing.cancelled() and pool.used >= 80:
                releasing.cancel()
                pool.release(80)

    def check() -> None:
        assert (pool.free, pool.waiting) == (100, 0)

    await cancel_at_every_step(use, check)


@settings(max_examples=60, deadline=None)
@example([("take", 41), ("take", 60), ("take", 1), ("cancel", 1), ("take", 1), ("take", 1)])
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("take"), st.integers(1, 60)),
            st.tuples(st.just("cancel"), st.integers(0, 20)),
            st.tuples(st.just("give"), st.integers(0, 20)),
            st.tuples(st.just("run"), st.integers(0, 3)),
        ),
        max_size=60,
    )
)
def test_after_quiet_everything_is_free_again(steps: list[tuple[str, int]]) -> None:
    """Random takes, cancellations and releases: bytes are never lost, and grants follow the order of arrival."""

    async def play() -> None:
        pool = BufferPool(100)
        tasks: list[asyncio.Task[int]] = []
        served: list[int] = []
        held: list[int] = []

        async def hold(name: int, size: int) -> int:
            def note(granted: asyncio.Future[None]) -> None:
                if not granted.cancelled():
                    served.append(name)

            ticket = pool.join(size)
            # In the order in which they are granted; who takes what is free at once may run before a waiter has woken up.
            ticket.granted.add_done_callback(note)
            await pool.wait(ticket)
            held.append(size)
            return size

        for action, number in steps:
            if action == "take":
                tasks.append(asyncio.create_task(hold(len(tasks), number)))
                await asyncio.sleep(0)
            elif action == "cancel" and tasks:
                tasks[number % len(tasks)].cancel()
            elif action == "give" and held:
                pool.release(held.pop(number % len(held)))
            elif action == "run":
                for _ in range(number):
                    await asyncio.sleep(0)
            assert 0 <= pool.free <= pool.total
        for task in tasks:
            if not task.done():
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        while held:
            pool.release(held.pop())
        assert (pool.free, pool.waiting) == (100, 0)
        assert served == sorted(served)

    asyncio.run(play())


async def test_memory_that_was_granted_and_not_used_when_the_pool_closed_is_taken_back() -> None:
    pool = BufferPool(100)
    assert pool.try_acquire(100)
    ticket = pool.join(60)
    waiting = asyncio.create_task(pool.wait(ticket))
    await asyncio.sleep(0)

    pool.release(100)
    assert ticket.is_granted
    pool.close()

    with pytest.raises(PoolClosed):
        await waiting
    assert (pool.free, pool.waiting) == (100, 0)


async def test_the_time_of_each_wait_is_noted_and_no_other() -> None:
    waited: list[float] = []
    clock = Clock()
    clock.advance(10_000)  # the time itself cannot pass for a time that was waited
    pool = BufferPool(100, on_waited=waited.append)
    await pool.wait(pool.join(60))
    assert waited == []

    second, third = pool.join(60), pool.join(40)
    clock.advance(60)
    pool.leave(third)
    clock.advance(60)
    pool.release(60)
    await pool.wait(second)

    assert len(waited) == 2
    assert 60 <= waited[0] < 120
    assert 120 <= waited[1] < 180
