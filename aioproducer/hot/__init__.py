"""The hot path: what runs for every single record, in native code where it was built, or else in plain Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer._twin import use_native

from . import _append

if TYPE_CHECKING or not use_native("aioproducer.hot._native"):
    from ._append import RECORD_COST, Appender, Budget, Lane, OpenBatch, ShortWay, StickyPartition, count_fork
    from ._delivery import Delivery, Outcome
else:
    from ._native import (
        RECORD_COST,
        Appender,
        Budget,
        Delivery,
        Lane,
        OpenBatch,
        Outcome,
        ShortWay,
        StickyPartition,
        count_fork,
    )

    for name in ("enqueue", "enqueue_nowait"):  # what a user reads is written once
        getattr(ShortWay, name).__doc__ = getattr(_append.ShortWay, name).__doc__

__all__ = [
    "RECORD_COST",
    "Appender",
    "Budget",
    "Delivery",
    "Lane",
    "OpenBatch",
    "Outcome",
    "ShortWay",
    "StickyPartition",
    "count_fork",
]
