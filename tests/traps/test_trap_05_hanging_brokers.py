"""Trap 5: a send or a close that hangs because brokers are away, half dead, or only listening."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import pytest

from aioproducer import KafkaTimeoutError, NotWrittenTimeout, Producer
from aioproducer.errors import DeliveryError, Unknown
from aioproducer.protocol import ApiKey, ErrorCode
from aioproducer.protocol.messages import ApiVersionsResponse, MetadataResponse
from aioproducer.testing import FakeBroker, RequestContext
from tests.conftest import QUICK, Clock, turns, until
from tests.traps.judge import audited


@contextmanager
def refused() -> Iterator[str]:
    """A port without a listener, reserved for the time of the test."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@contextmanager
def black_hole() -> Iterator[str]:
    """A port whose queue of connections is full: what comes is not answered at all."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listening.getsockname())
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@contextmanager
def accepts_only() -> Iterator[str]:
    """Connections are taken, and nothing is ever said."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(100)
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@contextmanager
def hanging_resolver() -> Iterator[str]:
    """A name that the resolver thinks about for ever; see the fixture."""
    yield "kafka.hanging.example:9092"


def _without_brokers(context: RequestContext) -> MetadataResponse:
    answer = context.apply()
    assert isinstance(answer, MetadataResponse)
    answer.brokers = []
    return answer


def _failed(context: RequestContext) -> MetadataResponse:
    return MetadataResponse(brokers=[], topics=[], error_code=ErrorCode.UNKNOWN_SERVER_ERROR)


def _without_metadata(context: RequestContext) -> ApiVersionsResponse:
    answer = context.apply()
    assert isinstance(answer, ApiVersionsResponse)
    answer.api_keys = [each for each in answer.api_keys if each.api_key != ApiKey.METADATA]
    return answer


@contextmanager
def knows_no_brokers() -> Iterator[str]:
    """Its metadata are empty, as those of a broker that has just started are."""
    with FakeBroker() as broker:
        broker.control("Metadata", _without_brokers, times=None)
        yield broker.bootstrap_servers


@contextmanager
def fails_at_metadata() -> Iterator[str]:
    """It answers, each time, that something went wrong."""
    with FakeBroker() as broker:
        broker.control("Metadata", _failed, times=None)
        yield broker.bootstrap_servers


@contextmanager
def speaks_no_metadata() -> Iterator[str]:
    """It does not know the request, as the port of a KRaft controller does not."""
    with FakeBroker() as broker:
        broker.control("ApiVersions", _without_metadata, times=None)
        yield broker.bootstrap_servers


@pytest.fixture(autouse=True)
def names_hang(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def getaddrinfo(host: str, *args: Any, **options: Any) -> Any:
        if host.endswith(".hanging.example"):
            answer.wait()
            raise OSError("unknown host name")
        return real(host, *args, **options)

    answer = threading.Event()
    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    yield
    answer.set()


DEAD_ENDS = [
    refused,
    black_hole,
    accepts_only,
    hanging_resolver,
    knows_no_brokers,
    fails_at_metadata,
    speaks_no_metadata,
]


@pytest.mark.parametrize("dead_end", DEAD_ENDS)
async def test_a_send_without_a_broker_ends_by_its_timeout_and_a_close_by_its_own(
    dead_end: Callable[[], AbstractContextManager[str]],
) -> None:
    before = asyncio.all_tasks()
    loop = asyncio.get_running_loop()
    with dead_end() as servers:
        producer = await Producer(servers, max_block_ms=150, **QUICK).start()
        began = loop.time()
        with pytest.raises(NotWrittenTimeout) as caught:
            await producer.send("orders", b"value")
        by_default = loop.time() - began
        with pytest.raises(NotWrittenTimeout):
            await producer.send("orders", b"value", timeout=0.05)
        with pytest.raises(KafkaTimeoutError):
            await producer.ready(timeout=0.05)
        with pytest.raises(KafkaTimeoutError):
            await producer.partitions_for("orders", timeout=0.05)
        waiting = [asyncio.ensure_future(producer.send("orders", b"value", timeout=60)) for _ in range(3)]
        await turns()
        began = loop.time()
        report = await producer.close(timeout=0.1)
        to_close = loop.time() - began
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)

    assert 0.14 < by_default < 20, "and not the 60 s that are usual"
    assert to_close < 20, "and not the 60 s of those who wait"
    assert report.clean
    assert len(str(caught.value)) > 40
    assert all(isinstance(outcome, Exception) for outcome in outcomes)
    assert asyncio.all_tasks() == before


