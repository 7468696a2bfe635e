"""Calls that answer coroutines, to be awaited in every way there is, and a world in which they have to wait."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import anyio
import pytest

from tests.hot.twins import PLENTY, Twin, World

__all__ = ["Waiting", "each_way", "is_coroutine_function", "pause"]


class Waiting(World):
    """A world in which the slow path waits for a gate, and then buffers the record in its own way."""

    def __init__(self, twin: Twin) -> None:
        super().__init__(twin)
        self.attach(asyncio.get_running_loop())
        self.gate = asyncio.Event()
        self.buffered: list[object] = []
        self.long = twin.fast_path()
        self.long.appender = twin.appender(self.slow_path, self.slow_path, self.slow_path, PLENTY)

    async def slow_path(self, topic: object, value: object, *rest: object) -> object:
        if value == b"bad":
            raise ValueError("bad")
        await self.gate.wait()
        self.buffered.append(value)
        return value

    def shortly(self, value: bytes = b"x") -> Any:
        """A call that does not wait."""
        return self.fast_path.enqueue("orders", value, partition=0)

    def slowly(self, value: bytes = b"x") -> Any:
        """A call that waits for the gate."""
        return self.long.enqueue("unknown", value)

    def sent(self, value: bytes = b"x", **more: Any) -> Any:
        """A call that waits for the acknowledgement only."""
        return self.fast_path.send("orders", value, partition=0, **more)

    @property
    def count(self) -> int:
        """Records in open batches."""
        return sum(batch.count for _, _, batch in self.batches())


#: Only asyncio's own looks at the mark that it has up to Python 3.11; from 3.14 on that one is deprecated.
is_coroutine_function = inspect.iscoroutinefunction if sys.version_info >= (3, 12) else asyncio.iscoroutinefunction


async def pause() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def _in_a_task_group(work: Coroutine[Any, Any, object]) -> object:
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(work)
    return task.result()


async def _in_a_timeout(work: Awaitable[object]) -> object:
    async with asyncio.timeout(60):
        return await work


async def _in_a_shield(work: Awaitable[object]) -> object:
    return await asyncio.shield(work)


async def _gathered(work: Awaitable[object]) -> object:
    [answer] = await asyncio.gather(work)
    return answer


async def _in_anyio(work: Awaitable[object]) -> object:
    answers: list[object] = []

    async def run() -> None:
        answers.append(await work)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
    return answers[0]


async def _from_another_awaitable(work: Awaitable[object]) -> object:
    class Wrapped:
        def __await__(self) -> Any:
            return (yield from work.__await__())

    return await Wrapped()


async def _by_hand(work: Any) -> object:
    await asyncio.sleep(0)
    return await asyncio.ensure_future(work)


WAYS: dict[str, Callable[[Any], Awaitable[object]]] = {
    "await": lambda work: _in_a_timeout(work),
    "create_task": lambda work: asyncio.create_task(work),
    "ensure_future": _by_hand,
    "gather": _gathered,
    "shield": _in_a_shield,
    "wait_for": lambda work: asyncio.wait_for(work, 60),
    "TaskGroup": _in_a_task_group,
    "anyio": _in_anyio,
    "__await__": _from_another_awaitable,
    "run_coroutine_threadsafe": lambda work: asyncio.wrap_future(
        asyncio.run_coroutine_threadsafe(work, asyncio.get_running_loop())
    ),
}

each_way = pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
