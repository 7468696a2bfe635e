"""Transactions that are prepared here and decided elsewhere (KIP-939), over crashes in between."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from aioproducer import (
    ConfigError,
    KafkaTimeoutError,
    PreparedTransactionState,
    Producer,
    ProducerFenced,
    SyncProducer,
    TopicPartition,
    TransactionAbortable,
    TransactionFatal,
    TransactionStateError,
)
from aioproducer.testing import FakeBroker, TwoPhaseCommit
from tests.conftest import QUICK, opened, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

OPTIONS: dict[str, Any] = {"transactional_id": "shop", "transaction_two_phase_commit_enable": True}


@pytest.fixture(params=[2, 1], ids=["TV2", "TV1"])
def broker(request: pytest.FixtureRequest) -> Iterator[FakeBroker]:
    """A cluster that does all that KIP-939 describes."""
    with FakeBroker(topics={"orders": 2}, versions="4.3.1", max_versions={"InitProducerId": 6}) as broker:
        broker.transaction_version = request.param
        broker.two_phase_commit = TwoPhaseCommit.RECOVERABLE
        yield broker


def committed(broker: FakeBroker) -> list[bytes | None]:
    return sorted((each.value for each in broker.records("orders", committed=True)), key=lambda each: each or b"")


@asynccontextmanager
async def crashing(broker: FakeBroker, **options: Any) -> AsyncIterator[Producer]:
    """A producer that ends as a process does that is killed: nothing more is sent."""
    async with opened(broker, **OPTIONS, **options) as producer:
        yield producer
        engine = producer._engine
        assert engine is not None
        await engine.stop()
        producer._engine = None


async def prepared(producer: Producer, *values: bytes) -> PreparedTransactionState:
    """A transaction with these records, up to its first phase."""
    await producer.init_transactions()
    await producer.begin_transaction()
    for value in values:
        await producer.enqueue("orders", value)
    return await producer.prepare_transaction()


@pytest.mark.parametrize("decision", ["commit", "another", "abort"])
async def test_a_prepared_transaction_ends_as_it_was_decided(broker: FakeBroker, decision: str) -> None:
    async with opened(broker, **OPTIONS) as producer:
        state = await prepared(producer, b"1", b"2")
        assert committed(broker) == []
        match decision:
            case "commit":
                await producer.complete_transaction(str(state))
            case "another":
                await producer.complete_transaction(PreparedTransactionState(state.producer_id, state.epoch + 1))
            case _:
                await producer.abort_transaction()
        assert committed(broker) == ([b"1", b"2"] if decision == "commit" else [])

        async with producer.transaction() as txn:
            await txn.send("orders", b"next")

    assert committed(broker) == ([b"1", b"2", b"next"] if decision == "commit" else [b"next"])


@pytest.mark.parametrize("decision", ["commit", "another"])
async def test_a_successor_ends_what_its_predecessor_has_prepared(broker: FakeBroker, decision: str) -> None:
    async with crashing(broker) as producer:
        state = await prepared(producer, b"1", b"2")

    async with opened(broker, **OPTIONS) as successor:
        assert await successor.init_transactions(keep_prepared_txn=True) == state
        with pytest.raises(TransactionStateError, match="prepared"):
            await successor.begin_transaction()
        with pytest.raises(TransactionStateError, match="prepared"):
            await successor.send("orders", b"no")
        assert committed(broker) == []
        await successor.complete_transaction(state if decision == "commit" else "0:0")
        async with successor.transaction() as txn:
            await txn.send("orders", b"next")

    assert committed(broker) == ([b"1", b"2", b"next"] if decision == "commit" else [b"next"])
    assert not broker.open_transactions()


async def test_a_prepared_transaction_survives_any_number_of_successors(broker: FakeBroker) -> None:
    async with crashing(broker) as producer:
        state = await prepared(producer, b"kept")
    for _ in range(3):
        async with crashing(broker) as producer:
            assert await producer.init_transactions(keep_prepared_txn=True) == state

    async with opened(broker, **OPTIONS) as last:
        assert await last.init_transactions(keep_prepared_txn=True) == state
        await last.complete_transaction(state)
        await last.begin_transaction()
        await last.send("orders", b"next")
        following = await last.prepare_transaction()
        assert following != state
        await last.complete_transaction(state)  # of the one before: this one was never decided to be committed

    assert committed(broker) == [b"kept"]


async def test_a_producer_whose_transaction_was_kept_by_another_is_fenced(broker: FakeBroker) -> None:
    async with opened(broker, **OPTIONS) as old, opened(broker, **OPTIONS) as new:
        state = await prepared(old, b"kept")
        await new.init_transactions(keep_prepared_txn=True)
        with pytest.raises(ProducerFenced):
            await old.complete_transaction(state)
        await new.complete_transaction(state)

    assert committed(broker) == [b"kept"]


async def test_an_initialization_that_keeps_nothing_aborts_what_was_prepared(broker: FakeBroker) -> None:
    async with crashing(broker) as producer:
        state = await prepared(producer, b"left")

    async with opened(broker, **OPTIONS) as successor:
        assert await successor.init_transactions() is None
        with pytest.raises(TransactionStateError, match="no open transaction"):
            await successor.complete_transaction(state)

    assert committed(broker) == []
    assert not broker.open_transactions()


async def test_with_nothing_open_there_is_nothing_to_complete(broker: FakeBroker) -> None:
    async with opened(broker, **OPTIONS) as producer:
        assert await producer.init_transactions(keep_prepared_txn=True) is None
        async with producer.transaction() as txn:
            await txn.send("orders", b"first")

    assert committed(broker) == [b"first"]


async def test_closing_leaves_what_is_prepared(broker: FakeBroker) -> None:
    async with opened(broker, **OPTIONS) as producer:
        state = await prepared(producer, b"kept")
    assert broker.open_transactions()

    async with opened(broker, **OPTIONS) as successor:
        await successor.init_transactions(keep_prepared_txn=True)
        await successor.complete_transaction(state)

    assert committed(broker) == [b"kept"]


async def test_closing_aborts_a_prepared_transaction_whose_caller_no_longer_waits(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Its coordinator would never do so, and the caller cannot decide about a transaction that was never reported."""
    async with opened(broker, **OPTIONS) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        with broker.hold("Produce"):
            await producer.enqueue("orders", b"slow")
            with pytest.raises(KafkaTimeoutError):
                await producer.prepare_transaction(timeout=0)
    assert not broker.open_transactions()
    assert committed(broker) == []
    assert "prepared" in caplog.text


