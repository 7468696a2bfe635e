"""The hot path: what runs for every single record, in plain Python or, where it was built, in native code."""

from __future__ import annotations

from ._append import RECORD_COST, Appender, Budget, Lane, OpenBatch, StickyPartition, count_fork
from ._delivery import Delivery, DeliveryCallback, ProduceResult, UnobservedSink

__all__ = [
    "RECORD_COST",
    "Appender",
    "Budget",
    "Delivery",
    "DeliveryCallback",
    "Lane",
    "OpenBatch",
    "ProduceResult",
    "StickyPartition",
    "UnobservedSink",
    "count_fork",
]
