"""``enqueue()`` returns a coroutine in both twins: to await, to run as a task, to cancel, to drop."""

from __future__ import annotations

import asyncio
import cProfile
import gc
import inspect
import sys
import traceback
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import create_autospec

import anyio
import pytest

from aioproducer import Producer
from tests.hot.calls import Waiting, each_way, is_coroutine_function, pause
from tests.hot.twins import Twin, each_twin

# -- to await ----------------------------------------------------------------------------------------------------------


@each_twin
@each_way
async def test_a_call_that_need_not_wait_answers_the_delivery(twin: Twin, way: Callable[[Any], Any]) -> None:
    world = Waiting(twin)

    first = await way(world.shortly())
    second = await way(world.shortly())

    assert isinstance(first, twin.delivery)
    assert (first.index, second.index, world.count) == (0, 1, 2)


@each_twin
@each_way
async def test_a_call_that_waits_answers_when_it_may_go_on(twin: Twin, way: Callable[[Any], Any]) -> None:
    world = Waiting(twin)

    waiting = asyncio.ensure_future(way(world.slowly()))
    await pause()
    assert not waiting.done()
    world.gate.set()

    assert await waiting == b"x"


@each_twin
@each_way
async def test_an_error_comes_out_as_it_is_with_the_place_where_it_was_raised(
    twin: Twin, way: Callable[[Any], Any]
) -> None:
    world = Waiting(twin)

    try:
        await way(world.slowly(b"bad"))
    except Exception as raised:
        error: Exception = raised
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]

    assert repr(error) == "ValueError('bad')"
    assert "slow_path" in [frame.name for frame in traceback.extract_tb(error.__traceback__)]


@each_twin
async def test_anyio_starts_it_as_a_task(twin: Twin) -> None:
    world = Waiting(twin)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: world.shortly())
        tasks.start_soon(lambda: world.shortly())

    assert world.count == 2


if sys.version_info >= (3, 12):  # eager tasks came with it

    @each_twin
    async def test_it_runs_as_an_eager_task(twin: Twin) -> None:
        world = Waiting(twin)
        loop: Any = asyncio.get_running_loop()
        loop.set_task_factory(getattr(asyncio, "eager_task_factory"))  # noqa: B009

        short, slow = asyncio.ensure_future(world.shortly()), asyncio.ensure_future(world.slowly())
        assert short.done()
        world.gate.set()

        assert await slow == b"x"


@each_twin
async def test_nothing_happens_before_it_is_awaited(twin: Twin) -> None:
    world = Waiting(twin)

    call = world.shortly()
    assert world.count == 0
    await call

    assert world.count == 1


# -- to cancel ---------------------------------------------------------------------------------------------------------


@each_twin
@pytest.mark.parametrize("slow", [False, True])
async def test_cancelled_before_its_first_step_it_buffers_nothing(twin: Twin, slow: bool) -> None:
    world = Waiting(twin)

    task: asyncio.Task[object] = asyncio.create_task(world.slowly() if slow else world.shortly())
    task.cancel()
    [cancelled] = await asyncio.gather(task, return_exceptions=True)
    world.gate.set()
    await pause()

    assert isinstance(cancelled, asyncio.CancelledError)
    assert (world.count, world.buffered) == (0, [])


@each_twin
async def test_cancelled_while_it_waits_it_buffers_nothing(twin: Twin) -> None:
    world = Waiting(twin)

    task: asyncio.Task[object] = asyncio.create_task(world.slowly())
    await pause()
    task.cancel()
    [cancelled] = await asyncio.gather(task, return_exceptions=True)
    world.gate.set()
    await pause()

    assert isinstance(cancelled, asyncio.CancelledError)
    assert (world.count, world.buffered) == (0, [])


@each_twin
async def test_a_timeout_ends_the_wait(twin: Twin) -> None:
    world = Waiting(twin)

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(world.slowly(), 0)
    with anyio.move_on_after(0) as scope:
        await world.slowly()
    world.gate.set()
    await pause()

    assert scope.cancelled_caught
    assert world.buffered == []


# -- as a generator has it ---------------------------------------------------------------------------------------------


@each_twin
async def test_it_is_awaited_once(twin: Twin) -> None:
    world = Waiting(twin)
    world.gate.set()

    for call in (world.shortly(), world.slowly()):
        await call
        with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
            await call
        with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
            call.send(None)
        with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
            call.throw(ValueError)
        call.close()

    assert world.count == 1


