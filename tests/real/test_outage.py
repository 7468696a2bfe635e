"""Brokers that are killed, restarted or paused: nothing is lost, doubled, reordered, or waited for too long."""

from __future__ import annotations

import asyncio
import socket
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient

from aioproducer import CloseReport, Delivery, NotWrittenTimeout, Producer
from aioproducer.errors import DeliveryError
from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.plugin import KafkaFactory
from tests.real.conftest import Load, read_log

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

VERSIONS = ["4.3.1", "3.9.2"]

#: How often it is looked how late the event loop is, and what may be late without it, in seconds.
_BEAT_S, _SLACK_S = 0.01, 0.25


@pytest.fixture(params=VERSIONS)
def kafka(request: pytest.FixtureRequest, kafka_factory: KafkaFactory) -> KafkaCluster:
    """One broker."""
    return kafka_factory(request.param)


@pytest.fixture(params=["4.3.1", pytest.param("3.9.2", marks=pytest.mark.soak)])
def three(request: pytest.FixtureRequest, kafka_factory: KafkaFactory) -> KafkaCluster:
    """Three brokers."""
    return kafka_factory(request.param, brokers=3)


def new_topic(kafka: KafkaCluster, partitions: int = 1) -> str:
    name = f"outage-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name, partitions, len(kafka.broker_ids))
    return name


# -- one broker --------------------------------------------------------------------------------------------------------


async def test_a_broker_that_is_killed_and_comes_back_after_20_s_gets_every_record_once(kafka: KafkaCluster) -> None:
    topic, other = new_topic(kafka, 3), new_topic(kafka)
    async with Producer(kafka.bootstrap_servers) as producer, Load(producer, topic, 3) as load:
        await producer.send(other, b"before")
        await load.wait_progress()

        kafka.kill(1)
        killed_at = time.monotonic()
        try:
            async with fails_in(1.0, DeliveryError):
                await producer.send(other, b"meanwhile", timeout=1)
            async with Producer(kafka.bootstrap_servers) as stranger, fails_in(1.0, NotWrittenTimeout):
                await stranger.send(other, b"never", timeout=1)
            await asyncio.sleep(killed_at + 20 - time.monotonic())
        finally:
            await asyncio.to_thread(kafka.start, 1)
        await load.wait_progress()

    load.check(read_log(kafka, topic))
    assert read_log(kafka, other) == {0: [b"before", b"meanwhile"]}


@asynccontextmanager
async def fails_in(seconds: float, error: type[Exception]) -> AsyncIterator[None]:
    """The block must raise this error, which is a timeout, when the time is over."""
    async with lasts(seconds):
        with pytest.raises(error) as caught:
            yield
    assert isinstance(caught.value, TimeoutError)


@asynccontextmanager
async def lasts(seconds: float) -> AsyncIterator[None]:
    """The block must take so long, and as much longer as the event loop itself was late at the worst.

    A machine that is busy with three Kafkas lets no process run in time, which no code in it can make up for.
    """
    loop = asyncio.get_running_loop()
    lateness = Lateness(loop)
    began = loop.time()
    try:
        yield
    finally:
        ended = loop.time()
        worst = lateness.stop()
    assert seconds - 0.01 <= ended - began <= seconds + _SLACK_S + worst, (
        f"the loop was {worst:.3f} s late at the worst"
    )


