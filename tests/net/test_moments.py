"""Events at their exact times."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer.errors import BrokerConnectionError
from aioproducer.net.client import whole
from aioproducer.protocol import RequestHeader
from aioproducer.protocol.messages import InitProducerIdRequest, MetadataRequest, ProduceRequest
from tests.conftest import until
from tests.net.peers import metadata_answer
from tests.net.virtual import Wire, run_virtually, virtual_client

INIT = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)


@pytest.mark.parametrize("used_at", [0.0, 1.0, 4.9, 5.1, 9.9])
def test_a_connection_is_closed_when_it_was_idle_for_its_time(used_at: float) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        wires: list[Wire] = []
        async with virtual_client(wires, connections_max_idle_ms=10_000) as client:
            await asyncio.sleep(used_at)
            last_used = loop.time()
            await client.request(MetadataRequest(topics=[]), read=whole)
            await until(lambda: not client.connected_nodes(), timeout=60)

            assert loop.time() - last_used == pytest.approx(10, abs=0.01)

    run_virtually(scenario())


def test_a_connection_that_waits_for_an_answer_is_idle_from_the_answer_on() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        wires: list[Wire] = []
        async with virtual_client(wires, connections_max_idle_ms=1000, request_timeout_ms=60_000) as client:
            reported: list[object] = []
            client.send(1, INIT, 1, reported.append, 60, read=whole)
            await asyncio.sleep(7.3)
            assert client.connected_nodes() == [1]
            answered_at = loop.time()
            # InitProducerId v1: correlation id 3, no throttle, no error, producer id 7, epoch 0
            wires[0].receive(bytes.fromhex("000000140000000300000000000000000000000000070000"))
            await until(lambda: not client.connected_nodes(), timeout=60)

            assert reported
            assert loop.time() - answered_at == pytest.approx(1, abs=0.01)

    run_virtually(scenario())


@pytest.mark.parametrize("idle_ms", [0, 1])
def test_a_connection_may_be_closed_after_no_time_at_all_without_a_storm(idle_ms: int) -> None:
    async def scenario() -> None:
        wires: list[Wire] = []
        async with virtual_client(wires, connections_max_idle_ms=idle_ms) as client:
            await asyncio.sleep(1)

            assert not client.connected_nodes()

    run_virtually(scenario())


@pytest.mark.parametrize("throttled", [False, True])
def test_a_throttle_gives_more_time_to_what_is_not_written_yet(throttled: bool) -> None:
    """With acks=0 nothing is awaited, but a broker that asks for silence reads nothing meanwhile, either (KIP-219)."""
    unacknowledged = ProduceRequest(transactional_id=None, acks=0, timeout_ms=1000, topic_data=[])

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        wires: list[Wire] = []
        async with virtual_client(wires) as client:
            asked: list[RequestHeader] = []
            wires[0].respond = asked.append
            client.send(1, MetadataRequest(topics=[]), 8, lambda _: None, 1, read=whole)
            wires[0].stuck = True
            reported: list[object] = []
            client.send(1, unacknowledged, 8, reported.append, 1, read=whole, expect_response=False)
            wires[0].receive(metadata_answer(asked[0], 9092, throttle_time_ms=5000 if throttled else 0))
            await until(lambda: reported, timeout=60)

            assert isinstance(reported[0], BrokerConnectionError)
            assert loop.time() == pytest.approx(6 if throttled else 1, abs=0.02)

    run_virtually(scenario())
