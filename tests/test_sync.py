"""The producer for threads, and the producer in processes that were forked."""

from __future__ import annotations

import asyncio
import os
import threading
import traceback
from collections.abc import Callable, Iterator

import pytest

from aioproducer import (
    ForkedProcess,
    NotStarted,
    NotWrittenTimeout,
    Producer,
    ProducerClosed,
    RecordTooLarge,
    SendManyError,
    SyncProducer,
)
from aioproducer.testing import FakeBroker


@pytest.fixture
def producer(broker: FakeBroker) -> Iterator[SyncProducer]:
    with SyncProducer(broker.bootstrap_servers) as producer:
        yield producer


def test_a_record_is_sent_and_acknowledged(broker: FakeBroker, producer: SyncProducer) -> None:
    producer.ready(5)
    metadata = producer.send("orders", "value", key="key", headers={"a": b"1"}, partition=1, timestamp_ms=5)

    assert (metadata.partition, metadata.offset, metadata.timestamp_ms) == (1, 0, 5)
    broker.assert_sent("orders", value=b"value", key=b"key")


def test_a_delivery_can_be_waited_for_in_a_thread(broker: FakeBroker, producer: SyncProducer) -> None:
    called = threading.Event()
    delivery = producer.enqueue("orders", b"value")
    delivery.add_done_callback(lambda _: called.set())

    assert delivery.result(timeout=5).offset == 0
    assert delivery.done()
    assert delivery.exception() is None
    assert called.wait(5)


def test_many_threads_may_send_at_the_same_time(broker: FakeBroker, producer: SyncProducer) -> None:
    threads = [
        threading.Thread(target=lambda: [producer.send("orders", b"value") for _ in range(20)]) for _ in range(10)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(broker.records("orders")) == 200


def test_send_many_reads_in_the_calling_thread_and_keeps_the_order(broker: FakeBroker, producer: SyncProducer) -> None:
    readers: set[int] = set()

    def values() -> Iterator[str]:
        for number in range(3000):
            readers.add(threading.get_ident())
            yield str(number)

    result = producer.send_many("orders", values(), partition=0)

    assert result.count == 3000
    assert readers == {threading.get_ident()}
    assert [record.value for record in broker.records("orders", 0)] == [str(n).encode() for n in range(3000)]
    with pytest.raises(SendManyError):
        producer.send_many("orders", [b"x" * 2_000_000])


def test_errors_come_out_as_they_are(producer: SyncProducer) -> None:
    with pytest.raises(RecordTooLarge):
        producer.send("orders", b"x" * 2_000_000)
    with SyncProducer("127.0.0.1:1", close_timeout_ms=100) as lost, pytest.raises(NotWrittenTimeout):
        lost.send("orders", b"value", timeout=0.1)


def test_its_life_is_told_as_the_async_ones(broker: FakeBroker) -> None:
    producer = SyncProducer.from_url(f"kafka://{broker.bootstrap_servers}/?linger_ms=7")
    with pytest.raises(NotStarted):
        producer.send("orders", b"value")
    with producer:
        producer.enqueue("orders", b"value")
        producer.flush(5)
        assert [each.partition for each in producer.partitions_for("orders")] == [0, 1, 2]
        assert producer.health().ready
        assert producer.metrics()["record-send-total"] == 1
    assert producer.close().delivered == 1
    with pytest.raises(ProducerClosed):
        producer.send("orders", b"value")
    assert producer.config.linger_ms == 7


def in_a_fork(check: Callable[[], None]) -> None:
    """Run the check in a forked child, and fail with what it printed if it failed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            check()
        except BaseException:
            os.write(writing, traceback.format_exc().encode()[-4000:])
            os._exit(1)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as output:
        said = output.read()
    _, status = os.waitpid(child, 0)
    assert status == 0, said


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
async def test_a_fork_of_a_started_producer_says_so_at_once(broker: FakeBroker) -> None:
    async with Producer(broker.bootstrap_servers) as producer:
        await producer.send("orders", b"before")

        def check() -> None:
            with pytest.raises(ForkedProcess, match="fork"):
                producer.enqueue_nowait("orders", b"value")

        in_a_fork(check)
        await producer.send("orders", b"after")

    assert len(broker.records("orders")) == 2


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_of_a_started_sync_producer_says_so_at_once(producer: SyncProducer) -> None:
    producer.send("orders", b"before")

    def check() -> None:
        with pytest.raises(ForkedProcess):
            producer.send("orders", b"value")

    in_a_fork(check)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_producer_that_was_made_before_the_fork_works_in_the_child(broker: FakeBroker) -> None:
    producer = Producer(broker.bootstrap_servers)

    def check() -> None:
        async def use() -> None:
            async with producer:
                await producer.send("orders", b"from the child", timeout=5)

        asyncio.run(use())

    in_a_fork(check)
    assert len(broker.records("orders")) == 1
