"""``send()`` returns a coroutine in both twins, which waits for the acknowledgement of its record."""

from __future__ import annotations

import asyncio
import gc
import inspect
import warnings
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any
from unittest.mock import create_autospec

import pytest

from aioproducer import Producer
from aioproducer.testing import FakeBroker
from tests.hot.calls import Waiting, each_way, is_coroutine_function, pause
from tests.hot.twins import TWINS, Twin, each_twin, needs_native


class Refused(Exception):
    """The failure of a record that was not written."""


class Failure:
    """As of a batch that failed."""

    def error_for(self, index: int) -> Refused:
        return Refused(index)


# -- to await ----------------------------------------------------------------------------------------------------------


@each_twin
@each_way
async def test_it_answers_the_metadata_when_the_batch_is_acknowledged(twin: Twin, way: Callable[[Any], Any]) -> None:
    world = Waiting(twin)

    first, second = (asyncio.ensure_future(way(world.sent())) for _ in range(2))
    await pause()
    assert (world.count, first.done(), second.done()) == (2, False, False)
    world.results[0].succeed(5)

    assert [(each.topic, each.partition, each.offset) for each in (await first, await second)] == [
        ("orders", 0, 5),
        ("orders", 0, 6),
    ]


@each_twin
@each_way
async def test_it_raises_what_became_of_a_record_that_failed(twin: Twin, way: Callable[[Any], Any]) -> None:
    world = Waiting(twin)

    waiting = asyncio.ensure_future(way(world.sent()))
    await pause()
    world.results[0].failure = Failure()
    world.results[0].wake()

    error: BaseException | None = (await asyncio.gather(waiting, return_exceptions=True))[0]
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert repr(error) == "Refused(0)"
    del waiting, error
    gc.collect()
    assert world.results[0].gone == []  # the exception was read


@each_twin
async def test_it_waits_on_where_the_batch_was_split(twin: Twin) -> None:
    world = Waiting(twin)
    waiting = asyncio.ensure_future(world.sent())
    await pause()
    whole, part = world.results[0], type(world.results[0])(world.results[0].partition)
    whole.parts, whole.is_split = [part], True
    for _, waiter in whole.take_waiters():
        part.keep(0, waiter)

    part.succeed(7)

    assert (await waiting).offset == 7


class Hasty(Waiting):
    """Batches are acknowledged, or fail, as soon as they are full, which is at once."""

    failure: Failure | None = None

    def __init__(self, twin: Twin) -> None:
        super().__init__(twin)
        self.limit = 1

    def _ready(self, topic: Any) -> None:
        self.results[-1].failure = self.failure
        if self.failure is None:
            self.results[-1].succeed(5)


@each_twin
async def test_an_outcome_that_is_known_at_once_is_returned_at_once(twin: Twin) -> None:
    world = Hasty(twin)
    with pytest.raises(StopIteration) as ended:
        world.sent().send(None)
    assert ended.value.value.offset == 5

    world.failure = Failure()
    with pytest.raises(Refused):
        await world.sent()


@each_twin
async def test_on_delivery_is_reported_as_well(twin: Twin) -> None:
    world = Waiting(twin)
    reported: list[Any] = []

    waiting = asyncio.ensure_future(world.sent(on_delivery=reported.append))
    await pause()
    [(delivery, callback)] = world.results[0].callbacks
    callback(delivery)
    world.results[0].succeed(5)

    assert (await waiting).offset == 5
    assert reported == [delivery]


@each_twin
async def test_a_call_that_needs_a_decision_or_has_a_time_limit_takes_the_slow_path(twin: Twin) -> None:
    world = Waiting(twin)

    answers = [
        await world.sent(timeout=5.0),
        await world.fast_path.send("orders", b"x", key=b"k", headers=(), partition=1, timestamp_ms=9, timeout=0),
    ]

    assert answers == ["slow path", "slow path"]
    assert world.reported == [
        ("slow path to send", "orders", b"x", None, None, 0, None, None, 5.0),
        ("slow path to send", "orders", b"x", b"k", (), 1, 9, None, 0),
    ]
    assert world.count == 0


