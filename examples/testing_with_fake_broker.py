"""Test code that produces, without Kafka and without mocks: a broker that checks requests, and fails on demand.

Run it with ``pytest testing_with_fake_broker.py``; it needs pytest-asyncio. aioproducer brings the fixture ``kafka_broker``.
"""

from __future__ import annotations

import json

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


@pytest.mark.asyncio
async def test_a_registration_is_written_with_its_key_and_type(kafka_broker: FakeBroker) -> None:
    async with Producer(kafka_broker.bootstrap_servers) as producer:
        number = await register(producer, "Ada")

    assert number == 0
    assert kafka_broker.json("registrations") == [{"name": "Ada"}]
    kafka_broker.assert_sent("registrations", key="Ada", headers={"type": "Registered"})


@pytest.mark.asyncio
async def test_a_registration_survives_a_leader_that_moves_and_a_connection_that_breaks(
    kafka_broker: FakeBroker,
) -> None:
    kafka_broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER")
    kafka_broker.drop_connection("Produce", when="after")

    async with Producer(kafka_broker.bootstrap_servers, retry_backoff_ms=10) as producer:
        await register(producer, "Ada")

    kafka_broker.assert_sent("registrations", key="Ada", times=1)  # once: the retry did not duplicate it
    assert kafka_broker.count("Produce") > 1
