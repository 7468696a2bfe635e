"""``purge()`` gives up accepted records, with what is known of each, and leaves a producer that works."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

import pytest

from aioproducer import (
    InvalidRecord,
    NotStarted,
    NotWritten,
    Producer,
    PurgeReport,
    RecordsPurged,
    SyncDelivery,
    SyncProducer,
    TransactionAbortable,
    Unknown,
)
from aioproducer.testing import FakeBroker
from tests.conftest import QUICK, opened, until


def values(report: PurgeReport) -> tuple[list[object], list[object]]:
    return [record.value for record in report.not_written], [record.value for record in report.maybe_written]


async def test_records_that_were_not_sent_are_given_up_and_returned(broker: FakeBroker) -> None:
    async with opened(broker, linger_ms=600_000) as producer:
        await producer.warm_up("orders")
        with broker.hold("Produce") as hold:
            sent = await producer.enqueue("orders", b"sent", partition=0)  # a lone record does not linger
            await until(lambda: producer.metrics()["produce-request-total"])
            waiting = [
                await producer.enqueue("orders", b"%d" % number, key=b"k", headers={"h": b"1"}, partition=0)
                for number in range(3)
            ]

            report = producer.purge()

            assert values(report) == ([b"0", b"1", b"2"], [])
            assert (report.not_written[-1].key, report.not_written[-1].headers) == (b"k", (("h", b"1"),))
            for delivery in waiting:
                with pytest.raises(NotWritten, match=r"purge\(\) was called") as caught:
                    await delivery
                assert isinstance(caught.value.__cause__, RecordsPurged)
            assert not sent.done()
            hold.release()
            assert (await sent).offset == 0
        assert (await producer.send("orders", b"after", partition=0)).offset == 1
        assert producer.metrics()["buffer-available-bytes"] == producer.metrics()["buffer-total-bytes"]

    assert [record.value for record in broker.records()] == [b"sent", b"after"]


async def test_only_those_of_the_named_topics(broker: FakeBroker) -> None:
    async with opened(broker, linger_ms=600_000) as producer:
        await producer.warm_up("orders", "payments")
        with broker.hold("Produce"):
            for number in range(2):  # the second one of each lingers behind the first
                for topic in ("orders", "payments"):
                    await producer.enqueue(topic, b"%s %d" % (topic.encode(), number), partition=0)
                    await asyncio.sleep(0)
            await until(lambda: producer.metrics()["produce-request-total"])
            before = producer.health().pending_records

            report = producer.purge("payments")

            assert {record.topic for record in report.not_written} <= {"payments"}
            assert producer.health().pending_records == before - len(report.not_written)
        await producer.flush()

    assert len(broker.records("orders")) == 2
    assert len(broker.records("payments")) == 2 - len(report.not_written)


async def test_those_in_flight_are_unknown_and_their_memory_comes_back(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        await producer.warm_up("orders")
        with broker.hold("Produce", applied=True) as hold:
            delivery = await producer.enqueue("orders", b"value", partition=0)
            await until(lambda: producer.metrics()["produce-request-total"])
            assert values(producer.purge()) == ([], [])
            assert values(producer.purge(in_flight=True)) == ([], [b"value"])
            with pytest.raises(Unknown):
                await delivery
            assert producer.metrics()["buffer-available-bytes"] < producer.metrics()["buffer-total-bytes"]
            hold.release()
        await until(lambda: producer.metrics()["buffer-available-bytes"] == producer.metrics()["buffer-total-bytes"])
        assert (await producer.send("orders", b"next", partition=0)).offset == 1


async def test_those_that_wait_for_a_retry(broker: FakeBroker) -> None:
    """The first may be in the log; the next record is written once, with or without it."""
    async with opened(broker, retry_backoff_ms=600_000, retry_backoff_max_ms=600_000) as producer:
        await producer.warm_up("orders")
        broker.fail_after_apply("Produce", "REQUEST_TIMED_OUT")
        delivery = await producer.enqueue("orders", b"maybe", partition=0)
        await until(lambda: producer.metrics()["record-retry-total"])

        assert values(producer.purge()) == ([], [b"maybe"])
        with pytest.raises(Unknown):
            await delivery
        await producer.send("orders", b"next", partition=0)

    assert [record.value for record in broker.records("orders", 0)] == [b"maybe", b"next"]


async def test_waiting_callers_get_the_room(broker: FakeBroker) -> None:
    async with opened(broker, buffer_memory=4000, batch_size=1500, max_request_size=3500, linger_ms=60_000) as producer:
        await producer.warm_up("orders")
        broker.move_leader("orders", 0, -1)
        with broker.hold("Produce"):
            filling = [await producer.enqueue("orders", bytes(1500), partition=0) for _ in range(2)]
            waiting = asyncio.ensure_future(producer.enqueue("orders", bytes(1400), partition=0))
            await until(lambda: producer.metrics()["waiting-threads"])
            producer.purge(in_flight=True)
            broker.move_leader("orders", 0, 1)
        delivery = await waiting
        assert (await delivery).partition == 0
        for each in filling:
            with pytest.raises((NotWritten, Unknown)):
                await each


async def test_a_transaction_must_be_aborted_then(broker: FakeBroker) -> None:
    async with opened(broker, transactional_id="orders-1", linger_ms=60_000) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        for _ in range(3):
            await producer.enqueue("orders", b"value", partition=0)
        assert producer.purge(in_flight=True) != PurgeReport()
        with pytest.raises(TransactionAbortable):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("orders", b"next", partition=0)

    assert [record.value for record in broker.records("orders") if record.value == b"next"] == [b"next"]


async def test_an_empty_buffer_and_an_invalid_topic(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        assert producer.purge() == producer.purge("orders") == PurgeReport()
        with pytest.raises(InvalidRecord):
            producer.purge("not a topic")


@pytest.mark.parametrize("number", range(3))
async def test_nothing_is_lost_or_doubled_amid_faults(broker: FakeBroker, number: int) -> None:
    """The outcomes are true of the log, and the numbers of the next batches are right."""
    async with opened(broker, linger_ms=0, batch_size=300, retry_backoff_ms=1) as producer:
        await producer.warm_up("orders")
        outcomes: dict[bytes, asyncio.Future[object]] = {}
        for turn in range(60):
            if turn % 7 == number:
                broker.fail("Produce", "NOT_ENOUGH_REPLICAS")
            if turn % 11 == number:
                broker.drop_connection("Produce", when="after" if turn % 2 else "before")
            for index in range(5):
                value = b"%d.%d" % (turn, index)
                delivery = await producer.enqueue("orders", value, partition=index % 3)
                outcomes[value] = asyncio.ensure_future(_outcome(delivery))
            await asyncio.sleep(0)
            if turn % 5 == number:
                producer.purge(in_flight=turn % 2 == 0)
        await producer.flush()
        said = {value: await outcome for value, outcome in outcomes.items()}

    logged = [record.value for record in broker.records("orders")]
    assert len(set(logged)) == len(logged)
    for value, outcome in said.items():
        assert outcome is not NotWritten or value not in logged, value
        assert outcome is not None or value in logged, value
    assert {NotWritten, None} <= set(said.values())


async def _outcome(delivery: object) -> object:
    try:
        await delivery  # type: ignore[misc]
    except (NotWritten, Unknown) as error:
        return NotWritten if isinstance(error, NotWritten) else Unknown
    return None


def test_threads(broker: FakeBroker) -> None:
    """Also records that wait for the metadata of their topic."""
    with SyncProducer(broker.bootstrap_servers, **QUICK) as producer:
        producer.send("orders", b"first", partition=0)
        with broker.hold("Metadata"):
            broker.delete_topic("orders")
            delivery = producer.enqueue("orders", b"value", partition=2)
            report = producer.purge(in_flight=True)
        with pytest.raises((NotWritten, Unknown)):
            delivery.result(30)
        assert [record.value for record in (*report.not_written, *report.maybe_written)] == [b"value"]


async def test_a_producer_that_is_not_started() -> None:
    with pytest.raises(NotStarted):
        Producer("localhost:9092").purge()


def test_many_threads_enqueue_and_purge(broker: FakeBroker) -> None:
    """Each record has one outcome, and is in one report at most, also if it waited for room."""
    broker.create_topic("wide", 200)
    reports: list[PurgeReport] = []
    enqueued: dict[bytes, SyncDelivery] = {}
    with SyncProducer(broker.bootstrap_servers, buffer_memory=60_000, linger_ms=60_000, **QUICK) as producer:
        producer.warm_up("wide")
        for partition in range(200):
            producer.enqueue("wide", b"known", partition=partition)
        is_over = threading.Event()

        def enqueue(sender: int) -> None:
            for number in range(2000):
                value = b"%d.%d" % (sender, number)
                enqueued[value] = producer.enqueue("wide", value.ljust(500), partition=number % 200)

        def purge() -> None:
            while not is_over.is_set():
                reports.append(producer.purge())

        threads = [threading.Thread(target=enqueue, args=(sender,)) for sender in range(4)]
        purgers = [threading.Thread(target=purge) for _ in range(2)]
        for thread in (*threads, *purgers):
            thread.start()
        for thread in threads:
            thread.join()
        is_over.set()
        for thread in purgers:
            thread.join()
        producer.flush()
        assert all(delivery.done() for delivery in enqueued.values())
        assert producer.send("wide", b"last", partition=0).partition == 0

    reported = Counter(record.value for report in reports for record in report.not_written)
    del reported[b"known"]
    assert set(reported.values()) == {1}
    logged = {record.value for record in broker.records("wide")}
    assert not logged & set(reported)
    for value, delivery in enqueued.items():
        assert isinstance(delivery.exception(), NotWritten) == (value.ljust(500) in reported)