@each_twin
async def test_nothing_happens_before_it_is_awaited(twin: Twin) -> None:
    world = Waiting(twin)

    call = world.sent()
    assert world.count == 0
    call.close()

    assert world.count == 0


# -- to cancel ---------------------------------------------------------------------------------------------------------


@each_twin
async def test_cancelled_before_its_first_step_it_buffers_nothing(twin: Twin) -> None:
    world = Waiting(twin)

    task: asyncio.Task[object] = asyncio.create_task(world.sent())
    task.cancel()
    [cancelled] = await asyncio.gather(task, return_exceptions=True)

    assert isinstance(cancelled, asyncio.CancelledError)
    assert world.count == 0


@each_twin
async def test_a_send_cancelled_while_it_waits_leaves_the_record_unobserved(twin: Twin) -> None:
    world = Waiting(twin)

    task: asyncio.Task[object] = asyncio.create_task(world.sent())
    await pause()
    task.cancel()
    [cancelled] = await asyncio.gather(task, return_exceptions=True)
    del task
    gc.collect()

    assert isinstance(cancelled, asyncio.CancelledError)
    assert (world.count, world.results[0].take_waiters()) == (1, [])
    del cancelled
    await pause()  # the event loop has hold of the error, and so of the delivery, a little longer
    gc.collect()
    assert world.results[0].take_abandoned() == [0]


@each_twin
async def test_cancelled_in_the_moment_of_the_acknowledgement_it_is_cancelled(twin: Twin) -> None:
    world = Waiting(twin)

    task: asyncio.Task[object] = asyncio.create_task(world.sent())
    await pause()
    world.results[0].succeed(5)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


@each_twin
async def test_a_timeout_ends_the_wait(twin: Twin) -> None:
    world = Waiting(twin)

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(world.sent(), 0.001)

    assert (world.count, world.results[0].take_waiters()) == (1, [])


@each_twin
async def test_a_task_that_is_over_keeps_nothing_of_its_record(twin: Twin) -> None:
    class Callback:
        def __call__(self, delivery: object) -> None: ...

    world = Waiting(twin)
    callback = Callback()
    gone = weakref.ref(callback)
    task: asyncio.Task[object] = asyncio.create_task(world.sent(on_delivery=callback))
    del callback
    await pause()

    world.results[0].succeed(5)
    await asyncio.wait([task])
    world.results[0].callbacks.clear()
    gc.collect()

    assert gone() is None


@each_twin
async def test_the_event_loop_is_not_kept_by_an_appender_that_was_detached(twin: Twin) -> None:
    class Loop(asyncio.SelectorEventLoop):
        pass

    async def work() -> None:
        world = Waiting(twin)
        waiting = asyncio.ensure_future(world.sent())
        await pause()
        world.results[0].succeed(5)
        await waiting
        world.appender.detach()

    def run() -> weakref.ref[Loop]:
        loop = Loop()
        try:
            loop.run_until_complete(work())
        finally:
            loop.close()
        return weakref.ref(loop)

    gone = await asyncio.to_thread(run)
    gc.collect()

    assert gone() is None


# -- as a generator has it ---------------------------------------------------------------------------------------------


@each_twin
async def test_it_is_awaited_once(twin: Twin) -> None:
    world = Waiting(twin)
    call = world.sent()
    task = asyncio.create_task(call)
    await pause()
    world.results[0].succeed(5)
    await task

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
    call = world.sent()
    task = asyncio.create_task(call)
    await pause()

    with pytest.raises(RuntimeError, match="coroutine is being awaited already"):
        await call
    world.results[0].succeed(5)

    assert (await task).offset == 5


