"""MockProducer: what code under test sees of it, and what a test can ask it and make it do."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from aioproducer import (
    ConfigError,
    InvalidRecord,
    KafkaError,
    NotWritten,
    NotWrittenTimeout,
    OffsetAndMetadata,
    Producer,
    ProducerFenced,
    ProducerRecord,
    RecordTooLarge,
    TopicPartition,
    TransactionAborted,
    Unknown,
    UnknownTimeout,
)
from aioproducer.errors import BrokerConnectionError, MetadataNotReady
from aioproducer.testing import FakeBroker, MockProducer


class Watching:
    """An interceptor that changes records and notes outcomes."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return ProducerRecord(record.topic, record.value, record.key, {"by": b"interceptor"}, record.partition)

    def on_acknowledgement(self, metadata: Any, error: BaseException | None, headers: Any) -> None:
        self.seen.append((None if metadata is None else metadata.offset, type(error).__name__, tuple(headers)))


def as_text(value: object, context: object) -> bytes:
    if value == "boom":
        raise ValueError("as the test wants")
    return str(value).encode()


def is_flushed(mock: MockProducer) -> bool:
    """As a call, because type checkers believe that a property does not change."""
    return mock.flushed


async def scenario(producer: Producer) -> list[object]:
    """Send records with keys, headers, serializers and failures; returns what the caller observes."""
    seen: list[object] = []
    records: list[dict[str, Any]] = [
        {"topic": "orders", "value": 1, "key": "alice", "headers": {"h": b"1"}, "timestamp_ms": 1_700_000_000_000},
        {"topic": "orders", "value": 2, "key": "bob", "timestamp_ms": 1_700_000_000_001},
        {"topic": "orders", "value": 3, "partition": 2, "timestamp_ms": 1_700_000_000_002},
        {"topic": "orders", "value": "boom", "key": "alice"},
        {"topic": "orders", "value": 1, "partition": 9},
        {"topic": "or ders", "value": 1},
        {"topic": "orders", "value": 1, "timestamp_ms": -1},
        {"topic": "orders", "value": 1, "headers": {"h": 1}},
        {"topic": "orders", "value": "x" * 2_000_000, "key": "alice"},
    ]
    for record in records:
        try:
            seen.append(await producer.send(**record))
        except KafkaError as error:
            seen.append((type(error), str(error), type(error.__cause__)))
    seen.append([each.partition for each in await producer.partitions_for("orders")])
    return seen


async def test_a_scenario_gives_what_it_gives_with_a_broker() -> None:
    with FakeBroker(topics={"orders": 3}) as broker:
        async with Producer(broker.bootstrap_servers, value_serializer=as_text) as producer:
            expected = await scenario(producer)
    async with MockProducer(topics={"orders": 3}, value_serializer=as_text) as mock:
        assert await scenario(mock) == expected
    assert mock.closed


async def test_history_has_the_records_as_given_and_as_sent() -> None:
    watching = Watching()
    async with MockProducer(topics={"orders": 3}, value_serializer=as_text, interceptors=[watching]) as mock:
        await mock.send("orders", 1, key="k")
        await mock.partitions_for("clicks")  # enqueue_nowait needs a known topic
        mock.enqueue_nowait(given := ProducerRecord("clicks", 2, partition=0))
        await mock.send_many("orders", [3, 4])
        assert mock.history()[:2] == [ProducerRecord("orders", 1, "k"), given]
        assert [each.value for each in mock.history()] == [1, 2, 3, 4]
        serialized = mock.sent()[0].serialized
        assert (serialized.value, serialized.key, serialized.headers) == (b"1", b"k", (("by", b"interceptor"),))
        assert serialized.partition == 2  # by murmur2
        mock.clear()
        assert mock.history() == []
    assert watching.seen[0] == (0, "NoneType", (("by", b"interceptor"),))


async def test_each_topic_is_compressed_with_its_codec() -> None:
    async with MockProducer(compression_type={"logs": ["zstd", "gzip"], "images": "none", "*": "gzip"}) as mock:
        found: dict[str, set[int]] = {}
        for topic in ("logs", "images", "orders"):
            await mock.send(topic, b"value " * 100)
            found[topic] = {batch.header.codec for batch in mock._cluster.partition(topic, 0).log.batches}

    assert found == {"logs": {4}, "images": {0}, "orders": {1}}


