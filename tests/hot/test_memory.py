"""Neither twin keeps unneeded objects, nor touches freed ones."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import warnings
import weakref
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from aioproducer.errors import NotWritten
from aioproducer.types import ProducerRecord, TopicPartition
from tests.hot.rounds import Failure, rounds
from tests.hot.twins import TWINS, Twin, World, each_twin, needs_native, result_class

ORDERS = TopicPartition("orders", 0)
ROOT = Path(__file__).parents[2]


def counts(*objects: object) -> list[int]:
    gc.collect()
    return [sys.getrefcount(each) for each in objects]


@each_twin
async def test_everything_that_was_taken_is_let_go(twin: Twin) -> None:
    world = World(twin)
    loop, topic, value, key = asyncio.get_running_loop(), "orders", b"value", b"key"
    result = result_class(twin)(ORDERS)
    headers = [("trace", b"1")]
    world.attach(loop)
    await rounds(world, 5)
    before = counts(result, loop, topic, value, key, headers, world, ORDERS)

    for state in ("dropped", "failed", "delivered", "observed", "split"):
        for _ in range(50):
            result = result_class(twin)(ORDERS)
            batch = twin.open_batch(result, 1000)
            world.lanes["orders"].open[0] = batch
            call = world.fast_path.enqueue(topic, value, key=key, headers=headers, partition=0, on_delivery=None)
            delivery = await call
            if state == "split":
                part = result_class(twin)(ORDERS)
                result.parts, result.is_split = [part], True
            elif state == "failed":
                result.failure = Failure()
                str(delivery.exception())
            elif state == "delivered":
                result.succeed()
                await delivery
            elif state == "observed":
                delivery.mark_observed()
            del call, delivery, batch
    world.lanes["orders"].open[0] = None
    world.reported.clear()
    world.results.clear()
    result = result_class(twin)(ORDERS)
    part = None

    assert counts(result, loop, topic, value, key, headers, world, ORDERS) == before


@each_twin
def test_an_appender_that_is_detached_has_let_go_of_its_loop(twin: Twin) -> None:
    class Loop:
        pass

    world = World(twin)
    loop = Loop()
    gone = weakref.ref(loop)
    world.attach(loop)
    asyncio.events._set_running_loop(loop)  # type: ignore[arg-type]  # anything will do
    try:
        world.appender.append("orders", b"x", None, None, 0, 5).mark_observed()
    finally:
        asyncio.events._set_running_loop(None)

    world.appender.detach()
    del loop
    gc.collect()

    assert gone() is None


@each_twin
async def test_a_task_that_is_over_does_not_keep_the_value(twin: Twin) -> None:
    world = World(twin)
    world.attach(asyncio.get_running_loop())
    value = b"x" * 100
    before = counts(value)

    topics = ["orders", "unknown", ProducerRecord("orders", value)]
    tasks = [
        asyncio.create_task(world.fast_path.enqueue(topic, value if isinstance(topic, str) else None))
        for topic in topics
    ]
    del topics
    await asyncio.gather(*tasks)
    world.reported.clear()

    assert counts(value) == before


@each_twin
async def test_a_task_that_is_over_keeps_nothing_of_a_call_that_was_refused(twin: Twin) -> None:
    class Odd:
        pass

    world = World(twin)
    world.attach(asyncio.get_running_loop())
    odd = Odd()
    gone = weakref.ref(odd)
    arguments: dict[str, Any] = dict.fromkeys(("value", "key", "headers", "partition", "timestamp_ms"), odd)

    task = asyncio.create_task(world.fast_path.enqueue(odd, **arguments))
    await asyncio.gather(task, return_exceptions=True)
    world.reported.clear()
    arguments.clear()
    del odd
    gc.collect()

    assert gone() is None


class Fails(Exception):
    pass


def fail(*_: object) -> Any:
    raise Fails


class FailingTimeout(float):
    __ge__ = __le__ = fail


class Ends(BaseException):
    """An Exception takes the slow path."""


class FailingHeaders(dict[str, bytes]):
    def items(self) -> Any:
        raise Ends


@each_twin
@pytest.mark.parametrize(
    ("what", "raises"), [("batch", Fails), ("headers", Ends), ("timeout", Fails), ("slow path", Fails)]
)
async def test_a_call_that_has_failed_keeps_nothing_of_what_it_was_given(
    twin: Twin, what: str, raises: type[BaseException]
) -> None:
    class Callback:
        def __call__(self, _: object) -> None:
            pass

    world = World(twin)
    if what == "batch":
        world._begin = fail  # type: ignore[assignment, method-assign]
    world.attach(asyncio.get_running_loop())
    if what == "slow path":
        world.fast_path.appender = twin.appender(fail, fail, fail, 5)
    callback = Callback()
    gone = weakref.ref(callback)
    call = world.fast_path.enqueue(
        "orders",
        b"value",
        on_delivery=callback,
        headers=FailingHeaders(a=b"") if what == "headers" else None,
        timeout=FailingTimeout(3) if what == "timeout" else None,
    )
    del callback

    with pytest.raises(raises):
        await call
    world.results.clear()
    world.reported.clear()
    gc.collect()

    assert gone() is None


@each_twin
async def test_arguments_lent_to_the_slow_path_cannot_be_taken_away(twin: Twin) -> None:
    refused: list[str] = []

    def slow_path(*arguments: object) -> Any:
        for attack in (call.close, lambda: call.throw(Fails), lambda: call.send(None)):
            try:
                attack()
            except ValueError as error:
                refused.append(str(error))
        assert arguments[:3] == ("orders", b"value", b"key")
        return coroutine()

    async def coroutine() -> None:
        pass

    world = World(twin)
    world.fast_path.appender = twin.appender(slow_path, slow_path, slow_path, 5)
    call = world.fast_path.enqueue("orders", b"value", key=b"key")

    with pytest.raises(Fails):
        call.throw(Fails)

    # In Python nothing is called before the first step of a coroutine.
    assert refused == ["coroutine already executing"] * (3 if twin.name == "native" else 0)


@each_twin
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("what", ["enqueue", "send"])
@pytest.mark.parametrize(
    "name", ["topic", "value", "key", "partition", "headers", "timestamp_ms", "on_delivery", "timeout"]
)
def test_the_collector_finds_a_call_that_was_given_what_leads_to_it(twin: Twin, what: str, name: str) -> None:
    class Odd:
        call: Any

    world = World(twin)
    odd = Odd()
    odd.call = getattr(world.fast_path, what)(**{"topic": "orders", name: odd})
    gone = weakref.ref(odd)

    del odd
    gc.collect()

    assert gone() is None


@each_twin
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("what", ["enqueue", "send"])
@pytest.mark.parametrize("end", ["dropped", "closed", "thrown into", "awaited"])
async def test_the_arguments_of_a_call_are_released_once_and_the_call_cannot_be_found_then(
    twin: Twin, what: str, end: str
) -> None:
    class Text(str):
        def __del__(self) -> None:
            ends.append(str(self))
            gc.collect()
            found.extend(
                each for each in gc.get_objects() if end == "dropped" and type(each).__name__ in ("Enqueue", "Send")
            )

    world = World(twin)
    world.attach(asyncio.get_running_loop())
    ends: list[str] = []
    found: list[object] = []
    method = getattr(world.fast_path, what)
    call = method(
        "orders", b"x", key=Text("key"), headers=[("h", Text("header"))], partition=0, timeout=Text("timeout")
    )

    if end == "closed":
        call.close()
    elif end == "thrown into":
        with pytest.raises(KeyError):
            call.throw(KeyError())
    elif end == "awaited":
        assert await call == "slow path"
        world.reported.clear()
    del call

    assert sorted(ends) == ["header", "key", "timeout"]
    assert found == []


@needs_native
@pytest.mark.parametrize("what", ["enqueue", "send"])
def test_a_coroutine_that_warns_of_its_end_cannot_be_found(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(TWINS["native"])
    found: list[object] = []

    def look(*_: object) -> None:
        found.extend(each for each in gc.get_objects() if type(each).__name__ in ("Enqueue", "Send"))

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", look)
        call = getattr(world.fast_path, what)("orders", b"x")
        assert gc.is_tracked(call)
        del call

    assert found == []


@each_twin
def test_waiting_without_an_event_loop_raises(twin: Twin) -> None:
    result = result_class(twin)(ORDERS)
    delivery = twin.delivery(result, 0, 5, -1, 3)
    asyncio.run(asyncio.sleep(0))

    with pytest.raises(RuntimeError):
        next(delivery.__await__())

    assert result.take_waiters() == []


@each_twin
async def test_the_error_of_a_failed_record_goes_with_who_looked_at_it(twin: Twin) -> None:
    """Its traceback holds the frames that awaited it, and these the Delivery, which the native twin keeps uncollected."""
    result = result_class(twin)(ORDERS)
    frames: list[weakref.ref[Any]] = []

    class Local:
        pass

    async def send() -> None:
        delivery, local = twin.delivery(result, 0, 0, -1, -1), Local()
        frames.append(weakref.ref(local))
        await delivery

    tasks = [asyncio.ensure_future(send()) for _ in range(3)]
    await asyncio.sleep(0)
    result.failure = Failure()
    waiters = [waiter for _, waiter in result.take_waiters()]
    for waiter in waiters:
        waiter.set_result(None)
    assert [type(each) for each in await asyncio.gather(*tasks, return_exceptions=True)] == [NotWritten] * 3
    del tasks
    await asyncio.sleep(0)
    del waiters[:], waiter
    gc.collect()

    assert [frame() for frame in frames] == [None] * 3


@each_twin
def test_the_error_of_a_failed_record_is_the_same_as_long_as_it_is_referenced(twin: Twin) -> None:
    result = result_class(twin)(ORDERS)
    delivery = twin.delivery(result, 3, 0, -1, -1)
    result.failure = Failure()

    first, second = delivery.exception(), delivery.exception()

    assert first is second
    assert delivery.peek()[1] is first
    with pytest.raises(NotWritten) as raised:
        delivery.result()
    assert raised.value is first


@each_twin
def test_deliveries_that_are_dropped_leave_their_index_or_tell(twin: Twin) -> None:
    result = result_class(twin)(ORDERS)
    observed, pending, failed, called = (twin.delivery(result, index, 0, -1, -1) for index in range(4))
    observed.mark_observed()
    called.add_done_callback(print)
    result.callbacks.clear()

    del observed, pending, called
    assert result.take_abandoned() == [1]
    assert result.take_abandoned() == []
    result.failure = Failure()
    del failed
    assert result.gone == [2]
    for index in (3, 5, 4):
        result.note_abandoned(index)

    assert result.take_abandoned() == [3, 5, 4]


@each_twin
def test_many_deliveries_may_be_dropped_in_many_threads(twin: Twin) -> None:
    result = result_class(twin)(ORDERS)
    deliveries = [[twin.delivery(result, index, 0, -1, -1) for index in range(at, 40_000, 4)] for at in range(4)]
    threads = [threading.Thread(target=each.clear) for each in deliveries]

    for thread in threads:
        thread.start()
    taken = result.take_abandoned()
    for thread in threads:
        thread.join()
    taken += result.take_abandoned()

    assert sorted(taken) == list(range(40_000))


@each_twin
def test_a_delivery_outlives_its_loop(twin: Twin) -> None:
    world = World(twin)

    async def enqueue() -> Any:
        world.attach(asyncio.get_running_loop())
        return await world.fast_path.enqueue("orders", b"x")

    delivery = asyncio.run(enqueue())
    assert not delivery.done()
    with pytest.raises(asyncio.InvalidStateError):
        delivery.result()
    delivery.located().succeed(41)

    async def wait() -> Any:
        return await delivery

    assert asyncio.run(wait()).offset == 41
    assert world.appender.append("orders", b"x", None, None, None, None) is None


@each_twin
async def test_an_outcome_that_is_reported_between_asking_and_waiting_is_not_missed(twin: Twin) -> None:
    result = result_class(twin)(ORDERS)
    delivery = twin.delivery(result, 0, 0, -1, -1)
    waiting = delivery.__await__()

    result.succeed(5)

    with pytest.raises(StopIteration) as done:
        next(waiting)
    assert done.value.value.offset == 5


@each_twin
async def test_a_delivery_can_be_awaited_but_is_not_an_iterator(twin: Twin) -> None:
    result = result_class(twin)(ORDERS)
    delivery = twin.delivery(result, 1, 5, -1, 3)
    result.succeed(7)

    def from_python() -> Generator[Any, None, Any]:
        return (yield from delivery.__await__())

    for _ in range(2):
        assert (await delivery).offset == 8
        with pytest.raises(StopIteration) as stopped:
            next(from_python())
        assert stopped.value.value == delivery.result()
    with pytest.raises(TypeError):
        iter(delivery)


@each_twin
def test_any_offset_that_a_broker_returns_is_a_number(twin: Twin) -> None:
    result = result_class(twin)(ORDERS)
    delivery = twin.delivery(result, 2**31 - 1, 2**63 - 1, 2**31 - 1, 2**31 - 1)

    result.succeed(2**63 - 1)
    metadata = delivery.result()

    assert metadata.offset == 2**63 + 2**31 - 2
    assert tuple(metadata)[3:6] == (2**63 - 1, 2**31 - 1, 2**31 - 1)
    assert delivery.serialized_size == 2**32 - 2


@needs_native
@pytest.mark.parametrize("make", ["open_batch", "delivery", "lane"])
def test_objects_of_the_native_twin_cannot_be_copied(make: str) -> None:
    """A copy of a Delivery would tell of a failure a second time."""
    twin = TWINS["native"]
    result = twin.outcome(ORDERS)
    things = {
        "open_batch": twin.open_batch(result, 5),
        "delivery": twin.delivery(result, 0, 0, 0, 0),
        "lane": twin.lane(1, twin.sticky_partition(5)),
    }

    with pytest.raises(TypeError, match="pickle"):
        things[make].__reduce_ex__(4)
    things["delivery"].mark_observed()


def test_no_native_module_claims_to_do_without_the_interpreters_lock() -> None:
    for source in (ROOT / "aioproducer").rglob("*.pyx"):
        assert "freethreading_compatible" not in source.read_text(), source


# -- a separate process ------------------------------------------------------------------------------------------------

_ROUNDS = """
import asyncio, gc, sys
from pathlib import Path
from tests.hot.rounds import rounds
from tests.hot.twins import TWINS, World

def resident():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

async def main(twin, warm, count):
    world = World(TWINS[twin])
    world.attach(asyncio.get_running_loop())
    await rounds(world, warm)
    before = resident()
    await rounds(world, count)
    print(resident() - before)

asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
"""


def run_rounds(twin: str, warm: int, count: int, **environment: str) -> int:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", _ROUNDS, twin, str(warm), str(count)],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return int(done.stdout)


@pytest.mark.broker  # starts a program
@pytest.mark.parametrize("twin", list(TWINS))
def test_with_memory_that_is_checked_nothing_is_touched_that_is_gone(twin: str) -> None:
    run_rounds(twin, 10, 200, PYTHONMALLOC="debug")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux reports how much memory a process has")
@pytest.mark.parametrize(("twin", "count"), [(twin, 150_000 if twin == "native" else 20_000) for twin in TWINS])
def test_a_million_records_leave_nothing_behind(twin: str, count: int) -> None:
    """Seven calls in each round."""
    assert run_rounds(twin, 5000, count) < 1_000_000