@each_twin
async def test_a_value_cannot_be_sent_before_it_began(twin: Twin) -> None:
    world = Waiting(twin)
    call = world.sent()

    with pytest.raises(TypeError, match="can't send non-None value to a just-started coroutine"):
        call.send(1)
    call.close()

    assert world.count == 0


@each_twin
async def test_a_caller_that_drives_it_by_hand_is_given_the_future_to_wait_for(twin: Twin) -> None:
    world = Waiting(twin)
    call = world.sent()

    future = call.send(None)
    assert asyncio.isfuture(future)
    assert getattr(future, "_asyncio_future_blocking") is True  # noqa: B009 - the mark that a task looks for
    world.results[0].succeed(5)
    with pytest.raises(StopIteration) as ended:
        call.send(None)

    assert ended.value.value.offset == 5


@each_twin
async def test_a_step_before_the_outcome_is_known_is_refused_and_ends_it(twin: Twin) -> None:
    world = Waiting(twin)
    call = world.sent()
    call.send(None)

    with pytest.raises((RuntimeError, asyncio.InvalidStateError)):
        call.send(None)
    with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
        call.send(None)

    assert (world.count, world.results[0].take_waiters()) == (1, [])


@each_twin
@pytest.mark.parametrize("begun", [False, True])
async def test_an_exception_thrown_in_is_raised_and_ends_the_call(twin: Twin, begun: bool) -> None:
    world = Waiting(twin)
    for thrown in ((KeyError,), (KeyError("x"),), (KeyError, KeyError("x")), (KeyError, "x"), (KeyError, None, None)):
        call = world.sent()
        if begun:
            call.send(None)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of three arguments, from Python 3.12 on
            with pytest.raises(KeyError):
                call.throw(*thrown)
        with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
            call.send(None)

    assert world.count == (5 if begun else 0)
    assert all(not result.take_waiters() for result in world.results)


@each_twin
async def test_a_stop_iteration_that_is_thrown_in_is_no_answer(twin: Twin) -> None:
    world = Waiting(twin)
    call = world.sent()
    call.send(None)

    with pytest.raises((RuntimeError, asyncio.InvalidStateError)):  # in Python: it ended the wait early
        call.throw(StopIteration(5))


@each_twin
@pytest.mark.parametrize("what", ["close", "throw", "send"])
async def test_code_called_by_the_first_step_cannot_make_another_step(twin: Twin, what: str) -> None:
    world = Waiting(twin)
    reported: list[object] = []

    class Headers(dict[str, bytes]):
        def items(self) -> Any:
            try:
                {"close": call.close, "throw": lambda: call.throw(KeyError), "send": lambda: call.send(None)}[what]()
            except ValueError as error:
                reported.append(str(error))
            return super().items()

    call = world.sent(headers=Headers(a=b"b"), on_delivery=reported.append)
    waiting = asyncio.ensure_future(call)
    await pause()
    world.results[0].succeed(5)

    assert (await waiting).offset == 5
    assert reported[0] == "coroutine already executing"
    assert len(world.results[0].callbacks) == 1


@each_twin
async def test_an_object_that_is_not_an_exception_cannot_be_thrown_in(twin: Twin) -> None:
    world = Waiting(twin)
    call = world.sent()
    call.send(None)

    with pytest.raises(TypeError):
        call.throw(5)
    call.close()


@each_twin
@pytest.mark.parametrize("begun", [False, True])
async def test_closed_it_waits_no_more_and_warns_of_nothing(twin: Twin, begun: bool) -> None:
    world = Waiting(twin)
    call = world.sent()
    if begun:
        call.send(None)

    call.close()
    call.close()
    with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
        call.send(None)
    del call
    gc.collect()

    assert world.count == begun
    assert all(not result.take_waiters() for result in world.results)


@each_twin
async def test_a_send_dropped_while_it_waits_leaves_the_record_unobserved(twin: Twin) -> None:
    world = Waiting(twin)
    call = world.sent()
    call.send(None)

    del call
    gc.collect()

    assert world.results[0].take_abandoned() == [0]