@each_twin
async def test_it_is_awaited_by_one_at_a_time(twin: Twin) -> None:
    world = Waiting(twin)
    call = world.slowly()
    task = asyncio.create_task(call)
    await pause()

    with pytest.raises(RuntimeError, match="coroutine is being awaited already"):
        await call
    world.gate.set()

    assert await task == b"x"


@each_twin
async def test_a_value_cannot_be_sent_before_it_began(twin: Twin) -> None:
    world = Waiting(twin)
    call = world.shortly()

    with pytest.raises(TypeError, match="can't send non-None value to a just-started coroutine"):
        call.send(1)

    await call
    assert world.count == 1


@each_twin
@pytest.mark.parametrize("slow", [False, True])
async def test_an_exception_thrown_in_before_the_start_is_raised_and_ends_the_call(twin: Twin, slow: bool) -> None:
    world = Waiting(twin)
    for thrown in ((KeyError,), (KeyError("x"),), (KeyError, KeyError("x")), (KeyError, "x"), (KeyError, None, None)):
        call = world.slowly() if slow else world.shortly()

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of three arguments, from Python 3.12 on
            with pytest.raises(KeyError):
                call.throw(*thrown)
        with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
            call.send(None)

    assert world.count == 0


@each_twin
async def test_an_exception_thrown_in_during_the_wait_is_raised_and_ends_the_call(twin: Twin) -> None:
    world = Waiting(twin)
    call = world.slowly()
    call.send(None)

    with pytest.raises(KeyError):
        call.throw(KeyError("x"))

    with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
        call.send(None)


@each_twin
async def test_an_object_that_is_not_an_exception_cannot_be_thrown_in(twin: Twin) -> None:
    world = Waiting(twin)
    call = world.slowly()
    call.send(None)

    with pytest.raises(TypeError):
        call.throw(5)
    call.close()


@each_twin
async def test_closed_it_buffers_nothing_and_warns_of_nothing(twin: Twin) -> None:
    world = Waiting(twin)
    begun = world.slowly()
    begun.send(None)

    for call in (world.shortly(), world.slowly(), begun):
        call.close()
        call.close()
        with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
            call.send(None)
    world.gate.set()
    await pause()
    del call, begun
    gc.collect()

    assert (world.count, world.buffered) == (0, [])


@each_twin
async def test_a_close_that_closes_it_again_does_no_harm(twin: Twin) -> None:
    world = Waiting(twin)

    class Closing:
        call: Any = None

        def __call__(self, delivery: object) -> None: ...

        def __del__(self) -> None:
            closing.append(self.call)
            self.call.close()

    closing: list[Any] = []
    callback = Closing()
    call = callback.call = world.long.enqueue("unknown", on_delivery=callback)
    del callback

    call.close()
    closing.clear()
    del call
    gc.collect()


# -- to forget ---------------------------------------------------------------------------------------------------------


@each_twin
async def test_never_awaited_it_warns_and_buffers_nothing(twin: Twin) -> None:
    world = Waiting(twin)

    for make in (world.shortly, world.slowly):
        with pytest.warns(RuntimeWarning, match=r"coroutine 'Producer\.enqueue' was never awaited") as warned:
            make()
        assert [each.filename for each in warned] == [__file__]

    assert world.count == 0


@each_twin
async def test_never_awaited_it_warns_also_where_only_the_collector_finds_it(twin: Twin) -> None:
    world = Waiting(twin)
    value: list[Any] = []
    value.append(world.fast_path.enqueue("orders", value))
    del value

    with pytest.warns(RuntimeWarning, match=r"coroutine 'Producer\.enqueue' was never awaited"):
        gc.collect()


@each_twin
@pytest.mark.filterwarnings("error")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_warning_that_is_an_error_is_reported_and_goes_no_further(
    twin: Twin, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Waiting(twin)
    reported: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: reported.append(unraisable.exc_type))

    world.shortly()
    gc.collect()

    assert reported == [RuntimeWarning]


# -- to look at --------------------------------------------------------------------------------------------------------


