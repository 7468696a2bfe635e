"""All waiters for records of a batch are woken at once, and as if each had a future."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import sys
from asyncio import tasks as asyncio_tasks
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest

from tests.hot.calls import Waiting, pause
from tests.hot.twins import PLENTY, Twin, each_twin

NAME: contextvars.ContextVar[str] = contextvars.ContextVar("NAME")


async def by_send(world: Waiting) -> int:
    return int((await world.sent()).offset)


async def by_delivery(world: Waiting) -> int:
    return int((await (await world.shortly())).offset)


each_wait = pytest.mark.parametrize("wait", [by_send, by_delivery])


@each_twin
@each_wait
async def test_tasks_are_woken_in_the_order_of_their_records(twin: Twin, wait: Callable[[Any], Any]) -> None:
    world = Waiting(twin)
    world.limit = PLENTY
    woken: list[int] = []

    async def work() -> None:
        woken.append(await wait(world))

    running = [asyncio.create_task(work()) for _ in range(50)]
    await pause()
    world.results[0].succeed(0)
    await asyncio.gather(*running)

    assert woken == list(range(50))


@each_twin
@each_wait
async def test_each_is_woken_in_its_own_context(twin: Twin, wait: Callable[[Any], Any]) -> None:
    world = Waiting(twin)
    seen: list[str] = []

    async def work(name: str) -> None:
        NAME.set(name)
        await wait(world)
        seen.append(NAME.get())
        NAME.set("this context's")

    running = [asyncio.create_task(work(name)) for name in "abc"]
    await pause()
    world.results[0].succeed(0)
    await asyncio.gather(*running)

    assert seen == ["a", "b", "c"]
    assert NAME.get("unset") == "unset"


@each_twin
@each_wait
async def test_tasks_may_share_a_context(twin: Twin, wait: Callable[[Any], Any]) -> None:
    world = Waiting(twin)
    shared = contextvars.copy_context()

    running = [asyncio.get_running_loop().create_task(wait(world), context=shared) for _ in range(3)]
    await pause()
    world.results[0].succeed(0)

    assert await asyncio.gather(*running) == [0, 1, 2]


@each_twin
@each_wait
async def test_one_that_is_woken_may_cancel_the_next_one(twin: Twin, wait: Callable[[Any], Any]) -> None:
    world = Waiting(twin)

    async def first() -> None:
        await wait(world)
        second.cancel("not needed any more")

    running = asyncio.create_task(first())
    await pause()
    second = asyncio.create_task(wait(world))
    await pause()
    world.results[0].succeed(0)
    await running

    with pytest.raises(asyncio.CancelledError, match="not needed any more"):
        await second


@each_twin
@each_wait
async def test_a_cancellation_keeps_its_message(twin: Twin, wait: Callable[[Any], Any]) -> None:
    world = Waiting(twin)

    task = asyncio.create_task(wait(world))
    await pause()
    task.cancel("why")
    with pytest.raises(asyncio.CancelledError, match="why"):
        await task

    world.results[0].succeed(0)
    await pause()


@each_twin
@each_wait
def test_one_that_ends_the_event_loop_does_not_cost_the_others_their_turn(
    twin: Twin, wait: Callable[[Any], Any]
) -> None:
    loop = asyncio.new_event_loop()
    ended: list[str] = []
    tasks: list[asyncio.Task[None]] = []

    async def work(world: Waiting, name: str) -> None:
        await wait(world)
        ended.append(name)
        if name == "a":
            raise SystemExit("a has had enough")

    async def begin() -> None:
        world = Waiting(twin)
        tasks.extend(asyncio.create_task(work(world, name)) for name in "abc")
        await pause()
        world.results[0].succeed(0)
        await pause()

    with pytest.raises(SystemExit, match="a has had enough"):
        loop.run_until_complete(begin())
    loop.run_until_complete(pause())
    loop.close()

    assert ended == ["a", "b", "c"]
    assert isinstance(tasks[0].exception(), SystemExit)


def waiters_kept() -> int:
    gc.collect()
    return sum(type(each).__name__ in ("Waiter", "Future") for each in gc.get_objects())


@each_twin
async def test_waits_that_are_given_up_again_and_again_do_not_pile_up(twin: Twin) -> None:
    world = Waiting(twin)
    delivery = await world.shortly()
    waiting = [asyncio.create_task(by_send(world)) for _ in range(3)]

    async def wait() -> None:
        await delivery

    await pause()
    before = waiters_kept()
    for _ in range(100):
        task = asyncio.create_task(wait())
        await pause()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    assert waiters_kept() - before < 30
    world.results[0].succeed(0)
    assert await asyncio.gather(*waiting) == [1, 2, 3]


def step(work: Any) -> Any:
    """Takes the first step of a coroutine; returns what it waits for."""
    return work.send(None)


@each_twin
@each_wait
async def test_one_that_is_called_back_may_let_the_event_loop_run_until_another_one_is(
    twin: Twin, wait: Callable[[Any], Any]
) -> None:
    world, loop = Waiting(twin), asyncio.get_running_loop()
    works = [wait(world), wait(world)]
    first, second = map(step, works)
    called: list[str] = []

    def let_it_run(_: object) -> None:
        """The work to do, as nest_asyncio does within the turn of a task."""
        for handle in list(loop._ready):  # type: ignore[attr-defined]
            handle._run()
            handle.cancel()
        called.append("first")

    first.add_done_callback(let_it_run)
    second.add_done_callback(lambda _: called.append("second"))
    world.results[0].succeed(0)
    await pause()

    assert called == ["second", "first"]
    for work in works:
        work.close()


@each_twin
@each_wait
async def test_a_task_can_be_cancelled_after_its_coroutine_was_closed(twin: Twin, wait: Callable[[Any], Any]) -> None:
    work = wait(Waiting(twin))
    task = asyncio.create_task(work)
    await pause()
    work.close()

    task.cancel()
    await asyncio.wait([task], timeout=10)

    assert isinstance(task.exception(), RuntimeError)  # it was closed already


@each_twin
@each_wait
async def test_a_cancel_scope_of_anyio_leaves_an_outcome_that_is_known(twin: Twin, wait: Callable[[Any], Any]) -> None:
    world = Waiting(twin)
    scope = anyio.CancelScope()

    async def work() -> int | None:
        with scope:
            return int(await wait(world))
        return None

    task = asyncio.create_task(work())
    await pause()
    world.results[0].succeed(0)
    scope.cancel()

    assert await task == 0
    assert not scope.cancelled_caught


def succeed(result: Any) -> None:
    result.succeed(0)


def split(result: Any) -> None:
    """Hand all records over to one that is known at once."""
    part = type(result)(result.partition)
    result.parts, result.is_split = [part] * 2, True
    for _, waiter in result.take_waiters():
        part.keep(0, waiter)
    part.succeed(0)


@each_twin
@each_wait
@pytest.mark.parametrize("decided", [succeed, split])
async def test_an_outcome_that_the_collector_brings_while_the_wait_begins_is_not_missed(
    twin: Twin, wait: Callable[[Any], Any], decided: Callable[[Any], None]
) -> None:
    for threshold in range(1, 60):
        world = Waiting(twin)
        first = world.sent()
        step(first)
        work, result, times = wait(world), world.results[0], [0]

        def decide(phase: str, _: object, result: Any = result, times: list[int] = times) -> None:
            if phase == "stop" and not times[0]:
                times[0] = 1
                decided(result)

        before = gc.get_threshold()
        gc.collect(0)  # the count to the threshold begins again
        gc.callbacks.append(decide)
        gc.set_threshold(threshold, 10, 10)
        try:
            waiter = step(work)
        except StopIteration:
            waiter = None  # the outcome was known before it began to wait
        finally:
            gc.set_threshold(*before)
            gc.callbacks.remove(decide)
        await pause()

        assert waiter is None or waiter.done() == bool(times[0])
        first.close()
        work.close()


@each_twin
@each_wait
async def test_the_tasks_of_python_wait_as_those_of_c_do(twin: Twin, wait: Callable[[Any], Any]) -> None:
    world = Waiting(twin)
    python_task: Any = asyncio_tasks._PyTask  # type: ignore[attr-defined]

    def run(work: Coroutine[Any, Any, int]) -> Any:
        return python_task(work, loop=asyncio.get_running_loop())

    first, second, third = run(wait(world)), run(wait(world)), run(wait(world))
    await pause()
    second.cancel("why")
    await pause()
    world.results[0].succeed(0)

    assert (await first, await third) == (0, 2)
    with pytest.raises(asyncio.CancelledError, match="why"):
        await second


@each_twin
@each_wait
async def test_the_representation_of_a_task_names_what_it_waits_for(twin: Twin, wait: Callable[[Any], Any]) -> None:
    world = Waiting(twin)
    reported: list[object] = []

    task = asyncio.create_task(wait(world))
    await pause()
    waiter: Any = task._fut_waiter  # type: ignore[attr-defined]  # as debuggers look for it
    assert "wait_for=<" in repr(task)
    assert "pending" in repr(waiter)
    assert waiter.get_loop() is asyncio.get_running_loop()
    with pytest.raises(asyncio.InvalidStateError):
        waiter.result()
    removed: Callable[[object], object] = lambda _: reported.append("removed")  # noqa: E731
    waiter.add_done_callback(reported.append)
    waiter.add_done_callback(removed)
    assert waiter.remove_done_callback(removed) == 1
    world.results[0].succeed(0)
    assert await task == 0
    waiter.add_done_callback(reported.append)
    await pause()

    assert reported == [waiter, waiter]
    assert (waiter.done(), waiter.cancelled(), waiter.cancel(), waiter.exception()) == (True, False, False, None)
    with pytest.raises(asyncio.InvalidStateError):
        waiter.set_result(None)


@each_twin
@each_wait
async def test_in_debug_mode_it_is_no_different(twin: Twin, wait: Callable[[Any], Any]) -> None:
    asyncio.get_running_loop().set_debug(True)
    world = Waiting(twin)

    task = asyncio.create_task(wait(world))
    await pause()
    world.results[0].succeed(0)

    assert await task == 0


if sys.version_info >= (3, 12):

    @each_twin
    @each_wait
    async def test_an_eager_task_waits_from_its_making_on(twin: Twin, wait: Callable[[Any], Any]) -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined,unused-ignore]
        world = Waiting(twin)

        task = asyncio.create_task(wait(world))
        assert world.count == 1
        world.results[0].succeed(0)

        assert await task == 0