async def test_closing_leaves_a_transaction_found_prepared_though_the_caller_no_longer_waits(
    broker: FakeBroker,
) -> None:
    async with crashing(broker) as predecessor:
        state = await prepared(predecessor, b"kept")
    async with opened(broker, **OPTIONS) as producer:
        with broker.hold("InitProducerId") as held:
            asking = asyncio.ensure_future(producer.init_transactions(keep_prepared_txn=True))
            await until(lambda: held.waiting)
            asking.cancel()
            await asyncio.wait([asking])
        assert producer._engine is not None
        assert producer._engine.transactions is not None
        manager = producer._engine.transactions.manager
        await until(lambda: manager.prepared)
    assert broker.open_transactions()

    async with opened(broker, **OPTIONS) as successor:
        await successor.init_transactions(keep_prepared_txn=True)
        await successor.complete_transaction(state)

    assert committed(broker) == [b"kept"]


async def test_nothing_is_prepared_before_all_records_are_acknowledged(broker: FakeBroker) -> None:
    async with opened(broker, **OPTIONS) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        with broker.hold("Produce"):
            delivery = await producer.enqueue("orders", b"slow")
            with pytest.raises(KafkaTimeoutError):
                await producer.prepare_transaction(timeout=0.01)
            with pytest.raises(TransactionStateError, match="prepare_transaction"):
                await producer.enqueue("orders", b"too late")
        state = await producer.prepare_transaction()
        assert delivery.done()
        await producer.complete_transaction(state)

    assert committed(broker) == [b"slow"]


async def test_a_record_that_failed_makes_preparing_impossible(broker: FakeBroker) -> None:
    async with opened(broker, **OPTIONS) as producer:
        broker.fail("Produce", "INVALID_RECORD")
        with pytest.raises(TransactionAbortable, match="INVALID_RECORD"):
            await prepared(producer, b"refused")
        await producer.abort_transaction()
        await producer.begin_transaction()
        await producer.complete_transaction(await prepared_again(producer, b"again"))

    assert committed(broker) == [b"again"]


async def prepared_again(producer: Producer, value: bytes) -> PreparedTransactionState:
    await producer.send("orders", value)
    return await producer.prepare_transaction()


