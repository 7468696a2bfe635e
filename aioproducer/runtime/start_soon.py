"""Starts a task of a group from anywhere in its event loop, also from a callback that no task has called.

If sniffio is installed - trio and many HTTP clients bring it - anyio finds its backend by the running task only, and raises
NoEventLoopError in a timer or in a protocol's callback.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from anyio.abc import TaskGroup

__all__ = ["in_asyncio", "start_soon"]

_T = TypeVar("_T")


def start_soon(tasks: TaskGroup, function: Callable[..., Awaitable[Any]], *args: object, name: str) -> None:
    """Start ``function(*args)`` as a task of the group."""
    in_asyncio(tasks.start_soon, function, *args, name=name)


def in_asyncio(call: Callable[..., _T], *args: object, **named: object) -> _T:
    """Return ``call(*args, **named)``, which may create objects of anyio. Only in a thread with a running event loop."""
    sniffio = sys.modules.get("sniffio")
    if sniffio is None or asyncio.current_task() is not None:
        return call(*args, **named)

    def named_asyncio() -> _T:
        sniffio.current_async_library_cvar.set("asyncio")
        return call(*args, **named)

    return contextvars.copy_context().run(named_asyncio)
