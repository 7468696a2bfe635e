"""Effects of options and metrics that no other test would miss."""

from __future__ import annotations

import asyncio
import random
import socket
from itertools import pairwise
from typing import Any

import pytest

from aioproducer import __version__
from aioproducer.config import ProducerConfig
from aioproducer.core.cluster import Node
from aioproducer.errors import KafkaError, KafkaTimeoutError
from aioproducer.net.addresses import Address
from aioproducer.net.client import NetworkClient
from aioproducer.net.connection import Connection
from aioproducer.net.connector import Connector
from aioproducer.protocol.messages import ApiVersionsRequest, InitProducerIdRequest
from aioproducer.runtime.log import ClientLog
from aioproducer.testing import FakeBroker
from tests.conftest import QUICK, opened, until
from tests.net.peers import FirstIsFirst
from tests.net.virtual import run_virtually


async def test_a_broker_is_reported_which_client_this_is(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        await producer.send("orders", b"value")

    first = broker.requests_of("ApiVersions")[0].body
    assert isinstance(first, ApiVersionsRequest)
    assert (first.client_software_name, first.client_software_version) == ("aioproducer", __version__)


async def test_send_waits_for_a_missing_topic_as_long_as_the_option_allows() -> None:
    with FakeBroker(auto_create_topics=False) as broker:
        async with opened(broker, unknown_topic_timeout_ms=30, max_block_ms=3_600_000) as producer:
            async with asyncio.timeout(20):
                with pytest.raises(KafkaTimeoutError, match="UNKNOWN_TOPIC_OR_PARTITION"):
                    await producer.partitions_for("nowhere")


def test_pauses_between_attempts_at_a_broker_double_up_to_the_longest() -> None:
    attempts: list[float] = []

    async def refuse(make: Any, address: Address) -> Connection:
        attempts.append(asyncio.get_running_loop().time())
        raise ConnectionRefusedError

    async def scenario() -> None:
        config = ProducerConfig("127.0.0.1:9092", reconnect_backoff_ms=100, reconnect_backoff_max_ms=1600)
        client = NetworkClient(
            config, client_id="t", log=ClientLog("t"), random=FirstIsFirst(1), on_ready=lambda: None, connect=refuse
        )
        running = asyncio.create_task(client.run())
        with pytest.raises(KafkaError):
            await client.wait_ready(12)
        await client.close()
        await running

    run_virtually(scenario())

    pauses = [after - before for before, after in pairwise(attempts)]
    expected = [0.1, 0.2, 0.4, 0.8, *[1.6] * 20][: len(pauses)]
    assert len(pauses) >= 7
    assert pauses == pytest.approx(expected, rel=0.3)


async def test_a_transaction_of_version_1_is_written_with_versions_that_do_not_add_partitions(
    broker: FakeBroker,
) -> None:
    """From Produce 12 on a broker takes the request for one of transactions of version 2 (KIP-890)."""
    broker.transaction_version = 1
    async with opened(broker, transactional_id="t") as producer, producer.transaction():
        await producer.send("orders", b"value")
    assert [each.version for each in broker.requests_of("Produce")] == [11]

    broker.forget_requests()
    async with opened(broker) as producer:
        await producer.send("orders", b"value")
    assert broker.requests_of("Produce")[0].version > 11


async def test_the_coordinator_is_reported_how_long_a_transaction_may_take(broker: FakeBroker) -> None:
    async with opened(broker, transactional_id="t", transaction_timeout_ms=12_345) as producer:
        await producer.init_transactions()

    asked = broker.requests_of("InitProducerId")[0].body
    assert isinstance(asked, InitProducerIdRequest)
    assert asked.transaction_timeout_ms == 12_345


async def test_the_sockets_buffers_have_the_sizes_of_the_options(broker: FakeBroker) -> None:
    opened_sockets: list[socket.socket] = []

    async def connect(make: Any, address: Address) -> Connection:
        loop = asyncio.get_running_loop()
        transport, connection = await loop.create_connection(make, address.host, address.port)
        opened_sockets.append(transport.get_extra_info("socket"))
        assert isinstance(connection, Connection)
        return connection

    async def sizes(**options: int) -> tuple[int, int]:
        config = ProducerConfig(broker.bootstrap_servers, **options)  # type: ignore[arg-type]
        connector = Connector(config, "t", random.Random(1), connect)
        host, port = broker.addresses[1]
        await connector.connect(Node(1, host, port), 0, 10.0, lambda *_: None)
        found = opened_sockets[-1]
        both = (
            found.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF),
            found.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF),
        )
        await connector.close(KafkaError("That was all."))
        return both

    small = await sizes(receive_buffer_bytes=10_000, send_buffer_bytes=10_000)
    receiving = await sizes(receive_buffer_bytes=40_000, send_buffer_bytes=10_000)
    sending = await sizes(receive_buffer_bytes=10_000, send_buffer_bytes=40_000)
    assert receiving[0] > small[0]
    assert receiving[1] == small[1]
    assert sending[1] > small[1]
    assert sending[0] == small[0]


