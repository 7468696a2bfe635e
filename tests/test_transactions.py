"""The transactions of a producer as its users see them, in both versions of the protocol."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, cast

import pyarrow  # type: ignore[import-untyped]  # it brings no types
import pytest

from aioproducer import (
    ConfigError,
    ConsumerGroupMetadata,
    HealthStatus,
    InvalidRecord,
    KafkaTimeoutError,
    NotWritten,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
    Transaction,
)
from aioproducer.errors import (
    CommitFailed,
    ProducerFenced,
    SendManyError,
    TransactionAbortable,
    TransactionAborted,
    TransactionFatal,
    TransactionStateError,
)
from aioproducer.intake.many import SendMany
from aioproducer.protocol.messages import EndTxnRequest, TxnOffsetCommitRequest
from aioproducer.testing import FakeBroker
from tests.conftest import opened, until


@pytest.fixture(params=["3.9.2", "4.3.1"])
def broker(request: pytest.FixtureRequest) -> Iterator[FakeBroker]:
    """A broker with transaction version 1, and one with 2."""
    with FakeBroker(topics={"orders": 3, "in": 2}, versions=request.param) as broker:
        yield broker


def transactional(broker: FakeBroker, **options: Any) -> Any:
    """A producer with transactions."""
    return opened(broker, **{"transactional_id": "shop", **options})


def committed(broker: FakeBroker) -> list[bytes | None]:
    """The records that a read_committed reader sees, sorted."""
    return sorted((each.value for each in broker.records("orders", committed=True)), key=lambda each: each or b"")


def ended(broker: FakeBroker) -> EndTxnRequest:
    """The end of the last transaction."""
    request = broker.requests_of("EndTxn")[-1].body
    assert isinstance(request, EndTxnRequest)
    return request


def asked_of_coordinators(broker: FakeBroker) -> list[str]:
    """The requests so far that concern transactions; metadata is requested at any time."""
    return [each.api for each in broker.requests if each.api not in ("ApiVersions", "Metadata")]


async def test_committed_records_are_seen_and_aborted_records_are_not(broker: FakeBroker) -> None:
    async with transactional(broker) as producer:
        async with producer.transaction() as txn:
            for number in range(20):
                await txn.enqueue("orders", b"%02d" % number, partition=number % 3)
        with suppress(LookupError):
            async with producer.transaction() as txn:
                await txn.send("orders", b"aborted")
                raise LookupError

        async with producer.transaction() as txn:
            await txn.send("orders", b"late")
            assert b"late" not in committed(broker)
        assert b"late" in committed(broker)

    assert committed(broker) == [*(b"%02d" % number for number in range(20)), b"late"]
    assert b"aborted" in {each.value for each in broker.records("orders")}


@pytest.mark.parametrize("offsets", [False, True])
async def test_a_request_that_would_meet_the_last_markers_of_version_2_is_held_back(
    offsets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioproducer.transactions.carrier._BROKERS_PAUSE_S", 60.0)
    with FakeBroker(topics={"orders": 3, "in": 2}, versions="4.3.1") as broker:
        held = broker.hold_markers()
        async with transactional(broker) as producer:
            async with producer.transaction() as txn:
                await txn.send("orders", b"one")
            async with producer.transaction() as txn:
                if offsets:
                    sending = asyncio.create_task(txn.send_offsets({TopicPartition("in", 0): 1}, "group"))
                else:
                    sending = asyncio.create_task(_send(txn, b"two"))
                await until(lambda: broker.count("DescribeTransactions") >= 3)
                assert (broker.count("Produce"), broker.count("TxnOffsetCommit")) == (1, 0)

                held.release()
                await sending
            assert (broker.count("Produce"), broker.count("TxnOffsetCommit")) == ((1, 1) if offsets else (2, 0))
    assert ended(broker).committed


async def _send(txn: Transaction, value: bytes, partition: int | None = None) -> None:
    await txn.send("orders", value, partition=partition)


@pytest.mark.parametrize("trouble", ["markers that take long", "a lost connection", "a refusal"])
async def test_it_is_held_back_no_longer_than_the_broker_itself_would_wait(trouble: str) -> None:
    with FakeBroker(topics={"orders": 3}, versions="4.3.1") as broker:
        held = broker.hold_markers()
        async with transactional(broker) as producer:
            async with producer.transaction() as txn:
                await txn.send("orders", b"one")
            if trouble == "a lost connection":
                broker.drop_connection("DescribeTransactions", when="before")
            elif trouble == "a refusal":
                broker.fail("DescribeTransactions", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", times=99)
            async with producer.transaction() as txn:
                sending = asyncio.create_task(_send(txn, b"two"))
                await until(lambda: broker.count("Produce") >= 2)
                held.release()
                await sending
    assert ended(broker).committed


async def test_it_is_held_back_no_longer_where_the_coordinator_is_busy_with_something_else() -> None:
    with FakeBroker(topics={"orders": 3, "in": 1}, versions="4.3.1") as broker:
        async with transactional(broker) as producer:
            async with producer.transaction() as txn:
                await txn.send("orders", b"one")
            looking = broker.hold("FindCoordinator")
            async with producer.transaction() as txn:
                offsets = asyncio.create_task(txn.send_offsets({TopicPartition("in", 0): 1}, "a group not seen before"))
                await until(lambda: looking.waiting)
                sending = asyncio.create_task(_send(txn, b"two"))
                await until(lambda: broker.count("Produce") >= 2)
                looking.release()
                await sending
                await offsets
    assert ended(broker).committed


async def test_a_transaction_long_after_the_last_one_asks_for_no_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("aioproducer.transactions.carrier.time.perf_counter", lambda: now)
    with FakeBroker(topics={"orders": 3}, versions="4.3.1") as broker:
        held = broker.hold_markers()
        async with transactional(broker) as producer:
            async with producer.transaction() as txn:
                await txn.send("orders", b"one")
            held.release()
            now = 0.021  # more than the pause that a broker makes itself
            async with producer.transaction() as txn:
                await txn.send("orders", b"two")
        assert (broker.count("Produce"), broker.count("DescribeTransactions")) == (2, 0)


async def test_a_partition_that_is_being_added_keeps_no_other_one_waiting() -> None:
    with FakeBroker(brokers=2, topics={"orders": 3}, versions="3.9.2") as broker:
        async with transactional(broker) as producer, producer.transaction() as txn:
            # What is sent over the coordinator's own connection does wait: a broker answers one request after the other.
            coordinator = broker.requests_of("InitProducerId")[-1].node
            added, new = sorted(range(3), key=lambda partition: broker.leader("orders", partition) == coordinator)[:2]
            await txn.send("orders", b"first", partition=added)
            adding = broker.hold("AddPartitionsToTxn")
            waiting = asyncio.create_task(_send(txn, b"new", partition=new))
            await until(lambda: adding.waiting)

            async with asyncio.timeout(10):
                await txn.send("orders", b"second", partition=added)

            assert not waiting.done()
            adding.release()
            await waiting
    assert ended(broker).committed
    assert committed(broker) == [b"first", b"new", b"second"]


async def test_every_way_to_send_is_part_of_the_transaction(broker: FakeBroker) -> None:
    async with transactional(broker) as producer:
        async with producer.transaction() as txn:
            await txn.send("orders", b"1")
            await txn.enqueue("orders", b"2")
            txn.enqueue_nowait("orders", b"3")
            await txn.send_many("orders", [b"4", b"5"])
        with suppress(LookupError):
            async with producer.transaction() as txn:
                await txn.send_many("orders", [b"%d" % number for number in range(1000)])
                raise LookupError

    assert committed(broker) == [b"1", b"2", b"3", b"4", b"5"]


async def test_the_explicit_calls_do_the_same(broker: FakeBroker) -> None:
    async with transactional(broker) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.enqueue("orders", b"one")
        await producer.commit_transaction()
        await producer.begin_transaction()
        await producer.enqueue("orders", b"two")
        await producer.abort_transaction()

    assert committed(broker) == [b"one"]


async def test_work_whose_transaction_ran_out_of_time_is_done_again(broker: FakeBroker) -> None:
    values = iter((b"first", b"second"))

    async def work(txn: Transaction) -> None:
        await txn.send("orders", value := next(values))
        if value == b"first":
            broker.expire_transaction("shop")

    async with transactional(broker) as producer:
        await producer.run_in_transaction(work)

    assert committed(broker) == [b"second"]


async def test_nothing_is_sent_outside_of_a_transaction(broker: FakeBroker) -> None:
    async with transactional(broker) as producer:
        with pytest.raises(TransactionStateError, match="init_transactions"):
            await producer.enqueue("orders", b"before")
        async with producer.transaction() as txn:
            await txn.send("orders", b"within")
        for send in (producer.send, producer.enqueue):
            with pytest.raises(TransactionStateError, match="begin one first"):
                await send("orders", b"after")
        with pytest.raises(TransactionStateError):
            producer.enqueue_nowait("orders", b"after")
        with pytest.raises(TransactionStateError):
            await producer.send_many("orders", [b"after"])

    assert committed(broker) == [b"within"]


@pytest.mark.parametrize("call", ["commit_transaction", "abort_transaction", "init_transactions"])
async def test_the_error_of_a_call_out_of_turn_names_the_call_that_comes_first(broker: FakeBroker, call: str) -> None:
    async with transactional(broker) as producer:
        async with producer.transaction():
            pass
        with pytest.raises(TransactionStateError, match="shop"):
            await getattr(producer, call)()

        async with producer.transaction() as txn:
            await txn.send("orders", b"all is well")

    assert committed(broker) == [b"all is well"]


async def test_a_producer_without_a_transactional_id_refuses_transactions(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        with pytest.raises(TransactionStateError, match="transactional_id"):
            async with producer.transaction():
                raise AssertionError
        await producer.send("orders", b"fine")


async def test_an_empty_transaction_sends_no_request(broker: FakeBroker) -> None:
    async with transactional(broker) as producer:
        await producer.init_transactions()
        asked = len(asked_of_coordinators(broker))
        for _ in range(3):
            async with producer.transaction():
                pass
        with suppress(LookupError):
            async with producer.transaction():
                raise LookupError

        assert len(asked_of_coordinators(broker)) == asked


async def test_a_record_that_was_refused_leaves_nothing_to_end(broker: FakeBroker) -> None:
    async with transactional(broker) as producer:
        for _ in range(2):
            async with producer.transaction() as txn:
                await txn.send("orders", b"fine", partition=0)
            async with producer.transaction() as txn:
                with pytest.raises(InvalidRecord):
                    txn.enqueue_nowait("orders", b"v", headers={"\ud800": b"1"}, partition=0)

    assert committed(broker) == [b"fine", b"fine"]


async def test_records_that_have_not_left_before_an_abort_never_do(broker: FakeBroker) -> None:
    async with transactional(broker) as producer:
        await producer.init_transactions()
        with broker.hold("Produce") as hold:
            await producer.begin_transaction()
            first = await producer.enqueue("orders", b"on its way", partition=0)
            await until(lambda: hold.waiting)
            rest = [await producer.enqueue("orders", bytes(9000), partition=0) for _ in range(20)]
            aborting = asyncio.ensure_future(producer.abort_transaction())
            await until(lambda: rest[-1].done())
            assert isinstance(rest[-1].exception(), NotWritten)
            assert isinstance(rest[-1].exception().__cause__, TransactionAborted)
            assert not aborting.done()
        await aborting
        assert first.done()

        async with producer.transaction() as txn:
            await txn.send("orders", b"next", partition=0)

    assert committed(broker) == [b"next"]


async def test_a_failed_record_makes_the_commit_impossible(broker: FakeBroker) -> None:
    async with transactional(broker) as producer:
        broker.fail("Produce", "INVALID_RECORD")
        with pytest.raises(TransactionAbortable, match="INVALID_RECORD"):
            async with producer.transaction() as txn:
                await txn.enqueue("orders", b"refused")
        async with producer.transaction() as txn:
            await txn.send("orders", b"again")

    assert committed(broker) == [b"again"]


async def test_after_a_failed_record_nothing_more_can_be_sent_until_the_abort(broker: FakeBroker) -> None:
    async with transactional(broker) as producer:
        broker.fail("Produce", "INVALID_RECORD")
        await producer.init_transactions()
        await producer.begin_transaction()
        with pytest.raises(NotWritten):
            await producer.send("orders", b"refused")
        for call in (producer.send("orders", b"no"), producer.commit_transaction(), producer.begin_transaction()):
            with pytest.raises(TransactionAbortable, match="Abort the transaction"):
                await call
        await producer.abort_transaction()
        async with producer.transaction() as txn:
            await txn.send("orders", b"again")

    assert committed(broker) == [b"again"]


async def test_a_cancelled_block_is_aborted(broker: FakeBroker) -> None:
    begun = asyncio.Event()

    async def work(producer: Producer) -> None:
        async with producer.transaction() as txn:
            await txn.send("orders", b"cancelled")
            begun.set()
            await asyncio.Event().wait()

    async with transactional(broker) as producer:
        task = asyncio.ensure_future(work(producer))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with producer.transaction() as txn:
            await txn.send("orders", b"next")

    assert committed(broker) == [b"next"]


async def test_a_commit_that_was_cancelled_goes_on(broker: FakeBroker) -> None:
    async with transactional(broker) as producer:
        with broker.hold("EndTxn") as hold:

            async def work() -> None:
                async with producer.transaction() as txn:
                    await txn.send("orders", b"first")

            task = asyncio.ensure_future(work())
            await until(lambda: hold.waiting)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(TransactionStateError, match="commit_transaction"):
                await producer.abort_transaction()
        async with producer.transaction() as txn:
            await txn.send("orders", b"second")

    assert committed(broker) == [b"first", b"second"]


async def test_a_commit_that_took_too_long_for_its_caller_is_waited_for_by_the_same_call(broker: FakeBroker) -> None:
    async with transactional(broker) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.enqueue("orders", b"first")
        with broker.hold("EndTxn"):
            with pytest.raises(KafkaTimeoutError, match="Call it again"):
                await producer.commit_transaction(timeout=0.01)
            with pytest.raises(TransactionStateError, match="commit_transaction"):
                await producer.abort_transaction()
        await producer.commit_transaction()

    assert committed(broker) == [b"first"]


@pytest.mark.parametrize("api", ["FindCoordinator", "InitProducerId", "AddPartitionsToTxn", "Produce", "EndTxn"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_the_loss_of_an_answer_loses_and_doubles_nothing(broker: FakeBroker, api: str, when: Any) -> None:
    async with transactional(broker) as producer:
        broker.drop_connection(api, when=when)
        for number in range(5):
            async with producer.transaction() as txn:
                await txn.enqueue("orders", b"%d" % number)

    assert committed(broker) == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_successor_fences_its_predecessor_and_aborts_what_it_left(broker: FakeBroker) -> None:
    async with transactional(broker) as old, transactional(broker) as new:
        await old.init_transactions()
        await old.begin_transaction()
        await old.send("orders", b"left")
        async with new.transaction() as txn:
            await txn.send("orders", b"new")
        with pytest.raises(ProducerFenced):
            await old.commit_transaction()
        with pytest.raises(ProducerFenced):
            await old.begin_transaction()

    assert committed(broker) == [b"new"]


async def test_closing_aborts_what_is_open(broker: FakeBroker) -> None:
    async with transactional(broker) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("orders", b"left")

    assert committed(broker) == []
    assert not ended(broker).committed


async def test_closing_waits_for_an_unawaited_commit(broker: FakeBroker) -> None:
    async with transactional(broker) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.enqueue("orders", b"kept")
        with broker.hold("EndTxn"), pytest.raises(KafkaTimeoutError):
            await producer.commit_transaction(timeout=0)

    assert committed(broker) == [b"kept"]


@pytest.mark.parametrize("api", ["FindCoordinator", "InitProducerId"])  # which need DESCRIBE and WRITE
async def test_a_refused_transactional_id_is_reported_at_once(broker: FakeBroker, api: str) -> None:
    async with transactional(broker) as producer:
        broker.fail(api, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
        with pytest.raises(TransactionFatal, match=r"TRANSACTIONAL_ID_AUTHORIZATION_FAILED.*repeat the call"):
            await producer.init_transactions()
        async with producer.transaction() as txn:  # the rights were given meanwhile
            await txn.send("orders", b"allowed")

    assert committed(broker) == [b"allowed"]


async def test_offsets_are_committed_with_the_transaction(broker: FakeBroker) -> None:
    group = ConsumerGroupMetadata("readers")
    async with transactional(broker) as producer:
        async with producer.transaction() as txn:
            await txn.send("orders", b"out")
            await txn.send_offsets(
                {TopicPartition("in", 0): 7, TopicPartition("in", 1): OffsetAndMetadata(9, "x")}, group
            )
        with suppress(LookupError):
            async with producer.transaction() as txn:
                await txn.send_offsets({TopicPartition("in", 0): 8}, "readers")
                raise LookupError
        async with producer.transaction() as txn:
            await txn.send_offsets({}, "readers")

    found = broker.committed_offsets("readers")
    assert [found[TopicPartition("in", number)].offset for number in range(2)] == [7, 9]


@pytest.mark.parametrize(
    ("release", "topic", "version"), [("4.4", "in", 6), ("4.4", "unknown", 5), ("4.3", "in", 5), ("3.9", "in", 4)]
)
async def test_offsets_go_by_the_ids_of_topics_that_producer_and_broker_know(
    release: str, topic: str, version: int
) -> None:
    with FakeBroker(topics={"orders": 1, "in": 2, "unknown": 2}, versions=release) as broker:
        async with transactional(broker) as producer:
            await producer.partitions_for("in")
            async with producer.transaction() as txn:
                await txn.send_offsets({TopicPartition(topic, 1): 7}, "readers")

        assert [each.version for each in broker.requests_of("TxnOffsetCommit")] == [version]
        assert broker.committed_offsets("readers")[TopicPartition(topic, 1)].offset == 7


async def test_offsets_of_a_topic_that_was_created_again_are_sent_with_its_new_id() -> None:
    with FakeBroker(topics={"in": 2, "orders": 1}) as broker:
        async with transactional(broker, metadata_max_age_ms=600_000, retry_backoff_ms=1) as producer:
            await producer.partitions_for("in")
            broker.recreate_topic("in")
            async with producer.transaction() as txn:
                await txn.send_offsets({TopicPartition("in", 1): 7}, "readers")

        requests = [cast("TxnOffsetCommitRequest", each.body) for each in broker.requests_of("TxnOffsetCommit")]
        ids = [topic.topic_id for each in requests for topic in each.topics]
        assert len(set(ids)) == 2
        assert broker.committed_offsets("readers")[TopicPartition("in", 1)].offset == 7


async def test_offsets_that_are_refused_are_reported_at_once(broker: FakeBroker) -> None:
    async with transactional(broker, max_block_ms=600_000) as producer:
        broker.fail("TxnOffsetCommit", "ILLEGAL_GENERATION")
        await producer.init_transactions()
        await producer.begin_transaction()
        with pytest.raises(CommitFailed, match="ILLEGAL_GENERATION"):
            await producer.send_offsets_to_transaction({TopicPartition("in", 0): 7}, "readers")
        with pytest.raises(CommitFailed):
            await producer.commit_transaction()
        await producer.abort_transaction()


@pytest.mark.parametrize(
    ("offsets", "group"),
    [
        ([(("in", 0), 1)], "g"),
        (None, "g"),
        ({("in", 0): -1}, "g"),
        ({("in", 0): 1.5}, "g"),
        ({("in", 0): 2**63}, "g"),
        ({("in", 0): OffsetAndMetadata(1, metadata=cast("str", 5))}, "g"),
        ({("in", 0): OffsetAndMetadata(1, metadata="\ud800")}, "g"),
        ({("in", 0): OffsetAndMetadata(1, leader_epoch=2**31)}, "g"),
        ({("in", 2**31): 1}, "g"),
        ({("in", "0"): 1}, "g"),
        ({(5, 0): 1}, "g"),
        ({"in": 1}, "g"),
        ({("in", 0): 1}, ""),
        ({("in", 0): 1}, 5),
        ({("in", 0): 1}, "g" * 2**15),
        ({("in", 0): 1}, ConsumerGroupMetadata("g", generation_id=2**31)),
        ({("in", 0): 1}, ConsumerGroupMetadata("g", member_id=cast("str", 5))),
        ({("in", 0): 1}, ConsumerGroupMetadata("g", group_instance_id=cast("str", 5))),
    ],
)
async def test_offsets_that_are_none_are_refused(broker: FakeBroker, offsets: Any, group: Any) -> None:
    async with transactional(broker) as producer, producer.transaction() as txn:
        with pytest.raises(ConfigError):
            await txn.send_offsets(offsets, group)


async def test_a_handle_names_the_open_transaction(broker: FakeBroker) -> None:
    async with transactional(broker) as producer:
        with pytest.raises(TransactionStateError):
            producer.transaction_handle()
        async with producer.transaction() as txn:
            handle = txn.handle()
            await txn.send("orders", b"mine")

    assert pickle.loads(pickle.dumps(handle)) == handle
    assert handle.transactional_id == "shop"
    assert handle.producer_id >= 0


#: Every call of a transaction's that would put something into it.
CALLS: Mapping[str, Callable[[Transaction], Awaitable[object]]] = {
    "send": lambda txn: txn.send("orders", b"late"),
    "enqueue": lambda txn: txn.enqueue("orders", b"late"),
    "enqueue_nowait": lambda txn: txn.enqueue_nowait("orders", b"late"),
    "send_many": lambda txn: txn.send_many("orders", [b"late"]),
    "send_table": lambda txn: txn.send_table("orders", pyarrow.table({"v": [b"late"]}), value="v"),
    "send_offsets": lambda txn: txn.send_offsets({TopicPartition("in", 0): 8}, "late"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_a_transaction_that_is_over_puts_nothing_into_the_next_one(broker: FakeBroker, call: Any) -> None:
    async with transactional(broker) as producer:
        async with producer.transaction() as first:
            await first.send("orders", b"1")
        async with producer.transaction() as second:
            with pytest.raises(TransactionStateError, match="has ended"):
                await call(first)
            with pytest.raises(TransactionStateError, match="has ended"):
                first.handle()
            await second.send("orders", b"2")

    assert committed(broker) == [b"1", b"2"]
    assert not broker.committed_offsets("late")


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_nor_does_one_that_was_not_entered(broker: FakeBroker, call: Any) -> None:
    async with transactional(broker) as producer, producer.transaction() as txn:
        other = producer.transaction()
        with pytest.raises(TransactionStateError, match="has not begun"):
            await call(other)
        with pytest.raises(TransactionStateError, match="has not begun"):
            other.handle()
        await txn.send("orders", b"mine")

    assert committed(broker) == [b"mine"]


async def test_a_transaction_is_over_however_it_ended(broker: FakeBroker) -> None:
    async with transactional(broker) as producer:
        over: list[Transaction] = []
        with suppress(LookupError):
            async with producer.transaction() as txn:
                over.append(txn)
                raise LookupError
        broker.fail("Produce", "INVALID_RECORD")
        with suppress(TransactionAbortable):
            async with producer.transaction() as txn:
                over.append(txn)
                await txn.enqueue("orders", b"refused")
        async with producer.transaction():
            for txn in over:
                with pytest.raises(TransactionStateError, match="has ended"):
                    await txn.send("orders", b"late")

    assert len(over) == 2
    assert committed(broker) == []


async def test_work_is_done_again_where_that_can_help(broker: FakeBroker) -> None:
    attempts: list[int] = []

    async def work(txn: Transaction) -> str:
        attempts.append(len(attempts))
        await txn.enqueue("orders", b"attempt %d" % attempts[-1])
        return "done"

    async with transactional(broker) as producer:
        broker.fail("Produce", "INVALID_RECORD", times=2)
        assert await producer.run_in_transaction(work) == "done"

        broker.fail("Produce", "INVALID_RECORD", times=None)
        with pytest.raises(TransactionAbortable):
            await producer.run_in_transaction(work, attempts=2)

    assert attempts == [0, 1, 2, 3, 4]
    assert committed(broker) == [b"attempt 2"]


@pytest.mark.parametrize("how", ["send", "enqueue", "behind another", "send_many"])
async def test_work_with_a_record_that_the_broker_never_takes_is_not_done_again(broker: FakeBroker, how: str) -> None:
    attempts: list[None] = []

    async def work(txn: Transaction) -> None:
        attempts.append(None)
        if how == "send_many":
            await txn.send_many("orders", [b"too large"])
        elif how == "send":
            await txn.send("orders", b"too large")
        else:
            await txn.enqueue("orders", b"too large", partition=0)
            if how == "behind another":
                await txn.flush()
                await txn.send("orders", b"never", partition=1)

    async with transactional(broker) as producer:
        broker.fail("Produce", "MESSAGE_TOO_LARGE", times=None)
        with pytest.raises((NotWritten, TransactionAbortable, SendManyError), match=r"max\.message\.bytes"):
            await producer.run_in_transaction(work)

    assert len(attempts) == 1
    assert committed(broker) == []


async def test_work_is_done_again_after_the_producer_was_reopened(broker: FakeBroker) -> None:
    async with transactional(broker) as producer:
        await producer.init_transactions()
        broker.fence_transactional_id("shop")

        async def work(txn: Transaction) -> None:
            await txn.send("orders", b"mine again")

        await producer.run_in_transaction(work)

    assert committed(broker) == [b"mine again"]


@pytest.mark.parametrize("wrong", [LookupError, asyncio.CancelledError])
async def test_an_exception_raised_by_the_work_is_passed_on_at_once(
    broker: FakeBroker, wrong: type[BaseException]
) -> None:
    attempts: list[None] = []

    async def work(txn: Transaction) -> None:
        attempts.append(None)
        await txn.enqueue("orders", b"never")
        raise wrong

    async with transactional(broker) as producer:
        with pytest.raises(wrong):
            await producer.run_in_transaction(work)

    assert len(attempts) == 1
    assert committed(broker) == []


async def test_memory_comes_back_whatever_becomes_of_the_transaction(broker: FakeBroker) -> None:
    async with transactional(broker, buffer_memory=200_000) as producer:
        for number in range(12):
            with suppress(LookupError):
                async with producer.transaction() as txn:
                    for _ in range(40):
                        await txn.enqueue("orders", bytes(10_000))
                    if number % 3:
                        raise LookupError
        numbers = producer.metrics()

    assert numbers["buffer-available-bytes"] == numbers["buffer-total-bytes"]
    assert len(committed(broker)) == 4 * 40


async def test_a_record_that_waited_is_not_put_into_the_next_transaction(broker: FakeBroker) -> None:
    async with transactional(broker) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        with broker.hold("Metadata") as hold:
            waiting = asyncio.ensure_future(producer.enqueue("orders", b"of the first"))
            await until(lambda: hold.waiting)
            await producer.abort_transaction()
            await producer.begin_transaction()
        with pytest.raises(NotWritten, match="ended before this record was added"):
            await waiting
        await producer.send("orders", b"of the second")
        await producer.commit_transaction()
        numbers = producer.metrics()

    assert committed(broker) == [b"of the second"]
    assert numbers["buffer-available-bytes"] == numbers["buffer-total-bytes"]


@pytest.mark.parametrize("partition", [None, 1])
async def test_nor_is_one_that_waited_for_memory(broker: FakeBroker, partition: int | None) -> None:
    async with transactional(broker, buffer_memory=40_000, batch_size=1000) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        with broker.hold("Produce") as hold:
            first = await producer.enqueue("orders", bytes(30_000), partition=0)
            await until(lambda: hold.waiting)
            waiting = asyncio.ensure_future(producer.enqueue("orders", b"of the first" * 2000, partition=partition))
            await until(lambda: producer.metrics()["waiting-threads"])
            aborting = asyncio.ensure_future(producer.abort_transaction())
        with pytest.raises(NotWritten):
            await waiting
        await aborting
        assert first.done()
        async with producer.transaction() as txn:
            await txn.send("orders", b"of the second")
        numbers = producer.metrics()

    assert committed(broker) == [b"of the second"]
    assert numbers["buffer-available-bytes"] == numbers["buffer-total-bytes"]


@pytest.mark.parametrize("how", ["items", "lists", "table"])
async def test_a_bulk_does_not_go_on_in_the_next_transaction(broker: FakeBroker, how: str) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def values() -> AsyncIterator[bytes]:
        yield b"of the first"
        begun.set()
        await go_on.wait()
        yield b"later"

    async def lists() -> None:
        bulk = SendMany(
            producer,
            "orders",
            asyncio.get_running_loop().time,
            producer.log,
            key=None,
            headers=None,
            partition=None,
            on_progress=None,
            timeout=None,
            check=producer.still_open,
        )
        with bulk:
            await bulk.add([b"of the first"])
            begun.set()
            await go_on.wait()
            await bulk.add([b"later"])

    async def table() -> None:
        loop = asyncio.get_running_loop()
        schema = pyarrow.schema([("v", pyarrow.string())])

        def batches() -> Iterator[Any]:
            yield pyarrow.record_batch([["of the first"]], schema=schema)
            loop.call_soon_threadsafe(begun.set)
            asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
            yield pyarrow.record_batch([["later"]], schema=schema)

        await producer.send_table("orders", pyarrow.RecordBatchReader.from_batches(schema, batches()), value="v")

    async with transactional(broker) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        work = {"items": lambda: producer.send_many("orders", values()), "lists": lists, "table": table}[how]
        bulk = asyncio.ensure_future(work())
        await begun.wait()
        await until(lambda: broker.records("orders"))
        await producer.abort_transaction()
        await producer.begin_transaction()
        go_on.set()
        with pytest.raises(TransactionStateError, match="ended before this record was added"):
            await bulk
        await producer.commit_transaction()

    assert committed(broker) == []


async def test_closing_ends_what_a_commit_that_failed_unseen_has_left(broker: FakeBroker) -> None:
    async with transactional(broker) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("orders", b"fine")
        broker.fail("Produce", "INVALID_RECORD")
        with broker.hold("Produce"):
            refused = await producer.enqueue("orders", b"refused")
            with pytest.raises(KafkaTimeoutError):
                await producer.commit_transaction(timeout=0.01)
        await until(refused.done)

    assert committed(broker) == []
    assert not ended(broker).committed


async def test_closing_aborts_where_the_commit_that_it_waits_for_fails(broker: FakeBroker) -> None:
    async with transactional(broker) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("orders", b"fine")
        broker.fail("Produce", "INVALID_RECORD")
        with broker.hold("Produce"):
            await producer.enqueue("orders", b"refused")
            with pytest.raises(KafkaTimeoutError):
                await producer.commit_transaction(timeout=0.01)
            closing = asyncio.ensure_future(producer.close())
            await asyncio.sleep(0)
        await closing

    assert committed(broker) == []
    assert not ended(broker).committed


async def test_closing_does_not_wait_for_an_initialization() -> None:
    async with opened("127.0.0.1:1", transactional_id="shop", close_timeout_ms=600_000) as producer:
        with pytest.raises(KafkaTimeoutError):
            await producer.init_transactions(timeout=0)
        async with asyncio.timeout(30):
            await producer.close()


async def test_a_commit_that_was_cancelled_and_failed_is_reported_to_the_next_transaction(broker: FakeBroker) -> None:
    async def work(producer: Producer) -> None:
        async with producer.transaction() as txn:
            await txn.enqueue("orders", b"refused")

    async with transactional(broker) as producer:
        await producer.init_transactions()
        broker.fail("Produce", "INVALID_RECORD")
        with broker.hold("Produce") as hold:
            task = asyncio.ensure_future(work(producer))
            await until(lambda: hold.waiting)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        with pytest.raises(TransactionAbortable, match="INVALID_RECORD"):
            async with producer.transaction():
                raise AssertionError
        async with producer.transaction() as txn:
            await txn.send("orders", b"next")

    assert committed(broker) == [b"next"]


async def test_work_is_done_again_where_one_of_many_records_failed(broker: FakeBroker) -> None:
    attempts: list[None] = []

    async def work(txn: Transaction) -> None:
        attempts.append(None)
        await txn.send_many("orders", [b"1", b"2"])

    async with transactional(broker) as producer:
        broker.fail("Produce", "INVALID_RECORD")
        await producer.run_in_transaction(work)

    assert len(attempts) == 2
    assert committed(broker) == [b"1", b"2"]


async def test_the_first_reason_is_the_one_that_is_reported(broker: FakeBroker) -> None:
    async with transactional(broker, batch_size=100) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("orders", b"first", partition=0)
        broker.fail("Produce", "INVALID_RECORD")
        with broker.hold("Produce") as hold:
            for _ in range(3):
                await producer.enqueue("orders", bytes(200), partition=0)
            await until(lambda: hold.waiting and producer.metrics()["requests-in-flight"] >= 2)
        with pytest.raises(TransactionAbortable, match="INVALID_RECORD"):
            await producer.commit_transaction()
        await producer.abort_transaction()


async def test_records_given_up_at_the_end_of_the_producer_are_counted_once(broker: FakeBroker) -> None:
    async with transactional(broker) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("orders", b"fine", partition=0)
        with broker.hold("Produce"):
            for number in range(6):
                await producer.enqueue("orders", b"given up", partition=number % 2)
            for task in asyncio.all_tasks():
                if task.get_name() == "aioproducer sender":
                    task.cancel()
            await until(lambda: producer.health().status is HealthStatus.FAILED)
        report = await producer.close()

    assert (report.delivered, report.failed + report.unknown) == (1, 6)


@pytest.mark.parametrize("version", ["3.9.2", "4.3.1"])
async def test_a_coordinator_that_is_gone_is_not_waited_for(version: str) -> None:
    with FakeBroker(brokers=3, topics={"orders": 3}, versions=version) as broker:
        async with transactional(broker, request_timeout_ms=600_000, delivery_timeout_ms=700_000) as producer:
            await producer.init_transactions()
            coordinator = broker.requests_of("InitProducerId")[-1].node
            elsewhere = next(each for each in range(3) if broker.leader("orders", each) != coordinator)
            await producer.begin_transaction()
            await producer.send("orders", b"kept", partition=elsewhere)
            broker.stop_node(coordinator, elect=True)
            await until(lambda: coordinator not in producer._engine.client.connected_nodes())
            await producer.commit_transaction()

        assert committed(broker) == [b"kept"]


async def test_a_pause_without_connections_does_not_change_the_version() -> None:
    with FakeBroker(topics={"orders": 1}, versions="4.3.1") as broker:
        async with transactional(broker) as producer:
            async with producer.transaction() as txn:
                await txn.send("orders", b"before")
            broker.disconnect()
            await until(lambda: not producer._engine.client.connected_nodes())
            async with producer.transaction():
                pass
            async with producer.transaction() as txn:
                await txn.send("orders", b"after")

        assert committed(broker) == [b"after", b"before"]
        assert not broker.count("AddPartitionsToTxn")


async def test_an_abort_logs_nothing_of_the_records_that_it_drops(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with transactional(broker) as producer:
        with suppress(LookupError):
            async with producer.transaction() as txn:
                await txn.enqueue("orders", b"dropped")
                raise LookupError

    assert not [each for each in caplog.records if each.levelname in ("WARNING", "ERROR")]


async def test_the_health_of_a_fenced_producer_is_fenced(broker: FakeBroker) -> None:
    async with transactional(broker) as producer:
        await producer.init_transactions()
        assert producer.health().ready
        broker.fence_transactional_id("shop")
        await producer.begin_transaction()
        with pytest.raises(NotWritten):
            await producer.send("orders", b"late")
        with pytest.raises(ProducerFenced):
            await producer.abort_transaction()

        health = producer.health()

        assert health.status is HealthStatus.FAILED
        assert isinstance(health.error, ProducerFenced)
        assert not health.alive
        await producer.close()
        assert producer.health().status is HealthStatus.CLOSED


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The logged warnings."""
    return [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]


