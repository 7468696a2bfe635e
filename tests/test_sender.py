"""The Sender's rounds: what it must never wait for, and what must wake it."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import anyio
import anyio.to_thread
import pytest

from aioproducer.core.answers import ProduceAnswer
from aioproducer.core.cluster import PartitionMetadata, TopicMetadata
from aioproducer.protocol import ErrorCode
from aioproducer.protocol.messages import InitProducerIdResponse, PartitionProduceResponse
from aioproducer.protocol.wire import ZERO_UUID
from aioproducer.record import RecordBatchBuilder
from aioproducer.testing import FakeBroker, RequestContext
from tests.conftest import Clock, opened, until
from tests.rig import Rig
from tests.sender_rig import Client, sender_of


async def test_compression_does_not_wait_for_the_applications_threads(broker: FakeBroker) -> None:
    """Threads that wait for a delivery, as those of a web framework's plain endpoints do, must not starve it."""
    everybody = threading.Event()
    limiter = anyio.to_thread.current_default_thread_limiter()
    before, limiter.total_tokens = limiter.total_tokens, 2
    async with opened(broker, compression_type="gzip", compression_threshold_bytes=100) as producer:
        await producer.partitions_for("orders")
        busy = [asyncio.create_task(anyio.to_thread.run_sync(everybody.wait)) for _ in range(2)]
        await until(lambda: limiter.borrowed_tokens == 2)
        try:
            async with asyncio.timeout(20):
                await producer.send("orders", b"x" * 1000)
        finally:
            everybody.set()
            await asyncio.gather(*busy)
            limiter.total_tokens = before


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (-5, 0), (7, -1)])
async def test_a_producer_id_that_is_none_is_asked_for_again_with_pauses(
    broker: FakeBroker, producer_id: int, epoch: int
) -> None:
    """Under a negative id a broker takes batches without looking at their numbers: nothing would be a repeat to it."""

    def answer(context: RequestContext) -> InitProducerIdResponse:
        return InitProducerIdResponse(error_code=0, producer_id=producer_id, producer_epoch=epoch)

    broker.control("InitProducerId", answer, times=None)
    pauses = {"retry_backoff_ms": 50, "retry_backoff_max_ms": 50}
    async with opened(broker, **pauses) as producer:
        waiting = asyncio.ensure_future(producer.send("orders", b"value", timeout=30))
        began = asyncio.get_running_loop().time()
        await until(lambda: broker.count("InitProducerId") >= 3)
        took = asyncio.get_running_loop().time() - began
        broker.clear_faults()
        await waiting

    assert took > 2 * 0.05 * 0.8 - 0.001, "two pauses, less 20 %"
    assert len({request.connection for request in broker.requests_of("InitProducerId")}) > 1, (
        "the broker is not trusted"
    )
    (record,) = broker.records("orders")
    assert (record.producer_id, record.producer_epoch) == (1000, 0)


@pytest.mark.parametrize("refusals", [1, 7])
async def test_a_producer_id_that_the_broker_does_not_know_any_more_is_replaced(
    broker: FakeBroker, refusals: int
) -> None:
    """Event Hubs says INVALID_PRODUCER_ID_MAPPING to Produce; under the same id it would say so for ever."""
    async with opened(broker, batch_size=100) as producer:
        await producer.send("orders", b"first", partition=0)
        broker.fail("Produce", ErrorCode.INVALID_PRODUCER_ID_MAPPING, times=refusals)
        sent = [
            await producer.enqueue("orders", b"%d" % number, partition=partition)
            for number in range(30)
            for partition in range(3)
        ]
        async with asyncio.timeout(20):
            await asyncio.gather(*sent)

    for partition in range(3):
        values = [record.value for record in broker.records("orders", partition) if record.value != b"first"]
        assert values == [b"%d" % number for number in range(30)], "in order, none twice"
    assert len({record.producer_id for record in broker.records("orders")}) > 1


async def test_topics_without_leaders_are_asked_for_in_the_same_order_in_each_run() -> None:
    """Or the schedule of a test that fails could not be had again."""
    rig = Rig()
    client = Client(rig.metadata)
    names = [f"topic {number:02}" for number in range(20)]
    now = asyncio.get_running_loop().time()
    for name in reversed(names):
        topic = TopicMetadata(name, ZERO_UUID, (PartitionMetadata(0, -1, 0),))
        rig.accumulator.append_builder(topic, 0, RecordBatchBuilder(), now)

    async with anyio.create_task_group() as helpers:
        sender_of(rig, client)._round(helpers)

    assert client.updates == names