@each_twin
async def test_everybody_takes_it_for_a_coroutine(twin: Twin) -> None:
    world = Waiting(twin)
    call = world.slowly()

    assert [isinstance(call, kind) for kind in (Coroutine, Awaitable)] == [True, True]
    assert [is_one(call) for is_one in (inspect.isawaitable, asyncio.iscoroutine)] == [True, True]
    assert "coroutine object Producer.enqueue at 0x" in repr(call)
    assert (call.__name__, call.__qualname__) == ("enqueue", "Producer.enqueue")
    assert call.cr_code.co_filename
    assert (call.cr_await, call.cr_running, call.cr_suspended, call.cr_origin) == (None, False, False, None)
    task = asyncio.create_task(call)
    await pause()
    assert call.cr_await is not None
    assert call.cr_frame.f_lineno
    assert inspect.getcoroutinestate(call) == inspect.CORO_SUSPENDED
    world.gate.set()
    await task
    assert call.cr_await is None
    assert inspect.getcoroutinestate(call) == inspect.CORO_CLOSED


@each_twin
async def test_a_task_shows_where_it_waits(twin: Twin) -> None:
    world = Waiting(twin)
    task = asyncio.create_task(world.slowly())
    assert "coro=<Producer.enqueue()" in repr(task)
    await pause()

    assert "coro=<Producer.enqueue() running at " in repr(task)
    assert [frame.f_code.co_name for frame in task.get_stack()][-1] in {"slow_path", "enqueue"}
    world.gate.set()
    await task
    assert "coro=<Producer.enqueue() done, defined at " in repr(task)
    assert task.get_stack() == []


def test_the_method_is_known_to_answer_a_coroutine() -> None:
    parameters = inspect.signature(Producer.enqueue).parameters

    assert is_coroutine_function(Producer.enqueue)
    assert not is_coroutine_function(Producer.enqueue_nowait)
    assert list(parameters)[:3] == ["self", "topic", "value"]
    assert all(each.annotation is not inspect.Parameter.empty for each in list(parameters.values())[1:])
    assert "timeout" in parameters
    assert (Producer.enqueue.__doc__ or "").startswith("Put one record into the buffer")


async def test_a_mock_of_a_producer_can_be_awaited() -> None:
    producer = create_autospec(Producer, instance=True)
    producer.enqueue.return_value = "delivery"

    assert await producer.enqueue("orders", b"x") == "delivery"


# -- with a debugger or a profiler -------------------------------------------------------------------------------------


@contextmanager
def traced() -> Iterator[None]:
    before = sys.gettrace()

    def trace(*_: object) -> Any:
        return trace

    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


@contextmanager
def profiled() -> Iterator[None]:
    before = sys.getprofile()
    profile = cProfile.Profile()
    try:
        profile.enable()
    except ValueError:  # from Python 3.12 on there may be one at a time
        pytest.skip("another profiler is at work")
    try:
        yield
    finally:
        profile.disable()
        sys.setprofile(before)


@each_twin
@pytest.mark.parametrize("watched", [traced, profiled])
async def test_watching_every_step_changes_nothing(twin: Twin, watched: Callable[[], Any]) -> None:
    world = Waiting(twin)
    world.gate.set()
    calls = [world.shortly(), world.shortly()]

    with watched():
        delivery = await calls[0]
        task = asyncio.create_task(calls[1])
        slow = await world.slowly()
        with pytest.raises(ValueError, match="bad"):
            await world.slowly(b"bad")
        delivery.located().succeed(5)
        metadata = await delivery
        again = await (await task)

    assert isinstance(delivery, twin.delivery)
    assert (slow, metadata.offset, again.offset) == (b"x", 5, 6)


@each_twin
async def test_debug_mode_changes_nothing(twin: Twin) -> None:
    loop = asyncio.get_running_loop()
    loop.set_debug(True)
    loop.slow_callback_duration = 60
    try:
        world = Waiting(twin)
        world.gate.set()
        delivery = await asyncio.create_task(world.shortly())
        assert await asyncio.create_task(world.slowly()) == b"x"
        waiting = asyncio.ensure_future(delivery)
        await pause()
        delivery.located().succeed(5)
        assert (await waiting).offset == 5
        with pytest.warns(RuntimeWarning, match=r"coroutine 'Producer\.enqueue' was never awaited"):
            world.shortly()
    finally:
        loop.set_debug(False)