class Lateness:
    """Measures how late an event loop is at the worst."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._worst = 0.0
        self._await_beat()

    def stop(self) -> float:
        """The seconds."""
        self._timer.cancel()
        return max(self._worst, self._loop.time() - self._timer.when())

    def _await_beat(self) -> None:
        due = self._loop.time() + _BEAT_S
        self._timer = self._loop.call_at(due, self._beat, due)

    def _beat(self, due: float) -> None:
        self._worst = max(self._worst, self._loop.time() - due)
        self._await_beat()


@contextmanager
def refusing(kafka: KafkaCluster) -> Iterator[None]:
    """The broker is dead, and its port refuses connections."""
    kafka.kill(1)
    try:
        yield
    finally:
        kafka.start(1)


@contextmanager
def swallowing(kafka: KafkaCluster) -> Iterator[None]:
    """The broker is dead, and what is sent to its port vanishes: its SYNs go to a queue that is full."""
    kafka.kill(1)
    try:
        with ExitStack() as sockets:
            hole = sockets.enter_context(socket.socket())
            hole.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            hole.bind(("127.0.0.1", kafka.port(1)))
            hole.listen(0)
            for _ in range(2):
                filler = sockets.enter_context(socket.socket())
                filler.setblocking(False)
                filler.connect_ex(("127.0.0.1", kafka.port(1)))
            with pytest.raises(TimeoutError):
                socket.create_connection(("127.0.0.1", kafka.port(1)), 0.2)
            yield
    finally:
        kafka.start(1)


@contextmanager
def mute(kafka: KafkaCluster) -> Iterator[None]:
    """The broker keeps its connections, takes new ones, and answers nothing."""
    kafka.pause(1)
    try:
        yield
    finally:
        kafka.resume(1)


@pytest.mark.parametrize("outage", [refusing, swallowing, mute])
async def test_closing_ends_in_time_and_reports_the_outcome_of_every_record(
    kafka: KafkaCluster, outage: object
) -> None:
    assert callable(outage)
    topic = new_topic(kafka, 2)
    producer = await Producer(kafka.bootstrap_servers, batch_size=1000).start()
    before = [await producer.enqueue(topic, b"before %d" % n, partition=n % 2) for n in range(1000)]
    await producer.flush(30)

    with outage(kafka):
        meanwhile = [await producer.enqueue(topic, b"meanwhile %d" % n, partition=n % 2) for n in range(1000)]
        await asyncio.sleep(1)
        async with lasts(5):
            report = await producer.close(5)

    assert all(delivery.exception() is None for delivery in before)
    assert (report.delivered, report.failed + report.unknown) == (1000, 1000)
    assert report.unknown > 0 or outage is not mute, "what a paused broker has in its sockets may yet be written"
    check_report(report, meanwhile)
    await check_log(kafka, topic, report)


def check_report(report: CloseReport, failed: list[Delivery]) -> None:
    """Each record stands once where its own error says, in the order in which it was sent."""
    numbers: dict[bytes, DeliveryError] = {}
    for number, delivery in enumerate(failed):
        error = delivery.exception()
        assert error is not None
        numbers[b"meanwhile %d" % number] = error
    for name, records, count in (
        ("NotWritten", report.not_written, report.failed),
        ("Unknown", report.maybe_written, report.unknown),
    ):
        assert len(records) == count
        for partition in (0, 1):
            assert [record.value for record in records if record.partition == partition] == [
                value
                for number, (value, error) in enumerate(numbers.items())
                if type(error).__name__.startswith(name) and number % 2 == partition
            ]


async def check_log(kafka: KafkaCluster, topic: str, report: CloseReport) -> None:
    """A record that is certainly not written is not in the log, even after a paused broker has handled its backlog."""
    await asyncio.sleep(1)
    log = read_log(kafka, topic)
    maybe = {record.value for record in report.maybe_written}
    for partition in (0, 1):
        before = [b"before %d" % n for n in range(1000) if n % 2 == partition]
        assert log[partition][:500] == before
        assert set(log[partition][500:]) <= maybe
        assert len(set(log[partition])) == len(log[partition])


# -- three brokers -----------------------------------------------------------------------------------------------------


async def wait_in_sync(kafka: KafkaCluster, topic: str) -> None:
    """Wait until each partition has all its replicas in sync again."""

    def in_sync() -> bool:
        partitions = [each for found in kafka.admin.metadata([topic]).topics for each in found.partitions]
        return all(len(each.isr_nodes) == 3 for each in partitions)

    async with asyncio.timeout(60):
        while not await asyncio.to_thread(in_sync):  # noqa: ASYNC110 - only Kafka knows
            await asyncio.sleep(0.1)


async def test_a_leader_that_is_killed_is_replaced(three: KafkaCluster) -> None:
    topic = new_topic(three, 3)
    async with Producer(three.bootstrap_servers) as producer, Load(producer, topic, 3) as load:
        await load.wait_progress()
        leader = three.leader_of(topic, 0)

        three.kill(leader)
        try:
            await load.wait_progress()
        finally:
            await asyncio.to_thread(three.start, leader)
        await wait_in_sync(three, topic)
        await load.wait_progress()

    load.check(read_log(three, topic))


async def test_leaders_may_move_and_brokers_restart_one_after_the_other(three: KafkaCluster) -> None:
    topic = new_topic(three, 6)
    partitions = [TopicPartition(topic, partition) for partition in range(6)]
    admin = AdminClient({"bootstrap.servers": three.bootstrap_servers, "log_level": 0})
    async with Producer(three.bootstrap_servers) as producer, Load(producer, topic, 6) as load:
        await load.wait_progress()
        for broker in three.broker_ids:
            await asyncio.to_thread(three.stop, broker)
            await load.wait_progress()
            await asyncio.to_thread(three.start, broker)
            await wait_in_sync(three, topic)
            elected = admin.elect_leaders(ElectionType.PREFERRED, partitions)  # the leaders go back to where they were
            await asyncio.to_thread(elected.result, 30)
            await load.wait_progress()

    load.check(read_log(three, topic))


async def test_a_leader_that_sleeps_past_its_session_and_wakes_up_again_does_no_harm(three: KafkaCluster) -> None:
    topic = new_topic(three, 3)
    async with Producer(three.bootstrap_servers, request_timeout_ms=5000) as producer, Load(producer, topic, 3) as load:
        await load.wait_progress()
        sleeper = three.leader_of(topic, 0)

        three.pause(sleeper)
        try:
            await asyncio.sleep(8)
        finally:
            three.resume(sleeper)
        await load.wait_progress()
        await wait_in_sync(three, topic)

    load.check(read_log(three, topic))
