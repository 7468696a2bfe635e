"""A connection that ends up at another broker than the one that was meant, as DNS and proxies have it (KIP-1242)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioproducer.protocol.messages import ApiVersionsRequest
from aioproducer.testing import FakeBroker
from tests.conftest import until
from tests.net.peers import client_of, soon


def identities(broker: FakeBroker) -> list[tuple[int, str | None, int]]:
    """Version, cluster id and node id of each ApiVersions request."""
    bodies = [(each.version, each.body) for each in broker.requests_of("ApiVersions")]
    return [
        (version, body.cluster_id, body.node_id) for version, body in bodies if isinstance(body, ApiVersionsRequest)
    ]


async def test_a_broker_is_sent_the_id_that_the_connection_is_meant_for() -> None:
    with FakeBroker(2) as broker:
        host, port = broker.addresses[1]
        async with client_of(f"{host}:{port}") as client:
            await client.wait_ready(soon())
            await until(lambda: client.can_send(2))

        assert identities(broker) == [(4, None, -1), (5, broker.cluster.cluster_id, 2)]


async def test_brokers_that_check_nothing_are_not_asked_twice_for_their_versions() -> None:
    with FakeBroker(3, versions="4.3") as broker:
        async with client_of(broker) as client:
            await client.wait_ready(soon())
            for node in (1, 2, 3):
                await until(lambda node=node: client.can_send(node))  # type: ignore[misc]

        assert {version for version, _, _ in identities(broker)} == {4}
        assert broker.count("ApiVersions") == len(broker.connections(closed=True))


@pytest.mark.parametrize(
    "options", [{"metadata_cluster_check_enable": False}, {"metadata_recovery_strategy": "none"}], ids=str
)
async def test_nothing_is_reported_where_nothing_would_follow_from_it(options: dict[str, Any]) -> None:
    with FakeBroker(2) as broker:
        host, port = broker.addresses[1]
        async with client_of(f"{host}:{port}", **options) as client:
            await client.wait_ready(soon())
            await until(lambda: client.can_send(2))

        assert identities(broker) == [(4, None, -1), (4, None, -1)]


@pytest.mark.parametrize("who", ["another cluster", "another node"])
async def test_a_misrouted_connection_is_given_up_and_the_cluster_is_bootstrapped_again(who: str) -> None:
    with FakeBroker(3) as broker, FakeBroker(3) as other:
        other.cluster.cluster_id = "another"
        right = broker.addresses[2]
        wrong = other.addresses[2] if who == "another cluster" else broker.addresses[3]
        broker.cluster.nodes[2].host, broker.cluster.nodes[2].port = wrong
        host, port = broker.addresses[1]
        options: dict[str, Any] = {"reconnect_backoff_ms": 20, "reconnect_backoff_max_ms": 100}
        async with client_of(f"{host}:{port}", **options) as client:
            await client.wait_ready(soon())
            bootstraps = len(broker.connections(1, closed=True))
            loop = asyncio.get_running_loop()
            began, attempts, asked_again = loop.time(), 0, 0
            while loop.time() < began + 0.3 or attempts < 2 or asked_again < 1:
                assert not client.can_send(2)
                await asyncio.sleep(0.001)
                attempts = len(other.connections(closed=True)) or len(broker.connections(3, closed=True))
                asked_again = len(broker.connections(1, closed=True)) - bootstraps
            took = loop.time() - began
            broker.cluster.nodes[2].host, broker.cluster.nodes[2].port = right
            await until(lambda: client.can_send(2))

        assert other.count("Metadata") == 0
        assert attempts <= 2 + took / 0.016, "not more often than every 20 ms, less 20 %"
        assert asked_again <= 2 + took / 0.1, "not more often than every 100 ms"
