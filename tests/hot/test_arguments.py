"""However ``send()`` and ``enqueue()`` are called, the arguments arrive where they belong, in both twins."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

import pytest

from tests.hot.twins import Twin, World, each_twin

#: As the slow path gets them: topic, value, key, headers, partition, timestamp_ms, on_delivery, timeout.
CALLS: list[tuple[tuple[Any, ...], dict[str, Any], tuple[Any, ...]]] = [
    (("t",), {}, ("t", None, None, None, None, None, None, None)),
    (("t", b"v"), {}, ("t", b"v", None, None, None, None, None, None)),
    (("t", b"v"), {"key": b"k"}, ("t", b"v", b"k", None, None, None, None, None)),
    (("t", b"v"), {"".join(["k", "ey"]): b"k"}, ("t", b"v", b"k", None, None, None, None, None)),
    (("t", b"v"), {"key": None}, ("t", b"v", None, None, None, None, None, None)),
    (("t", b"v"), {"partition": 3}, ("t", b"v", None, None, 3, None, None, None)),
    (("t", b"v"), {"timeout": 5}, ("t", b"v", None, None, None, None, None, 5)),
    (("t", b"v"), {"key": b"k", "partition": 3}, ("t", b"v", b"k", None, 3, None, None, None)),
    (("t", b"v"), {"partition": 3, "key": b"k"}, ("t", b"v", b"k", None, 3, None, None, None)),
    (("t",), {"value": b"v"}, ("t", b"v", None, None, None, None, None, None)),
    (("t",), {"key": b"k"}, ("t", None, b"k", None, None, None, None, None)),
    (("t",), {"key": b"k", "value": b"v"}, ("t", b"v", b"k", None, None, None, None, None)),
    ((), {"topic": "t", "value": b"v", "headers": [], "timestamp_ms": 1}, ("t", b"v", None, [], None, 1, None, None)),
    (("t", b"v"), {"on_delivery": 7}, ("t", b"v", None, None, None, None, 7, None)),
]
REFUSED: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    (("t", b"v", b"k"), {}),
    (("t", b"v", b"k"), {"key": b"k"}),
    (("t", b"v"), {"value": b"v"}),
    (("t", b"v"), {"topic": "t"}),
    (("t", b"v"), {"Key": b"k"}),
    ((), {"key": b"k"}),
]


async def what_arrived(world: World, call: Any) -> tuple[Any, ...]:
    """The arguments that the slow path got."""
    arrived: list[tuple[Any, ...]] = []

    async def slow_path(*arguments: Any) -> str:
        arrived.append(arguments)
        return "slow path"

    world.fast_path.appender = world.twin.appender(slow_path, slow_path, None, 5)
    made = call()
    with contextlib.suppress(TypeError):  # of a send, which awaits what it got for a Delivery
        await made
    [arguments] = arrived
    return arguments


@each_twin
@pytest.mark.parametrize("what", ["send", "enqueue"])
@pytest.mark.parametrize(("by_position", "by_name", "expected"), CALLS)
async def test_arguments_arrive_where_they_belong(
    twin: Twin, what: str, by_position: tuple[Any, ...], by_name: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    world = World(twin)
    method = getattr(world.fast_path, what)
    of_class = getattr(type(world.fast_path), what)

    for call in (
        lambda: method(*by_position, **by_name),
        partial(method, *by_position, **by_name),
        partial(method, **by_name, **dict(zip(("topic", "value"), by_position, strict=False))),
        lambda: of_class(world.fast_path, *by_position, **by_name),
    ):
        assert await what_arrived(world, call) == expected


@each_twin
@pytest.mark.parametrize("what", ["send", "enqueue"])
@pytest.mark.parametrize(("by_position", "by_name"), REFUSED)
def test_a_call_with_invalid_arguments_is_refused(
    twin: Twin, what: str, by_position: tuple[Any, ...], by_name: dict[str, Any]
) -> None:
    method = getattr(World(twin).fast_path, what)

    with pytest.raises(TypeError):
        method(*by_position, **by_name)


@each_twin
async def test_a_class_of_the_users_may_hand_a_call_on(twin: Twin) -> None:
    base: Any = twin.fast_path

    class Derived(base):  # type: ignore[misc]  # any class at all
        def enqueue(self, topic: str, value: bytes) -> Any:
            return super().enqueue(topic, value, key=b"k")

    world = World(twin)
    world.fast_path = Derived()

    arrived = await what_arrived(world, lambda: world.fast_path.enqueue("t", b"v"))

    assert arrived == ("t", b"v", b"k", None, None, None, None, None)


@each_twin
@pytest.mark.parametrize("what", ["send", "enqueue", "enqueue_nowait"])
def test_the_methods_take_no_other_object_for_their_own(twin: Twin, what: str) -> None:
    method = getattr(twin.fast_path, what)

    for call in (partial(method, object(), "t", b"v"), partial(method, "t", b"v"), partial(method, "t", b"v", b"k")):
        with pytest.raises((TypeError, AttributeError)):
            call().send(None)  # in Python a coroutine does not look at it before
