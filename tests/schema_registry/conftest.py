"""Fixtures of the schema registry's tests: a registry, a client of it, and time that passes by itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from aioproducer.serializers.schema_registry import SchemaRegistryClient
from aioproducer.serializers.schema_registry import client as module
from tests.schema_registry.registry import Registry


class VirtualTime:
    """A clock that only pauses move."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.pauses: list[float] = []

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


@pytest.fixture
def virtual(monkeypatch: pytest.MonkeyPatch) -> VirtualTime:
    time = VirtualTime()
    monkeypatch.setattr(module, "_clock", time.clock)
    monkeypatch.setattr(module, "_sleep", time.sleep)
    return time


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as registry:
        yield registry


@pytest.fixture
async def client(registry: Registry, virtual: VirtualTime) -> AsyncIterator[SchemaRegistryClient]:
    async with SchemaRegistryClient(registry.url) as client:
        yield client
