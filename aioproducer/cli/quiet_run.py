"""Runs a coroutine of a verb that reports everything itself, so that the client's log would only repeat it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import TypeVar

__all__ = ["run_quietly"]

T = TypeVar("T")


def run_quietly(main: Coroutine[object, object, T]) -> T:
    """The result of `asyncio.run`, during which the client logs nothing below CRITICAL."""
    logger = logging.getLogger("aioproducer")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        return asyncio.run(main)
    finally:
        logger.setLevel(level)