async def test_rows_of_a_table_are_in_the_history() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    async with MockProducer() as mock:
        result = await mock.send_table("orders", pyarrow.table({"v": ["a", "b"]}), value="v")
        assert (result.count, [each.value for each in mock.history()]) == (2, [b"a", b"b"])


async def test_offsets_count_up_by_partition() -> None:
    async with MockProducer(topics={"orders": 2}) as mock:
        sent = [await mock.send("orders", b"x", partition=each) for each in (0, 0, 1)]
    assert [(each.partition, each.offset) for each in sent] == [(0, 0), (0, 1), (1, 0)]


async def test_records_wait_for_the_test_without_auto_complete() -> None:
    async with MockProducer(auto_complete=False) as mock:
        assert is_flushed(mock)
        first, second = [await mock.enqueue("orders", each) for each in (b"1", b"2")]
        sending = asyncio.create_task(mock.send("orders", b"3"))
        await asyncio.sleep(0)
        assert not any(each.done() for each in (first, second, sending))
        assert not is_flushed(mock)
        assert mock.complete_next(7)
        assert first.result().offset == 7
        assert not second.done()
        assert mock.complete_next()
        assert second.result().offset == 8
        assert mock.complete_next()
        assert (await sending).offset == 9
        assert is_flushed(mock)
        assert not mock.complete_next()
        assert not mock.error_next(KafkaError("none waits"))


async def test_flush_close_and_auto_complete_acknowledge_what_waits() -> None:
    async with MockProducer(auto_complete=False) as mock:
        one = await mock.enqueue("orders", b"1")
        await mock.flush()
        assert one.result().offset == 0
        two = await mock.enqueue("orders", b"2")
        mock.auto_complete = True
        assert (await two).offset == 1
        mock.auto_complete = False
        three = await mock.enqueue("orders", b"3")
    assert three.result().offset == 2


async def test_purge_gives_up_what_waits() -> None:
    async with MockProducer(auto_complete=False) as mock:
        one = await mock.enqueue("orders", b"1")
        assert [each.value for each in mock.purge().not_written] == [b"1"]
        assert isinstance(one.exception(), NotWritten)


