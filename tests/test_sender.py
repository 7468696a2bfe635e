"""The Sender's rounds: what it must never wait for, and what must wake it."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import cast

import anyio
import anyio.to_thread

from aioproducer import ProducerConfig
from aioproducer.core.cluster import ClusterMetadata
from aioproducer.net.client import NetworkClient
from aioproducer.protocol.messages import ProduceRequest
from aioproducer.record import Codec
from aioproducer.sender import Sender
from aioproducer.testing import FakeBroker
from tests.conftest import opened
from tests.test_accumulator import Rig


async def test_compression_does_not_wait_for_the_applications_threads(broker: FakeBroker) -> None:
    """Threads that wait for a delivery, as those of a web framework's plain endpoints do, must not starve it."""
    everybody = threading.Event()
    limiter = anyio.to_thread.current_default_thread_limiter()
    before, limiter.total_tokens = limiter.total_tokens, 2
    async with opened(broker, compression_type="gzip", compression_threshold_bytes=100) as producer:
        await producer.partitions_for("orders")
        busy = [asyncio.create_task(anyio.to_thread.run_sync(everybody.wait)) for _ in range(2)]
        await asyncio.sleep(0.01)
        try:
            async with asyncio.timeout(2):
                await producer.send("orders", b"x" * 1000)
        finally:
            everybody.set()
            await asyncio.gather(*busy)
            limiter.total_tokens = before


class Client:
    """Brokers that take everything and answer nothing."""

    last_error = None

    def __init__(self, metadata: ClusterMetadata) -> None:
        self.metadata = metadata
        self.sent: list[ProduceRequest] = []

    def can_send(self, node: int) -> bool:
        return True

    def usable_version(self, node: int, request: object) -> int:
        return 9

    def request_update(self, topic: str | None = None) -> None:
        pass

    def send(self, node: int, request: ProduceRequest, *_: object, **__: object) -> None:
        self.sent.append(request)


async def test_what_is_behind_an_expired_batch_goes_out_in_the_round_that_finds_it_expired() -> None:
    rig = Rig(delivery_timeout_s=0.001)
    client = Client(rig.metadata)
    sender = Sender(
        ProducerConfig.create("localhost:9092"),
        rig.accumulator,
        cast("NetworkClient", client),
        rig.sequences,
        rig.metrics,
        codec=Codec.NONE,
        random=lambda: 0.0,
    )
    now = asyncio.get_running_loop().time()
    rig.put(now=now)
    rig.acknowledge(*rig.drain(now), now=now)
    rig.put(now=now)
    (doubtful,) = rig.drain(now)
    doubtful.possibly_written = True
    rig.accumulator.retry(doubtful, now)
    behind = rig.put(now=now + 60, size=2000)
    time.sleep(0.002)  # noqa: ASYNC251 - no round before the first one has expired

    async with anyio.create_task_group() as helpers:
        sender._round(helpers)

    assert doubtful.result.done
    assert [topic.partition_data[0].index for request in client.sent for topic in request.topic_data] == [0]
    assert not behind.done()