async def test_closing_logs_that_it_aborts_an_open_transaction(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with transactional(broker) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("orders", b"left")
        report = await producer.close()

    assert report.clean
    assert report.delivered == 1
    assert committed(broker) == []
    (reported,) = warnings_of(caplog)
    assert "'shop'" in reported
    assert "aborted" in reported


async def test_closing_logs_that_the_outcome_of_a_commit_is_unknown(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with transactional(broker) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("orders", b"kept?")
        with broker.hold("EndTxn") as hold:
            with pytest.raises(KafkaTimeoutError):
                await producer.commit_transaction(timeout=0)
            await until(lambda: hold.waiting)
            await producer.close(timeout=0.01)

    (reported,) = warnings_of(caplog)
    assert "'shop'" in reported
    assert "may or may not be committed" in reported


async def test_closing_logs_that_an_abort_was_not_confirmed(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with transactional(broker) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("orders", b"left")
        with broker.hold("EndTxn") as hold:
            closing = asyncio.ensure_future(producer.close(timeout=30))
            await until(lambda: hold.waiting)
            await producer.close(timeout=0)
            await closing

    assert len(warnings_of(caplog)) == 1


async def test_closing_logs_why_an_unawaited_commit_failed(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with transactional(broker) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("orders", b"fine")
        broker.fail("Produce", "INVALID_RECORD")
        with broker.hold("Produce"):
            refused = await producer.enqueue("orders", b"refused")
            with pytest.raises(KafkaTimeoutError):
                await producer.commit_transaction(timeout=0.01)
        await until(refused.done)
        await producer.close()

    (reported,) = [each for each in warnings_of(caplog) if "shop" in each]
    assert "INVALID_RECORD" in reported
    assert committed(broker) == []
