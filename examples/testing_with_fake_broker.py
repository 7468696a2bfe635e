"""Test code that produces, without Kafka and without mocks: a broker that checks what it gets, and fails on demand.

Run it with ``pytest testing_with_fake_broker.py``; it needs pytest-asyncio.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from aioproducer import Producer
from aioproducer.testing import FakeBroker

# -- the code under test ---------------------------------------------------------------------------------------------------


async def register(producer: Producer, name: str) -> int:
    """Write a registration; returns its number."""
    metadata = await producer.send(
        "registrations", json.dumps({"name": name}), key=name, headers={"type": "Registered"}
    )
    return metadata.offset


# -- its tests -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"registrations": 1}) as broker:
        yield broker


@pytest.mark.asyncio
async def test_a_registration_is_written_with_its_key_and_type(broker: FakeBroker) -> None:
    async with Producer(broker.bootstrap_servers) as producer:
        number = await register(producer, "Ada")

    assert number == 0
    assert broker.json("registrations") == [{"name": "Ada"}]
    broker.assert_sent("registrations", key="Ada", headers={"type": "Registered"})


@pytest.mark.asyncio
async def test_a_registration_survives_a_leader_that_moves_and_a_connection_that_breaks(broker: FakeBroker) -> None:
    broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER")
    broker.drop_connection("Produce", when="after")

    async with Producer(broker.bootstrap_servers, retry_backoff_ms=10) as producer:
        await register(producer, "Ada")

    broker.assert_sent("registrations", key="Ada", times=1)  # once: the retry did not duplicate it
    assert broker.count("Produce") > 1
