"""Selects the code for small Produce requests: native code if it was built, or its twin in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer._twin import use_native

from ._lone_batch import FIRST_VERSION, Part

if TYPE_CHECKING or not use_native("aioproducer.protocol._lone_batch_native"):
    from ._lone_batch import LoneBatch, SmallRequest, Written
else:
    from ._lone_batch_native import LoneBatch, SmallRequest, Written

__all__ = ["FIRST_VERSION", "LoneBatch", "Part", "SmallRequest", "Written"]
