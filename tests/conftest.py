"""Fixtures that many tests share: a broker, a producer on it, and event loops in debug mode."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop
from hypothesis import HealthCheck, settings

from aioproducer import Producer
from aioproducer.engine.lone_batch import LoneBatchSender, Use
from aioproducer.engine.small_requests import SmallRequests
from aioproducer.testing import FakeBroker, VirtualClock
from tests.no_sockets import refused_sockets
from tests.spark.class_archive import QUICK_START, archive_in, begin, java_options
from tests.tiers import COLLECTED, assign, in_order, may_hold, may_start_spark

# Hypothesis takes what lasts long for a fault; on a busy machine anything may. (In a CI it draws the same data each time.)
settings.register_profile("any machine", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def pytest_configure(config: pytest.Config) -> None:
    """Let every Spark start quickly, in any test: most of the time of these tests is that of Java's start."""
    cache: pytest.Cache | None = getattr(config, "cache", None)  # there is none with -p no:cacheprovider
    if cache is None:
        return
    archive = archive_in(cache.mkdir("java"))
    os.environ.setdefault("SPARK_SUBMIT_OPTS", java_options(archive))
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", QUICK_START)
    is_worker_of_xdist = hasattr(config, "workerinput")
    if not is_worker_of_xdist and may_start_spark(config.option.markexpr):
        begin(archive)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the suite be run with batches on their fast paths wherever that is possible, and without them."""
    parser.addoption("--batch-fast-path", choices=[use.name.lower() for use in Use], default=Use.WHEN_LONE.name.lower())


@pytest.fixture(autouse=True)
def _batch_fast_path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    use = Use[request.config.getoption("--batch-fast-path").upper()]
    if use is not LoneBatchSender.use:
        monkeypatch.setattr(LoneBatchSender, "use", use)
        monkeypatch.setattr(SmallRequests, "enabled", use is not Use.NEVER)


@pytest.fixture
def no_batch_fast_path(_batch_fast_path: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is enqueued in one turn of the event loop fills one batch, also after a lone record."""
    monkeypatch.setattr(LoneBatchSender, "use", Use.NEVER)


@pytest.hookimpl(tryfirst=True)  # before the marks are selected
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give each test its tier, and sort them by it."""
    assign(items, Path(__file__).parent.as_posix())
    in_order(items)
    config.stash[COLLECTED] = list(items)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Spare a tier that is kept in a few files the time that importing all others takes."""
    if collection_path.suffix != ".py":
        return None
    place = collection_path.relative_to(Path(__file__).parent).as_posix()
    return None if may_hold(place, config.option.markexpr) else True


def pytest_collection_finish() -> None:
    """Freeze the objects that exist before the first test: they stay."""
    _freeze()


def _freeze() -> None:
    """Freeze the existing objects, so that the garbage collector does not look through them after each following test.

    Reports and caches grow with each test, and with them the time that looking through them takes.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _sockets_are_for_higher_tiers(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test of the seam is isolated: a socket or a separate program fails it, also where the error was swallowed."""
    if request.node.get_closest_marker("seam") is None:
        yield
        return
    with refused_sockets() as tried:
        yield
    assert tried == []


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    """One node with a topic of three partitions.

    What the test leaves to the collector is collected within it, so that its warnings are its own.
    """
    _freeze()
    with FakeBroker(topics={"orders": 3}) as broker:
        yield broker
    gc.collect()


#: Options that make failures come quickly; the tests that are about time set their own.
QUICK: dict[str, Any] = {"retry_backoff_ms": 5, "retry_backoff_max_ms": 20, "reconnect_backoff_ms": 5}


@asynccontextmanager
async def opened(broker: FakeBroker | str, **options: Any) -> AsyncIterator[Producer]:
    """A producer on the broker, closed soon: what takes longer than this takes for ever."""
    servers = broker if isinstance(broker, str) else broker.bootstrap_servers
    producer = Producer(servers, **{**QUICK, "close_timeout_ms": 20_000, **options})
    async with producer:
        yield producer


@pytest.fixture
def open_producer() -> Callable[..., Any]:
    """`opened`, for tests that need no import."""
    return opened


async def until(condition: Callable[[], object], timeout: float = 30.0) -> None:
    """Let the event loop run until the condition holds; the busiest machine has the patience that it needs."""
    async with asyncio.timeout(timeout):
        while not condition():  # noqa: ASYNC110 - the condition may be another thread's: no event is set for it
            await asyncio.sleep(0.001)


async def turns(count: int = 20) -> None:
    """Let the event loop turn so often: what is due is done then, and what follows from it, on the slowest machine."""
    for _ in range(count):
        await asyncio.sleep(0)


#: Let a producer have so much time that the busiest machine does not use it up, and take it away where the test says.
Clock = VirtualClock


#: The tests of these modules run on every kind of event loop: the usual one, in debug mode, and uvloop.
_ON_EVERY_LOOP = ("test_producer",)


def _debugging_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_debug(True)
    loop.slow_callback_duration = 1.0  # on a busy machine anything shorter says more about the machine
    return loop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The event loops that a test runs on."""
    module = item.nodeid.split("::")[0]
    if not any(name in module for name in _ON_EVERY_LOOP):
        return {"asyncio": asyncio.new_event_loop}
    return {"asyncio": asyncio.new_event_loop, "debug": _debugging_loop, "uvloop": uvloop.new_event_loop}
