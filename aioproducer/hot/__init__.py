"""The hot path: the code that runs for every record, native if it was built, else in plain Python."""

from __future__ import annotations

import asyncio
import inspect
import sys
from typing import TYPE_CHECKING

from aioproducer._twin import use_native

from . import _append

if TYPE_CHECKING or not use_native("aioproducer.hot._native"):
    from ._append import RECORD_COST, Appender, Budget, FastPath, Lane, OpenBatch, StickyPartition, count_fork
    from ._delivery import Delivery, Outcome
else:
    from ._native import (
        RECORD_COST,
        Appender,
        Budget,
        Delivery,
        FastPath,
        Lane,
        OpenBatch,
        Outcome,
        StickyPartition,
        count_fork,
    )

    for name in ("send", "enqueue", "enqueue_nowait"):  # user documentation is written once
        for attribute in ("__annotations__", "__doc__", "__qualname__"):
            setattr(getattr(FastPath, name), attribute, getattr(getattr(_append.FastPath, name), attribute))
    # Mocks and retry decorators inspect the method to see that it returns a coroutine.
    for call in (FastPath.send, FastPath.enqueue):
        if sys.version_info >= (3, 12):
            inspect.markcoroutinefunction(call)
        else:
            call._is_coroutine = asyncio.coroutines._is_coroutine

__all__ = [
    "RECORD_COST",
    "Appender",
    "Budget",
    "Delivery",
    "FastPath",
    "Lane",
    "OpenBatch",
    "Outcome",
    "StickyPartition",
    "count_fork",
]
