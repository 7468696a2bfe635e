"""The names of the outcome of a record, whichever twin they come from."""

from __future__ import annotations

from aioproducer.failure import BatchFailure
from aioproducer.hot import Delivery, DeliveryCallback, ProduceResult, UnobservedSink

__all__ = ["BatchFailure", "Delivery", "DeliveryCallback", "ProduceResult", "UnobservedSink"]