STAGES = ["ApiVersions", "Metadata", "InitProducerId", "Produce"]


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("applied", [True, False])
async def test_a_send_to_a_broker_that_falls_silent_ends_in_time(broker: FakeBroker, stage: str, applied: bool) -> None:
    broker.swallow(stage, applied=applied, times=None)
    before = asyncio.all_tasks()
    clock = Clock()
    options: dict[str, Any] = {
        "request_timeout_ms": 10_000,
        "delivery_timeout_ms": 20_000,
        "linger_ms": 0,
        "max_block_ms": 20_000,
    }
    producer = await Producer(broker.bootstrap_servers, **QUICK, **options).start()
    sending = asyncio.ensure_future(producer.send("orders", b"value"))
    await asyncio.sleep(0)
    for attempts in (1, 2):
        await until(lambda: broker.count(stage) >= attempts)  # noqa: B023 - asked in this round only
        clock.advance(10.5)
    clock.advance(10.5)  # the record may have been accepted after the first time, if a producer id was asked for sooner
    with pytest.raises(DeliveryError) as caught:
        async with asyncio.timeout(20):
            await sending
    async with asyncio.timeout(20):
        await producer.close(timeout=0.1)

    assert isinstance(caught.value, Unknown) == (stage == "Produce")
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("stage", STAGES)
async def test_a_close_while_a_broker_is_silent_ends_by_its_timeout(broker: FakeBroker, stage: str) -> None:
    before = asyncio.all_tasks()
    with broker.hold(stage) as held:
        producer = await Producer(broker.bootstrap_servers, **QUICK).start()
        waiting = asyncio.ensure_future(producer.send("orders", b"value"))
        await until(lambda: held.waiting)
        async with asyncio.timeout(20):
            await producer.close(timeout=0.05)
        with pytest.raises(Exception, match="closed"):
            await waiting

    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("dead_end", DEAD_ENDS)
async def test_a_send_goes_to_the_bootstrap_server_that_is_well_whatever_the_others_do(
    broker: FakeBroker, dead_end: Callable[[], AbstractContextManager[str]]
) -> None:
    options: dict[str, Any] = {**QUICK, "socket_connection_setup_timeout_ms": 60}
    with dead_end() as dead:
        for servers in (f"{dead},{broker.bootstrap_servers}", f"{broker.bootstrap_servers},{dead}"):
            async with Producer(servers, **options) as producer:
                await producer.send("orders", b"value", timeout=30)


@pytest.mark.parametrize("stage", STAGES)
async def test_a_send_survives_one_silence_at_any_stage(broker: FakeBroker, stage: str) -> None:
    broker.swallow(stage)
    async with audited(
        broker, request_timeout_ms=60, socket_connection_setup_timeout_ms=60, delivery_timeout_ms=30_000
    ) as audit:
        await audit.send()

    assert audit.acknowledged == 1


async def test_a_send_is_not_held_up_by_a_leader_that_hangs_when_others_do_not() -> None:
    with FakeBroker(2, topics={"orders": 2}) as broker:
        async with audited(broker) as audit:
            await audit.send(partition=0)
            await audit.send(partition=1)
            with broker.hold("Produce", node=1):
                stuck = await audit.enqueue(partition=0)
                for _ in range(10):
                    await audit.send(partition=1)
                assert stuck.outcome is None


async def test_a_close_that_is_cancelled_goes_on_and_can_be_awaited_again(broker: FakeBroker) -> None:
    before = asyncio.all_tasks()
    producer = await Producer(broker.bootstrap_servers, **QUICK).start()
    await producer.partitions_for("orders")
    with broker.hold("Produce"):
        await producer.enqueue("orders", b"value")
        closing = asyncio.ensure_future(producer.close(timeout=60))
        await turns()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
    report = await producer.close()

    assert (report.delivered, report.clean) == (1, True)
    assert asyncio.all_tasks() == before