@pytest.mark.parametrize(("codec", "low", "high"), [("gzip", 1, 9), ("zstd", 1, 19), ("lz4", 1, 12)])
async def test_small_batches_are_compressed_at_the_level_of_the_option(
    broker: FakeBroker, codec: str, low: int, high: int
) -> None:
    draw = random.Random(5)
    value = b" ".join(
        draw.choice([b"order", b"customer", b"amount", b"paid", b"%d" % draw.randrange(50)]) for _ in range(2000)
    )
    sizes: list[int] = []
    for level in (low, high):
        async with opened(
            broker, compression_type=codec, compression_level=level, max_request_size=100_000
        ) as producer:
            assert len(value) < producer.config.compression_threshold_bytes
            await producer.send("orders", value)
            sizes.append(int(producer.metrics()["byte-total"]))
    assert sizes[1] < sizes[0]


async def test_the_time_in_the_queue_and_the_brokers_pauses_are_measured(broker: FakeBroker) -> None:
    async with opened(broker, max_in_flight_requests_per_connection=1) as producer:
        await producer.send("orders", b"value")
        assert producer.metrics()["produce-throttle-time-max"] == 0
        with broker.hold("Produce"):
            first = await producer.enqueue("orders", b"a", partition=0)
            await until(lambda: broker.count("Produce") == 2)
            queued = await producer.enqueue("orders", b"b" * 100, partition=0)
            began = asyncio.get_running_loop().time()
            await until(lambda: asyncio.get_running_loop().time() > began + 0.05)
        await first
        await queued
        broker.throttle("Produce", 40)
        await producer.send("orders", b"value")
        numbers = producer.metrics()
        assert numbers["record-queue-time-max"] >= 40
        assert numbers["produce-throttle-time-max"] == 40


async def test_the_age_of_the_oldest_record_without_an_outcome_is_in_the_health(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        assert producer.health().oldest_pending_s == 0
        with broker.hold("Produce"):
            waiting = await producer.enqueue("orders", b"value")
            before = producer.health().oldest_pending_s
            await until(lambda: producer.health().oldest_pending_s > before + 0.02)
        await waiting
        assert producer.health().oldest_pending_s == 0


async def test_batches_do_not_linger_while_a_send_waits_for_memory(broker: FakeBroker) -> None:
    options: dict[str, Any] = {"buffer_memory": 100_000, "batch_size": 90_000, "max_request_size": 90_000}
    async with opened(broker, **QUICK | options, linger_ms=3_600_000, delivery_timeout_ms=7_200_000) as producer:
        await producer.send("orders", b"value", partition=0)  # before that a partition has one batch in flight
        with broker.hold("Produce"):
            first = await producer.enqueue("orders", b"a", partition=0)
            await until(lambda: producer.metrics()["produce-request-total"] == 2)
            lingering = await producer.enqueue("orders", b"b" * 60_000, partition=0)
            waiting = asyncio.create_task(producer.send("orders", b"c" * 50_000, partition=1))
            await until(lambda: producer.metrics()["produce-request-total"] == 3, 10)  # the first one is not answered
        async with asyncio.timeout(20):
            await asyncio.gather(first, lingering, waiting)