async def test_a_batch_behind_an_expired_one_is_sent_in_the_round_that_detects_the_expiry() -> None:
    rig = Rig(delivery_timeout_s=30)
    client = Client(rig.metadata)
    sender = sender_of(rig, client)
    clock = Clock()
    now = asyncio.get_running_loop().time()
    rig.put(now=now)
    rig.acknowledge(*rig.drain(now), now=now)
    rig.put(now=now)
    (doubtful,) = rig.drain(now)
    doubtful.possibly_written = True
    rig.accumulator.outcomes.retry(doubtful, now)
    behind = rig.put(now=now + 60, size=2000)
    clock.advance(31)

    async with anyio.create_task_group() as helpers:
        sender._round(helpers)

    assert doubtful.result.done
    assert [request.partitions for request in client.sent] == [[("t", 0)]]
    assert not behind.done()


async def test_an_answer_wakes_the_sender_if_it_leaves_something_to_do_and_only_then() -> None:
    rig = Rig()
    client = Client(rig.metadata)
    sender = sender_of(rig, client)
    now = asyncio.get_running_loop().time()
    sending = asyncio.create_task(sender.run())

    def answer(request: int, code: int = 0) -> None:
        response = PartitionProduceResponse(index=0, error_code=code, base_offset=0)
        client.sent[request].take(ProduceAnswer((response,), (), 0))

    def is_awake() -> bool:
        return sender._awake

    async def asleep(sent: int) -> None:
        sender.wake()  # the Rig does not
        await until(lambda: len(client.sent) == sent and sender._wakeup is not None and not sender._awake)

    rig.put(0, now=now)
    await asleep(1)
    answer(0)
    assert not is_awake(), "everything is done"

    rig.put(0, now=now)
    await asleep(2)
    rig.put(0, now=now)
    await asleep(2)  # it lingers behind the first
    answer(1)
    assert is_awake(), "it may leave"
    await asleep(3)
    answer(2, ErrorCode.REQUEST_TIMED_OUT)
    assert is_awake(), "the alarm has to be set for the end of the backoff"
    sending.cancel()


class SlowClient(Client):
    """Takes as long for a request as many batches do."""

    def send(self, *arguments: Any, **more: Any) -> None:
        super().send(*arguments, **more)
        time.sleep(0.005)


async def test_a_round_that_took_long_is_followed_by_a_pause() -> None:
    rig = Rig()
    sender = sender_of(rig, SlowClient(rig.metadata))
    rig.put(0, now=asyncio.get_running_loop().time())

    async with anyio.create_task_group() as helpers:
        sender._work(helpers)
    rig.put(1, now=asyncio.get_running_loop().time())

    assert rig.accumulator.queues.is_pausing


async def test_a_round_that_takes_long_leaves_the_rest_to_the_next_but_no_broker_out() -> None:
    rig = Rig(partitions=1200, nodes=2)
    client = SlowClient(rig.metadata)
    sender = sender_of(rig, client)
    for partition in range(1200):
        rig.put(partition, now=asyncio.get_running_loop().time(), size=1)

    requests = []
    async with anyio.create_task_group() as helpers:
        while rig.accumulator.queues.ready_nodes():
            sender._awake = False
            sender._work(helpers)
            assert sender._awake == bool(rig.accumulator.queues.ready_nodes())
            requests.append(len(client.sent))

    assert requests == [2, 4, 6], "one to each broker in each round"


async def test_in_a_pause_batches_fill_as_long_as_records_come_and_leave_when_none_come() -> None:
    rig = Rig()
    client = Client(rig.metadata)
    sender = sender_of(rig, client)
    loop = asyncio.get_running_loop()
    rig.accumulator.queues.worked(3600.0, loop.time())
    sending = asyncio.create_task(sender.run())
    for number in range(12):
        rig.put(number % 3, now=loop.time(), size=10)
        await asyncio.sleep(0)
        assert client.sent == []

    await until(lambda: client.sent)
    sending.cancel()

    (request,) = client.sent
    assert len(request.partitions) == 3
    assert rig.metrics.records_per_request.total == 12


async def test_a_pause_costs_who_sends_alone_no_time(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        await producer.send("orders", b"first")
        engine = producer._engine
        assert engine is not None
        async with asyncio.timeout(60):
            for partition in range(3):
                engine.accumulator.queues.worked(3600.0, engine.loop.time())
                await producer.send("orders", b"value", partition=partition)
