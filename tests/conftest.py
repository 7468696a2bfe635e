"""What many tests share: a broker, a producer on it, and event loops that complain."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aioproducer import Producer
from aioproducer.testing import FakeBroker


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    """One node with a topic of three partitions."""
    with FakeBroker(topics={"orders": 3}) as broker:
        yield broker


#: Options that make failures come quickly; the tests that are about time set their own.
QUICK: dict[str, Any] = {"retry_backoff_ms": 5, "retry_backoff_max_ms": 20, "reconnect_backoff_ms": 5}


@asynccontextmanager
async def opened(broker: FakeBroker | str, **options: Any) -> AsyncIterator[Producer]:
    """A producer on the broker, closed in two seconds at most."""
    servers = broker if isinstance(broker, str) else broker.bootstrap_servers
    producer = Producer(servers, **{**QUICK, "close_timeout_ms": 2000, **options})
    async with producer:
        yield producer


@pytest.fixture
def open_producer() -> Callable[..., Any]:
    """`opened`, for tests that need no import."""
    return opened


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """What a test leaves to the collector is collected within it, so that its warnings are its own."""
    yield
    gc.collect()


async def until(condition: Callable[[], object], timeout: float = 5.0) -> None:
    """Let the event loop run until the condition holds."""
    async with asyncio.timeout(timeout):
        while not condition():
            await asyncio.sleep(0.001)