# -- to forget ---------------------------------------------------------------------------------------------------------


@each_twin
async def test_never_awaited_it_warns_and_buffers_nothing(twin: Twin) -> None:
    world = Waiting(twin)

    with pytest.warns(RuntimeWarning, match=r"coroutine 'Producer\.send' was never awaited") as warned:
        world.fast_path.send("orders", b"x", partition=0)

    assert [each.filename for each in warned] == [__file__]
    assert world.count == 0


@needs_native
@pytest.mark.parametrize("what", ["sent", "shortly"])
async def test_one_that_was_made_of_the_type_of_another_does_nothing(what: str) -> None:
    call = getattr(Waiting(TWINS["native"]), what)()
    made = type(call)()
    call.close()

    with pytest.raises(RuntimeError):
        made.send(None)
    with pytest.raises(RuntimeError):
        made.send(None)


# -- to look at --------------------------------------------------------------------------------------------------------


@each_twin
async def test_everybody_takes_it_for_a_coroutine(twin: Twin) -> None:
    world = Waiting(twin)
    call = world.sent()

    assert [isinstance(call, kind) for kind in (Coroutine, Awaitable)] == [True, True]
    assert [is_one(call) for is_one in (inspect.isawaitable, asyncio.iscoroutine)] == [True, True]
    assert "coroutine object Producer.send at 0x" in repr(call)
    assert (call.__name__, call.__qualname__) == ("send", "Producer.send")
    assert call.cr_code.co_filename
    assert (call.cr_await, call.cr_running, call.cr_suspended, call.cr_origin) == (None, False, False, None)
    task = asyncio.create_task(call)
    await pause()
    assert call.cr_await is not None
    assert inspect.getcoroutinestate(call) == inspect.CORO_SUSPENDED
    assert "Producer.send()" in repr(task)
    task.get_stack()
    world.results[0].succeed(5)
    await task
    assert call.cr_await is None
    assert inspect.getcoroutinestate(call) == inspect.CORO_CLOSED


@needs_native
async def test_the_state_that_python_3_15_asks_for_is_that_of_a_coroutine() -> None:
    world = Waiting(TWINS["native"])
    call = world.sent()
    states = [call.cr_state]
    task = asyncio.create_task(call)
    await pause()
    states.append(call.cr_state)
    world.results[0].succeed(5)
    await task
    states.append(call.cr_state)

    assert states == [inspect.CORO_CREATED, inspect.CORO_SUSPENDED, inspect.CORO_CLOSED]


def test_the_method_is_known_to_answer_a_coroutine() -> None:
    parameters = inspect.signature(Producer.send).parameters

    assert is_coroutine_function(Producer.send)
    assert list(parameters)[:3] == ["self", "topic", "value"]
    assert all(each.annotation is not inspect.Parameter.empty for each in list(parameters.values())[1:])
    assert "timeout" in parameters
    assert (Producer.send.__doc__ or "").startswith("Send one record and wait")


async def test_a_mock_of_a_producer_can_be_awaited() -> None:
    producer = create_autospec(Producer, instance=True)
    producer.send.return_value = "metadata"

    assert await producer.send("orders", b"x") == "metadata"


@pytest.mark.broker  # starts a program
async def test_the_enqueue_of_a_subclass_is_also_used_by_send() -> None:
    reported: list[object] = []

    class Tracing(Producer):
        async def enqueue(self, topic: Any, value: object = None, **more: Any) -> Any:
            reported.append((value, more.get("timeout")))
            return await super().enqueue(topic, value, **more)

    with FakeBroker(topics={"orders": 1}) as broker:
        async with Tracing(broker.bootstrap_servers) as producer:
            first = await producer.send("orders", b"a")
            second = await producer.send("orders", b"b", timeout=60)

    assert [first.offset, second.offset] == [0, 1]
    assert reported == [(b"a", None), (b"b", 60)]