async def test_offsets_are_part_of_what_is_prepared(broker: FakeBroker) -> None:
    async with crashing(broker) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        sending = asyncio.ensure_future(
            producer.send_offsets_to_transaction({TopicPartition("orders", 0): 7}, "readers")
        )
        await asyncio.sleep(0)
        state = await producer.prepare_transaction()
        await sending
    assert not broker.committed_offsets("readers")

    async with opened(broker, **OPTIONS) as successor:
        await successor.init_transactions(keep_prepared_txn=True)
        await successor.complete_transaction(state)

    assert broker.committed_offsets("readers")[TopicPartition("orders", 0)].offset == 7


@pytest.mark.parametrize("api", ["InitProducerId", "EndTxn"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_the_loss_of_an_answer_does_not_change_what_was_decided(broker: FakeBroker, api: str, when: Any) -> None:
    async with crashing(broker) as producer:
        state = await prepared(producer, b"kept")

    async with opened(broker, **OPTIONS) as successor:
        broker.drop_connection(api, when=when)
        assert await successor.init_transactions(keep_prepared_txn=True) == state
        await successor.complete_transaction(state)

    assert committed(broker) == [b"kept"]


async def test_a_prepared_transaction_does_not_run_out_of_time(broker: FakeBroker) -> None:
    async with opened(broker, **OPTIONS) as producer:
        await prepared(producer, b"kept")
        assert broker.transaction("shop").timeout_ms == 2**31 - 1


async def test_a_text_that_names_nothing_is_no_decision_to_abort(broker: FakeBroker) -> None:
    async with opened(broker, **OPTIONS) as producer:
        state = await prepared(producer, b"kept")
        with pytest.raises(ConfigError, match="Invalid prepared transaction"):
            await producer.complete_transaction("")
        await producer.complete_transaction(state)

    assert committed(broker) == [b"kept"]


async def test_without_the_option_there_is_no_such_thing(broker: FakeBroker) -> None:
    async with opened(broker, transactional_id="shop") as producer:
        with pytest.raises(TransactionStateError, match="transaction_two_phase_commit_enable"):
            await producer.init_transactions(keep_prepared_txn=True)
        await producer.init_transactions()
        await producer.begin_transaction()
        with pytest.raises(TransactionStateError, match="transaction_two_phase_commit_enable"):
            await producer.prepare_transaction()
        with pytest.raises(TransactionStateError, match="transaction_two_phase_commit_enable"):
            await producer.complete_transaction("1:0")
        await producer.send("orders", b"all is well")
        await producer.commit_transaction()

    assert committed(broker) == [b"all is well"]


@pytest.mark.parametrize("version", ["2.1", "3.9.2", "4.3.1"])
async def test_a_cluster_without_the_protocol_is_refused_clearly(version: str) -> None:
    with FakeBroker(topics={"orders": 1}, versions=version) as broker:
        async with opened(broker, **OPTIONS) as producer:
            with pytest.raises(TransactionFatal, match=r"Two-phase commits \(KIP-939\) need"):
                await producer.init_transactions()

        assert not broker.count("InitProducerId")


async def test_a_cluster_that_does_not_allow_it_refuses_and_may_allow_it_later(broker: FakeBroker) -> None:
    broker.two_phase_commit = TwoPhaseCommit.REFUSED
    async with opened(broker, **OPTIONS) as producer:
        with pytest.raises(TransactionFatal, match=r"transaction\.two\.phase\.commit\.enable=true"):
            await producer.init_transactions()
        broker.two_phase_commit = TwoPhaseCommit.UNRECOVERABLE
        await producer.complete_transaction(await prepared(producer, b"allowed"))

    assert committed(broker) == [b"allowed"]


async def test_a_cluster_that_keeps_nothing_refuses_and_aborts_it_on_request(broker: FakeBroker) -> None:
    broker.two_phase_commit = TwoPhaseCommit.UNRECOVERABLE
    async with crashing(broker) as producer:
        await prepared(producer, b"left")

    async with opened(broker, **OPTIONS) as successor:
        with pytest.raises(TransactionFatal, match="KAFKA-20739"):
            await successor.init_transactions(keep_prepared_txn=True)
        assert broker.open_transactions()
        await successor.init_transactions()

    assert committed(broker) == []
    assert not broker.open_transactions()


def test_threads_also_prepare_and_complete(broker: FakeBroker) -> None:
    with SyncProducer(broker.bootstrap_servers, **QUICK, **OPTIONS) as producer:
        assert producer.init_transactions(keep_prepared_txn=True) is None
        producer.begin_transaction()
        producer.enqueue("orders", b"1")
        state = producer.prepare_transaction()
        assert committed(broker) == []
        producer.complete_transaction(state)

    assert committed(broker) == [b"1"]
