"""Runs a coroutine the way that asynchronous clients are run in production: on uvloop, where there is one."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from benchmarks.job import Job
from benchmarks.measure import Figures

__all__ = ["blocking", "run"]

_T = TypeVar("_T")


def run(main: Coroutine[Any, Any, _T]) -> _T:
    """The coroutine's result."""
    try:
        factory = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        factory = None
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


def blocking(work: Callable[[Job], Coroutine[Any, Any, Figures]]) -> Callable[[Job], Figures]:
    """The same as a function that runs its own event loop."""
    return lambda job: run(work(job))
