"""Producers that write into another process's transaction by its handle: what they can do, and what they detect."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pyarrow  # type: ignore[import-untyped]  # it brings no types
import pytest

from aioproducer import (
    ConfigError,
    KafkaTimeoutError,
    NotWritten,
    Producer,
    SharedPartition,
    SyncProducer,
    TopicPartition,
    TransactionAbortable,
    TransactionError,
    TransactionHandle,
    TransactionStateError,
    Unknown,
    Written,
)
from aioproducer.core.transactions.writer_shape import shape_of
from aioproducer.testing import FakeBroker, TopicSpec
from aioproducer.testing.broker.log import TopicConfig
from aioproducer.types import TimestampType
from tests.conftest import opened, until

LOG_APPEND_TIME = TopicSpec(3, config=TopicConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME))


@pytest.fixture(params=["3.9.2", "4.3.1"])
def broker(request: pytest.FixtureRequest) -> Iterator[FakeBroker]:
    """A broker with transaction version 1, and one with 2."""
    topics: dict[str, int | TopicSpec] = {"orders": 3, "stamped": LOG_APPEND_TIME}
    with FakeBroker(topics=topics, versions=request.param) as broker:
        yield broker


@asynccontextmanager
async def shared(broker: FakeBroker) -> AsyncIterator[tuple[Producer, TransactionHandle]]:
    """A producer with an open transaction, and its handle."""
    async with opened(broker, transactional_id="shop") as owner:
        await owner.init_transactions()
        await owner.begin_transaction()
        yield owner, owner.transaction_handle()


def attached(broker: FakeBroker, handle: TransactionHandle, **options: Any) -> Producer:
    """A writer into the transaction."""
    return Producer.attach(handle, broker.bootstrap_servers, **{"retry_backoff_ms": 5, **options})


def committed(broker: FakeBroker, topic: str = "orders") -> list[bytes | None]:
    """The records that a read_committed reader sees, sorted."""
    return sorted((each.value for each in broker.records(topic, committed=True)), key=lambda each: each or b"")


def counts(broker: FakeBroker, partition: int) -> list[int]:
    """The number of records in each batch of the partition."""
    return [len(batch.records) for batch in broker.batches("orders", partition) if not batch.header.is_control]


async def test_records_of_attached_writers_become_visible_when_the_owner_commits(broker: FakeBroker) -> None:
    async with shared(broker) as (owner, handle):
        travelled = pickle.loads(pickle.dumps(handle))
        async with attached(broker, travelled) as one, attached(broker, travelled) as two:
            await one.send("orders", b"one", partition=0)
            await two.send("orders", b"two", partition=1)
        assert committed(broker) == []
        await owner.commit_transaction()

    assert committed(broker) == [b"one", b"two"]
    assert broker.count("InitProducerId") <= 2  # that of the owner, and its next epoch


async def test_records_of_attached_writers_are_void_after_an_abort(broker: FakeBroker) -> None:
    async with shared(broker) as (owner, handle):
        async with attached(broker, handle) as writer:
            await writer.send("orders", b"void")
        await owner.abort_transaction()

    assert committed(broker) == []


async def test_the_next_initialization_aborts_what_attached_writers_left(broker: FakeBroker) -> None:
    async with shared(broker) as (_, handle):
        async with attached(broker, handle) as writer:
            await writer.send("orders", b"left")
        async with opened(broker, transactional_id="shop") as successor, successor.transaction() as txn:
            await txn.send("orders", b"new")

    assert committed(broker) == [b"new"]


@pytest.mark.parametrize("rows", [1, 3, 500])
async def test_every_way_to_send_works_and_is_counted(broker: FakeBroker, rows: int) -> None:
    values = [b"%03d" % number for number in range(rows)]
    table = pyarrow.table({"value": values})
    async with shared(broker) as (owner, handle):
        async with attached(broker, handle, compression_type="lz4") as writer:
            await writer.send_many("orders", values, partition=0)
            await writer.send_table("orders", table, value="value", partition=1)
            for value in values:
                await writer.enqueue("orders", value, partition=2)
            await writer.flush()
            found = writer.written
        await owner.commit_transaction()

    assert found == {TopicPartition("orders", each): Written(rows, 0, rows - 1) for each in range(3)}
    for partition in range(3):
        assert [each.value for each in broker.records("orders", partition, committed=True)] == values
    assert pickle.loads(pickle.dumps(found)) == found


async def test_the_first_batches_have_the_shape_of_the_writer(broker: FakeBroker) -> None:
    async with shared(broker) as (owner, handle):
        async with attached(broker, handle, writer=3 + 64 * 5) as writer:
            await writer.send_many("orders", [b"%d" % number for number in range(100)], partition=0)
            for number in range(10):
                await writer.enqueue("orders", b"%d" % number, partition=1)
        await owner.commit_transaction()

    shape = [4, 6, 1, 1, 1]
    assert list(shape_of(3 + 64 * 5)) == shape
    assert counts(broker, 0) == [*shape, 87]
    # The first one left before the others came.
    assert all(count <= most for count, most in zip(counts(broker, 1), [*shape, 10], strict=False))


@pytest.mark.parametrize("size", [100, 1000, 3000])
async def test_rows_of_a_table_have_the_shape_without_a_large_batch_being_taken_apart(
    broker: FakeBroker, size: int
) -> None:
    """Whatever their size: a batch that holds fewer rows than a digit says shows no digit."""
    values = [b"%0*d" % (size, number) for number in range(30_000 * 100 // size)]
    table = pyarrow.table({"value": values, "partition": [number % 3 for number in range(len(values))]})
    writer = shape_number([64, 50, 64, 33, 60])
    async with shared(broker) as (owner, handle):
        async with attached(broker, handle, writer=writer, batch_size=1_000_000) as producer:
            await producer.send_table("orders", table, value="value", partition="partition")
        await owner.commit_transaction()

    for partition in range(3):
        found = counts(broker, partition)
        assert found[:5] == shape_of(writer)
        assert found[5] < max(8192, sum(found[:5]) * (size + 30)) / size  # what was left of a small batch
        assert [each.value for each in broker.records("orders", partition)] == values[partition::3]


def shape_number(digits: list[int]) -> int:
    """The writer with these digits."""
    return sum((digit - 1) << 6 * place for place, digit in enumerate(digits))


@pytest.mark.parametrize("count", [1, 2, 40, 400])
async def test_a_second_writer_in_a_partition_is_reported_and_not_acknowledged(broker: FakeBroker, count: int) -> None:
    values = [b"%d" % number for number in range(count)]
    async with shared(broker) as (owner, handle):
        async with attached(broker, handle, writer=7) as one:
            await one.send_many("orders", values, partition=0)
        two = await attached(broker, handle, writer=7).start()  # even with the same shape
        with pytest.raises(NotWritten) as refused:
            await two.send("orders", values[0], partition=0, timestamp_ms=1)
        assert isinstance(refused.value.__cause__, SharedPartition)
        with pytest.raises(SharedPartition):
            await two.enqueue("orders", b"more", partition=1)
        report = await two.close()
        await owner.abort_transaction()

    assert report.delivered == 0
    assert len(broker.records("orders", 0)) == count


async def test_leaving_a_writer_that_lost_records_raises(broker: FakeBroker) -> None:
    async with shared(broker) as (owner, handle):
        async with attached(broker, handle) as one:
            await one.send("orders", b"one", partition=0)
        lost: list[Any] = []
        with pytest.raises(SharedPartition, match="orders-0"):
            async with attached(broker, handle, on_delivery_error=lambda *args: lost.append(args)) as two:
                await two.enqueue("orders", b"two", partition=0)
        await owner.abort_transaction()

    assert lost


async def test_a_batch_whose_answer_was_lost_is_its_own_when_it_is_sent_again(broker: FakeBroker) -> None:
    async with shared(broker) as (owner, handle):
        async with attached(broker, handle) as writer:
            broker.drop_connection("Produce", when="after")
            await writer.send("orders", b"one", partition=0)
            assert writer.written[TopicPartition("orders", 0)].records == 1
        await owner.commit_transaction()

    assert committed(broker) == [b"one"]


async def test_topics_with_log_append_time_are_recognised(broker: FakeBroker) -> None:
    async with shared(broker) as (owner, handle):
        async with attached(broker, handle) as writer:
            for number in range(20):
                await writer.send("stamped", b"%02d" % number, partition=number % 3)
            assert sum(each.records for each in writer.written.values()) == 20
        await owner.commit_transaction()

    assert len(committed(broker, "stamped")) == 20
    assert broker.count("DescribeConfigs") == 1


async def test_without_the_right_to_describe_a_topic_no_acknowledgement_is_believed(broker: FakeBroker) -> None:
    broker.fail("DescribeConfigs", "TOPIC_AUTHORIZATION_FAILED")
    async with shared(broker) as (owner, handle):
        writer = await attached(broker, handle).start()
        with pytest.raises(Unknown, match="DESCRIBE_CONFIGS"):
            await writer.send("stamped", b"one", partition=0)
        await writer.close()
        await owner.abort_transaction()


async def test_an_attached_writer_ends_nothing(broker: FakeBroker) -> None:
    async with shared(broker) as (owner, handle):
        async with attached(broker, handle) as writer:
            for call in (
                writer.init_transactions,
                writer.begin_transaction,
                writer.commit_transaction,
                writer.abort_transaction,
            ):
                with pytest.raises(TransactionStateError, match="handle"):
                    await call()
            with pytest.raises(TransactionStateError):
                async with writer.transaction():
                    pytest.fail("it was entered")
            with pytest.raises(TransactionStateError):
                writer.transaction_handle()
            await writer.send("orders", b"one")
        with pytest.raises(TransactionStateError, match="again"):
            await writer.start()
        await owner.commit_transaction()

    assert committed(broker) == [b"one"]


async def test_after_the_end_of_the_transaction_and_the_next_initialization_nothing_is_taken(
    broker: FakeBroker,
) -> None:
    async with shared(broker) as (owner, handle):
        writer = await attached(broker, handle).start()
        await writer.send("orders", b"one", partition=0)
        await owner.commit_transaction()
        async with opened(broker, transactional_id="shop") as successor:
            await successor.init_transactions()
            with pytest.raises(NotWritten):
                await writer.send("orders", b"late", partition=0)
        with pytest.raises(TransactionError):
            await writer.enqueue("orders", b"later")
        await writer.close()

    assert committed(broker) == [b"one"]


@pytest.mark.parametrize(
    ("handle", "options", "what"),
    [
        ("payments-1", {}, "handle="),
        (TransactionHandle("t", 1, 0), {"writer": -1}, "writer=-1"),
        (TransactionHandle("t", 1, 0), {"writer": True}, "writer=True"),
        (TransactionHandle("t", 1, 0), {"transactional_id": "u"}, "transactional_id='u'"),
        (TransactionHandle("t", 1, 0), {"enable_idempotence": False}, "idempotence"),
    ],
)
def test_invalid_arguments_of_attach_are_refused_at_once(handle: Any, options: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        Producer.attach(cast(TransactionHandle, handle), "localhost:9092", **options)


async def test_records_for_a_known_topic_take_the_fast_path(broker: FakeBroker) -> None:
    async with shared(broker) as (owner, handle):
        async with attached(broker, handle) as writer:
            await writer.send("orders", b"one", partition=0)

            assert writer.appender.append("orders", b"two", None, None, 0, None) is not None
        await owner.commit_transaction()

    assert committed(broker) == [b"one", b"two"]


async def test_the_owner_of_the_handle_also_detects_a_writer_in_the_same_partition(
    broker: FakeBroker,
) -> None:
    async with shared(broker) as (owner, handle):
        async with attached(broker, handle) as writer:
            await writer.send("orders", b"theirs", partition=0)
        await owner.send("orders", b"mine", partition=1)
        with pytest.raises(NotWritten) as refused:
            await owner.send("orders", b"never", partition=0)
        assert isinstance(refused.value.__cause__, SharedPartition)
        with pytest.raises(SharedPartition):
            await owner.commit_transaction()
        await owner.abort_transaction()

        async with owner.transaction() as txn:
            await txn.send("orders", b"alone", partition=0)
        assert owner.written == {}

    assert committed(broker) == [b"alone"]


@pytest.mark.parametrize("topic", ["orders", "stamped"])
async def test_writers_never_count_from_0_in_an_epoch_that_was_counted_in_before(
    broker: FakeBroker, topic: str
) -> None:
    """With version 1 several transactions share an epoch: their sequences would be taken for repeats."""
    async with opened(broker, transactional_id="shop") as owner:
        async with owner.transaction() as txn:
            await txn.send(topic, b"1 before", partition=0)
        if broker.transaction_version < 2:
            with pytest.raises(TransactionStateError, match="next"):
                async with owner.transaction() as txn:
                    txn.handle()
        for number in range(2, 4):
            async with owner.transaction() as txn, attached(broker, txn.handle()) as writer:
                await writer.send(topic, b"%d shared" % number, partition=0)

    assert committed(broker, topic) == [b"1 before", b"2 shared", b"3 shared"]


async def test_a_broker_that_forgot_the_producer_is_not_mistaken_for_another_writer(broker: FakeBroker) -> None:
    async with shared(broker) as (owner, handle):
        writer = await attached(broker, handle).start()
        broker.fail("Produce", "UNKNOWN_PRODUCER_ID")
        with pytest.raises(NotWritten) as refused:
            await writer.send("orders", b"one", partition=0)
        assert not isinstance(refused.value.__cause__, SharedPartition)
        await writer.close()
        assert isinstance(writer.transaction_error, TransactionAbortable)
        await owner.abort_transaction()


async def time_out_sending_offsets(writer: Producer) -> None:
    """Run out of time; it goes on."""
    with pytest.raises(KafkaTimeoutError):
        await writer.send_offsets_to_transaction({TopicPartition("orders", 0): 5}, "readers", timeout=0)


async def test_leaving_a_writer_waits_for_unawaited_positions(broker: FakeBroker) -> None:
    async with shared(broker) as (owner, handle):
        async with attached(broker, handle) as writer:
            with broker.hold("TxnOffsetCommit") as held:
                await time_out_sending_offsets(writer)
                leaving = asyncio.ensure_future(writer.close())
                await until(lambda: held.waiting)
                await asyncio.sleep(0)
                assert not leaving.done()
            await leaving
        await owner.commit_transaction()

    assert broker.committed_offsets("readers")[TopicPartition("orders", 0)].offset == 5


async def test_leaving_a_writer_raises_if_positions_were_not_accepted(broker: FakeBroker) -> None:
    async with shared(broker) as (owner, handle):
        with broker.hold("TxnOffsetCommit"), pytest.raises(TransactionAbortable, match="offsets"):
            async with attached(broker, handle, close_timeout_ms=100) as writer:
                await time_out_sending_offsets(writer)
        await owner.abort_transaction()


async def test_the_bytes_of_a_table_are_counted_exactly_though_its_batches_are_cut(broker: FakeBroker) -> None:
    values = [b"x" * number for number in range(1, 101)]
    async with shared(broker) as (owner, handle):
        async with attached(broker, handle, writer=2 + 64 * 6) as writer:
            result = await writer.send_table("orders", pyarrow.table({"v": values}), value="v", partition=0)
        await owner.commit_transaction()

    assert len(counts(broker, 0)) == 6
    assert result.serialized_bytes == sum(map(len, values))


async def test_a_producer_that_is_not_attached_has_written_nothing(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        await producer.send("orders", b"one")

        assert producer.written == {}


def test_a_sync_producer_can_be_attached(broker: FakeBroker) -> None:
    with SyncProducer(broker.bootstrap_servers, transactional_id="shop") as owner:
        owner.init_transactions()
        owner.begin_transaction()
        with SyncProducer.attach(owner.transaction_handle(), broker.bootstrap_servers) as writer:
            writer.send("orders", b"one", partition=2)
            assert writer.written == {TopicPartition("orders", 2): Written(1, 0, 0)}
        owner.commit_transaction()

    assert committed(broker) == [b"one"]


def test_leaving_a_sync_writer_that_lost_records_raises_as_well(broker: FakeBroker) -> None:
    with SyncProducer(broker.bootstrap_servers, transactional_id="shop", retry_backoff_ms=5) as owner:
        owner.init_transactions()
        owner.begin_transaction()
        handle = owner.transaction_handle()
        with SyncProducer.attach(handle, broker.bootstrap_servers) as one:
            one.send("orders", b"one", partition=0)
        two = SyncProducer.attach(handle, broker.bootstrap_servers, on_delivery_error=lambda *_: None)
        with pytest.raises(SharedPartition, match="orders-0"), two:
            two.enqueue("orders", b"two", partition=0)
        assert isinstance(two.transaction_error, SharedPartition)
        three = SyncProducer.attach(handle, broker.bootstrap_servers, on_delivery_error=lambda *_: None)
        with pytest.raises(ZeroDivisionError), three:
            three.send_many("orders", (1 // number for number in (0,)), partition=0)
        owner.abort_transaction()