@pytest.mark.parametrize(
    ("error", "delivered", "cause"),
    [
        (BrokerConnectionError("lost"), Unknown, BrokerConnectionError),
        (RecordTooLarge("large"), NotWritten, RecordTooLarge),
        (UnknownTimeout("late"), UnknownTimeout, KafkaError),
        (OSError("disk"), NotWritten, KafkaError),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else type(value).__name__,
)
async def test_error_next_fails_a_record_as_a_producer_does(
    error: Exception, delivered: type[Exception], cause: type[Exception]
) -> None:
    watching = Watching()
    async with MockProducer(auto_complete=False, interceptors=[watching]) as mock:
        delivery = await mock.enqueue("orders", b"1")
        assert mock.error_next(error)
        with pytest.raises(delivered) as failed:
            await delivery
        assert (type(failed.value), type(failed.value.__cause__)) == (delivered, cause)
        assert (await asyncio.gather(mock.enqueue("orders", b"2"), mock.flush()))[0].result().offset == 0
    assert watching.seen[0] == (None, delivered.__name__, (("by", b"interceptor"),))


async def test_transactions_commit_and_abort() -> None:
    async with MockProducer(transactional_id="shop") as mock:
        assert [mock.transaction_initialized] == [False]
        for count in (1, 2):
            async with mock.transaction() as txn:
                await txn.send("orders", b"1")
                await txn.send_offsets({TopicPartition("in", 0): 4}, "group")
                assert (mock.transaction_in_flight, mock.transaction_committed) == (True, False)
                assert len(mock.history()) == count - 1
                assert mock.uncommitted_records() == [ProducerRecord("orders", b"1")]
                assert mock.uncommitted_offsets() == {"group": {TopicPartition("in", 0): OffsetAndMetadata(4)}}
            assert (mock.commit_count, len(mock.history()), len(mock.offsets_history())) == (count, count, count)
            assert mock.transaction_committed
        assert [mock.transaction_initialized] == [True]
        await mock.begin_transaction()
        await mock.send("orders", b"2")
        await mock.abort_transaction()
        assert (mock.transaction_aborted, mock.transaction_in_flight, mock.uncommitted_records()) == (True, False, [])
        assert mock.commit_count == len(mock.history()) == 2


async def test_an_abort_drops_and_a_commit_acknowledges_what_waits() -> None:
    async with MockProducer(transactional_id="shop", auto_complete=False) as mock:
        await mock.init_transactions()
        for _ in range(2):  # the second one begins after another
            await mock.begin_transaction()
            await mock.partitions_for("orders")
            one, two = mock.enqueue_nowait("orders", b"1"), mock.enqueue_nowait("orders", b"2")
            assert mock.complete_next()
            assert one.done()
            assert not two.done()
            await mock.commit_transaction()
            assert two.done()
        await mock.begin_transaction()
        dropped = mock.enqueue_nowait("orders", b"3")
        await mock.abort_transaction()
        failure = dropped.exception()
        assert isinstance(failure, NotWritten)
        assert isinstance(failure.__cause__, TransactionAborted)


async def test_a_transaction_with_a_failed_record_is_retried() -> None:
    async with MockProducer(transactional_id="shop", auto_complete=False, retry_backoff_ms=0) as mock:

        async def work(txn: Any) -> int:
            delivery = await txn.enqueue("orders", b"1")
            if mock.transaction_aborted is False and not failed:
                failed.append(mock.error_next(KafkaError("refused")))
            else:
                mock.complete_next()
            await delivery
            return len(failed)

        failed: list[bool] = []
        assert await mock.run_in_transaction(work) == 1
        assert (mock.commit_count, len(mock.history())) == (1, 1)


async def test_a_fenced_producer_cannot_go_on() -> None:
    async with MockProducer(transactional_id="shop") as mock:
        await mock.init_transactions()
        await mock.begin_transaction()
        await mock.send("orders", b"1")
        mock.fence()
        with pytest.raises(ProducerFenced):
            await mock.commit_transaction()
        with pytest.raises(ProducerFenced):
            await mock.begin_transaction()
        assert mock.commit_count == 0


async def test_every_call_can_be_made_to_fail() -> None:
    error = KafkaError("as the test wants")
    mock = MockProducer(transactional_id="shop")
    await mock.start()
    calls: list[tuple[Any, Any]] = [
        ("init_transactions", mock.init_transactions),
        ("begin_transaction", mock.begin_transaction),
        ("send", lambda: mock.send("orders", b"1")),
        ("send_offsets_to_transaction", lambda: mock.send_offsets_to_transaction({}, "group")),
        ("flush", mock.flush),
        ("partitions_for", lambda: mock.partitions_for("orders")),
        ("commit_transaction", mock.commit_transaction),
        ("begin_transaction", mock.begin_transaction),
        ("abort_transaction", mock.abort_transaction),
        ("close", mock.close),
    ]
    for name, call in calls:
        mock.fail(name, error)
        with pytest.raises(KafkaError, match="as the test wants"):
            await call()
        mock.fail(name, None)
        await call()
    assert mock.closed
    unknown: Any = "open"
    with pytest.raises(ConfigError, match="open"):
        mock.fail(unknown, error)


async def test_it_is_a_producer_to_its_user() -> None:
    mock = MockProducer(topics={"orders": 2}, auto_create_topics=False)
    assert isinstance(mock, Producer)
    assert not mock.closed
    for _ in range(2):  # it can be entered again
        async with mock as producer:
            await producer.ready()
            await producer.warm_up("orders")
            assert list((await producer.list_topics()).topics) == ["orders"]
            assert producer.health().status == "ready"
            await producer.send("orders", b"1")
            with pytest.raises(NotWrittenTimeout, match="missing"):
                await producer.send("missing", b"1")
            with pytest.raises(InvalidRecord):
                await producer.send("", b"1")
    assert mock.metrics()["record-send-total"] == 2
    assert MockProducer.from_url("kafka://host:9092?linger_ms=1").config.linger_ms == 1
    with pytest.raises(ConfigError, match="FakeBroker"):
        MockProducer.attach(None, "host:9092")


async def test_enqueue_nowait_needs_a_known_topic_as_in_production() -> None:
    async with MockProducer(topics={"orders": 1}) as producer:
        with pytest.raises(MetadataNotReady):
            producer.enqueue_nowait("orders", b"early")
        await producer.enqueue_nowait("orders", b"later")

    assert [record.value for record in producer.history()] == [b"later"]


async def test_a_fault_of_send_fails_a_table() -> None:
    table = pa.table({"value": [b"1", b"2"]})

    async with MockProducer() as producer:
        producer.fail("send", LookupError("no"))
        with pytest.raises(LookupError):
            await producer.send_table("orders", table, value="value")

    assert producer.history() == []
