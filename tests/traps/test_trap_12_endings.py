"""Trap 12: the end of a transaction that comes too early, twice, of the wrong kind, never, or in the middle of the next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aioproducer import NotWritten, Producer
from aioproducer.errors import (
    CommitUnknown,
    DeliveryError,
    KafkaTimeoutError,
    ProducerFenced,
    TransactionAbortable,
    TransactionStateError,
)
from aioproducer.protocol.messages import EndTxnRequest
from aioproducer.testing import FakeBroker
from tests.conftest import Clock, opened, until
from tests.traps.ledger import PARTITIONS, Entry, Fate, Ledger
from tests.traps.transaction_walk import TV1, TV2, check_that_calls_raise


@pytest.fixture(params=[TV1, TV2])
def broker(request: pytest.FixtureRequest) -> Iterator[FakeBroker]:
    """A broker with transaction version 1, and one with 2."""
    with FakeBroker(topics={"orders": 3, "in": 1}, versions=request.param) as broker:
        yield broker


@pytest.fixture
def ledger(broker: FakeBroker) -> Ledger:
    return Ledger(broker)


def shop(broker: FakeBroker, **options: Any) -> Any:
    return opened(broker, **{"transactional_id": "shop", "linger_ms": 0, **options})


def is_v2(broker: FakeBroker) -> bool:
    return broker.transaction_version == 2


def ends(broker: FakeBroker) -> list[bool]:
    """The intended end of each transaction, once for each request."""
    bodies = [request.body for request in broker.requests_of("EndTxn")]
    return [body.committed for body in bodies if isinstance(body, EndTxnRequest)]


async def begun(ledger: Ledger, producer: Producer) -> Entry:
    """A transaction with a record in each partition."""
    entry = ledger.entry()
    await producer.begin_transaction()
    for partition in PARTITIONS:
        await entry.enqueue(producer, partition)
    return entry


async def test_a_transaction_that_can_only_be_aborted_is_never_committed(ledger: Ledger) -> None:
    broker = ledger.broker
    async with shop(broker) as producer:
        await producer.init_transactions()
        broker.fail("Produce", "INVALID_RECORD", partition=1)
        entry = await begun(ledger, producer)
        for _ in range(3):
            with pytest.raises(TransactionAbortable):
                await producer.commit_transaction()
        await producer.abort_transaction()
        entry.fate = Fate.ABORTED
        await ledger.commit_one(producer)

    assert ends(broker) == [False, True]
    ledger.check()


@pytest.mark.parametrize("answer", ["held", "lost"])
async def test_an_unawaited_commit_is_not_turned_into_an_abort(ledger: Ledger, answer: str) -> None:
    broker = ledger.broker
    async with shop(broker) as producer:
        await producer.init_transactions()
        entry = await begun(ledger, producer)
        hold = broker.hold("EndTxn", applied=True)
        with pytest.raises(KafkaTimeoutError):
            await producer.commit_transaction(timeout=0.05)
        await until(lambda: hold.waiting)
        with pytest.raises(TransactionStateError):
            await producer.abort_transaction()
        if answer == "lost":
            broker.disconnect()
        hold.release()
        await producer.close()
        entry.fate = Fate.COMMITTED

    assert set(ends(broker)) == {True}
    ledger.check()


async def test_a_commit_is_unknown_if_the_producer_closes_before_the_answer_and_is_not_aborted(ledger: Ledger) -> None:
    broker = ledger.broker
    async with shop(broker) as producer:
        await producer.init_transactions()
        entry = await begun(ledger, producer)
        await producer.flush()
        with broker.hold("EndTxn") as hold:
            committing = asyncio.ensure_future(producer.commit_transaction())
            await until(lambda: hold.waiting)
            closing = asyncio.ensure_future(producer.close(timeout=0))
            with pytest.raises(CommitUnknown):
                await committing
            await closing
        entry.fate = Fate.UNKNOWN
    async with shop(broker) as successor:
        await ledger.commit_one(successor)

    assert ends(broker) == [True, True]
    ledger.check()


async def test_a_commit_that_is_waited_for_is_reported_while_another_task_closes(ledger: Ledger) -> None:
    broker = ledger.broker
    async with shop(broker) as producer:
        await producer.init_transactions()
        entry = await begun(ledger, producer)
        with broker.hold("EndTxn") as hold:
            committing = asyncio.ensure_future(producer.commit_transaction())
            await until(lambda: hold.waiting)
            closing = asyncio.ensure_future(producer.close())
            for _ in range(20):
                await asyncio.sleep(0)
            assert not committing.done()
        await committing
        entry.fate = Fate.COMMITTED
        await closing
    ledger.check()


async def test_a_commit_is_unknown_to_its_caller_when_the_producer_dies(ledger: Ledger) -> None:
    broker = ledger.broker
    async with shop(broker) as producer:
        await producer.init_transactions()
        entry = await begun(ledger, producer)
        with broker.hold("EndTxn") as hold:
            committing = asyncio.ensure_future(producer.commit_transaction())
            await until(lambda: hold.waiting)
            for task in asyncio.all_tasks():
                if task.get_name() == "aioproducer sender":
                    task.cancel()
            with pytest.raises(CommitUnknown):
                await committing
        entry.fate = Fate.UNKNOWN
    async with shop(broker) as successor:
        await ledger.commit_one(successor)
    ledger.check()


@pytest.mark.parametrize("commits", [True, False])
async def test_a_transaction_does_not_end_while_a_batch_is_on_its_way(ledger: Ledger, commits: bool) -> None:
    """Neither while it waits at the broker nor while it waits to be repeated."""
    broker = ledger.broker
    async with shop(broker) as producer:
        await producer.init_transactions()
        broker.fail("Produce", "NOT_ENOUGH_REPLICAS", partition=1, times=10)
        with broker.hold("Produce", partition=2) as hold:
            entry = await begun(ledger, producer)
            await until(lambda: hold.waiting)
            ending = asyncio.ensure_future(producer.commit_transaction() if commits else producer.abort_transaction())
            for _ in range(20):
                await asyncio.sleep(0)
            assert ends(broker) == []
        await ending
        entry.fate = Fate.COMMITTED if commits else Fate.ABORTED
        await ledger.commit_one(producer)

    assert ends(broker) == [commits, True]
    ledger.check()


async def test_an_abort_ends_what_may_have_begun_all_the_same() -> None:
    """With version 1: the coordinator has added the partitions, and says that something went wrong."""
    with FakeBroker(topics={"orders": 3, "in": 1}, versions=TV1) as broker:
        ledger = Ledger(broker)
        async with shop(broker) as producer:
            await producer.init_transactions()
            broker.fail_after_apply("AddPartitionsToTxn", "UNKNOWN_SERVER_ERROR")
            await begun(ledger, producer)
            with pytest.raises(TransactionAbortable):
                await producer.commit_transaction()
            await producer.abort_transaction()
            assert ends(broker) == [False]
            await ledger.commit_one(producer)
        ledger.check()


async def test_an_abort_does_not_deliver_first(ledger: Ledger) -> None:
    broker = ledger.broker
    async with shop(broker, linger_ms=60_000, batch_size=100) as producer:
        await ledger.commit_one(producer)
        written = len(broker.records())
        with broker.hold("Produce", partition=0) as hold:
            entry = await begun(ledger, producer)
            for _ in range(30):
                await entry.enqueue(producer, PARTITIONS[0])
            await until(lambda: hold.waiting)
            aborting = asyncio.ensure_future(producer.abort_transaction())
            await until(lambda: entry.deliveries[-1].done())
        await aborting
        entry.fate = Fate.ABORTED
        left = [each for each in entry.deliveries if not each.exception()]
        assert len(broker.records()) - written == len(left) < len(entry.deliveries)
        assert all(isinstance(each.exception(), NotWritten | None) for each in entry.deliveries)
    ledger.check()


@pytest.mark.parametrize("applied", [False, True])
async def test_a_batch_that_arrives_after_the_abort_is_not_part_of_what_comes_next(
    ledger: Ledger, applied: bool
) -> None:
    """KAFKA-14053, KAFKA-10402: time is over for a batch that waits in some socket, and the transaction ends without it."""
    broker = ledger.broker
    clock = Clock()
    async with shop(broker, request_timeout_ms=10_000, delivery_timeout_ms=20_000) as producer:
        await ledger.commit_one(producer)
        hold = broker.hold("Produce", partition=1, applied=applied)
        entry = await begun(ledger, producer)
        await until(lambda: hold.waiting)
        clock.advance(10.1)
        await until(lambda: broker.count("Produce") >= 3 or hold.waiting > 1)
        clock.advance(10.1)
        with pytest.raises(TransactionAbortable):
            await producer.commit_transaction()
        broker.clear_faults()
        await producer.abort_transaction()
        entry.fate = Fate.ABORTED
        await ledger.commit_one(producer)
        following = await begun(ledger, producer)
        await producer.flush()
        hold.release()
        await producer.commit_transaction()
        following.fate = Fate.COMMITTED
        await ledger.commit_one(producer)
    ledger.check()


WAITS: dict[str, Callable[[Producer, Entry], Any]] = {
    "send": lambda producer, entry: producer.send("orders", str(entry.mark(PARTITIONS[0])), partition=0),
    "offsets": lambda producer, entry: entry.move_group(producer),
    "commit": lambda producer, entry: producer.commit_transaction(),
    "abort": lambda producer, entry: producer.abort_transaction(),
}


@pytest.mark.parametrize("call", WAITS)
async def test_a_fenced_producer_fails_every_waiting_call(ledger: Ledger, call: str) -> None:
    broker = ledger.broker
    async with shop(broker) as producer, shop(broker) as successor:
        await ledger.commit_one(producer)
        entry = await begun(ledger, producer)
        await producer.flush()
        await ledger.commit_one(successor)
        async with asyncio.timeout(30):
            with pytest.raises((ProducerFenced, DeliveryError)) as raised:
                await WAITS[call](producer, entry)
            if not isinstance(raised.value, ProducerFenced):
                # A leader says that the epoch is old, which may be our own coordinator's doing; that one knows.
                with pytest.raises(TransactionAbortable):
                    await producer.commit_transaction()
                with pytest.raises(ProducerFenced) as raised:
                    await producer.abort_transaction()
            await check_that_calls_raise(producer, raised.value)
            entry.fate = Fate.ABORTED
            await producer.close()
        await ledger.commit_one(successor)
    ledger.check()


async def test_a_transaction_that_its_coordinator_has_aborted_can_be_done_again(ledger: Ledger) -> None:
    """transaction.timeout.ms; with version 2 the epoch looks like that of a repeated EndTxn (KAFKA-20785)."""
    broker = ledger.broker
    async with shop(broker) as producer:
        await ledger.commit_one(producer)
        entry = await begun(ledger, producer)
        await producer.flush()
        broker.expire_transaction("shop")
        with pytest.raises(TransactionAbortable if is_v2(broker) else ProducerFenced):
            await producer.commit_transaction()
        entry.fate = Fate.ABORTED
        if is_v2(broker):
            await producer.abort_transaction()
            await ledger.commit_one(producer)
    async with shop(broker) as successor:
        await ledger.commit_one(successor)
    ledger.check()


@pytest.mark.parametrize("commits", [True, False])
async def test_an_end_that_is_asked_for_again_after_its_answer_was_lost_is_the_same_end(
    ledger: Ledger, commits: bool
) -> None:
    broker = ledger.broker
    async with shop(broker) as producer:
        await ledger.commit_one(producer)
        entry = await begun(ledger, producer)
        await producer.flush()
        broker.drop_connection("EndTxn", when="after", times=3)
        await (producer.commit_transaction() if commits else producer.abort_transaction())
        entry.fate = Fate.COMMITTED if commits else Fate.ABORTED
        epoch = broker.transaction("shop").producer_epoch
        await ledger.commit_one(producer)

    assert ends(broker) == [True, *[commits] * 4, True]
    assert epoch == (2 if is_v2(broker) else 1), "of these 0 was the first one"
    ledger.check()


@pytest.mark.parametrize("lost", [False, True])
async def test_the_last_epoch_of_a_producer_id_is_followed_by_another_id(ledger: Ledger, lost: bool) -> None:
    broker = ledger.broker
    broker.next_producer_epoch = 32_763
    async with shop(broker) as producer:
        for number in range(8):
            if lost and number > 1:
                broker.drop_connection("EndTxn", when="after")
            await ledger.commit_one(producer)

    ids = {record.producer_id for record in broker.records("orders")}
    assert len(ids) == (2 if is_v2(broker) or lost else 1)
    ledger.check()


async def test_an_upgrade_and_a_downgrade_of_the_cluster_count_between_two_transactions() -> None:
    with FakeBroker(topics={"orders": 3, "in": 1}, versions=TV2) as broker:
        ledger = Ledger(broker)
        async with shop(broker) as producer:
            for version in (2, 1, 1, 2, 2, 1, 2):
                broker.transaction_version = version
                entry = await begun_or_init(ledger, producer)
                broker.disconnect()
                await producer.commit_transaction()
                entry.fate = Fate.COMMITTED
        ledger.check()


async def begun_or_init(ledger: Ledger, producer: Producer) -> Entry:
    if not ledger.entries:
        await producer.init_transactions()
    return await begun(ledger, producer)
