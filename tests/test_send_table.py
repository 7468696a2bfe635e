"""Tables into topics: `send_table` from the buffers of a table to the log of a broker."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import duckdb
import polars as pl
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from aioproducer import (
    ConfigError,
    Delivery,
    InvalidRecord,
    NotWritten,
    NotWrittenTimeout,
    Producer,
    ProducerClosed,
    ProducerDied,
    RecordTooLarge,
    SendManyError,
    SendManyResult,
    TopicPartition,
    TransactionStateError,
    Unknown,
)
from aioproducer.delivery import ProduceResult
from aioproducer.engine.unobserved import UnobservedFailures
from aioproducer.intake.table import SentBatch, _Chunks, _Pace, _slice_for
from aioproducer.record import _columns_pure, columns
from aioproducer.runtime.foreign import ForeignTasks
from aioproducer.runtime.log import ClientLog
from aioproducer.testing import FakeBroker
from tests.conftest import Clock, opened, until
from tests.real.conftest import read_log

if TYPE_CHECKING:
    from aioproducer.testing.kafka import Kafka
    from aioproducer.testing.plugin import TopicFactory

TWINS = list(dict.fromkeys([columns.ColumnEncoder.__module__, _columns_pure.__name__]))


@pytest.fixture(params=TWINS, ids=lambda name: str(name).rpartition(".")[2])
def twin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each encoder in turn."""
    chosen = import_module(request.param)
    monkeypatch.setattr("aioproducer.intake.table.ColumnEncoder", chosen.ColumnEncoder)
    monkeypatch.setattr(columns, "ArrowSource", chosen.ArrowSource)
    monkeypatch.setattr("aioproducer.record.json_columns.ArrowSource", chosen.ArrowSource)


async def send(producer: Producer, topic: str, table: object, **options: Any) -> SendManyResult:
    return await producer.send_table(topic, table, **options)


def numbers(count: int) -> pa.Table:
    values = [b"%08d" % number for number in range(count)]
    return pa.table({"value": pa.array(values, pa.binary()), "key": [f"key-{number % 50}" for number in range(count)]})


def by_partition(broker: FakeBroker, topic: str = "orders") -> dict[int, list[bytes | None]]:
    found: dict[int, list[bytes | None]] = defaultdict(list)
    for record in broker.records(topic):
        found[record.partition].append(record.value)
    return found


def memory_is_back(producer: Producer) -> bool:
    pool = producer._usable().pool
    return pool.free == pool.total and pool.waiting == 0


# -- what arrives --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("twin")
async def test_every_row_is_sent_once_and_in_order_in_each_partition(broker: FakeBroker) -> None:
    async with opened(broker, batch_size=500) as producer:
        result = await send(producer, "orders", numbers(2000), value="value")

        assert memory_is_back(producer)
    logged = by_partition(broker)
    assert all(values == sorted(values, key=bytes) for values in logged.values())  # type: ignore[arg-type]
    assert sum(map(len, logged.values())) == len({value for values in logged.values() for value in values}) == 2000
    assert (result.count, result.failed, result.unknown, result.serialized_bytes) == (2000, 0, 0, 16_000)
    assert result.offsets == {
        TopicPartition("orders", partition): (0, len(values) - 1) for partition, values in logged.items()
    }
    assert set(logged) == {0, 1, 2}


@pytest.mark.usefixtures("twin")
async def test_a_key_goes_where_it_goes_with_send(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        await send(producer, "orders", numbers(200), value="value", key="key")
        sent = [await producer.enqueue("orders", b"", key=f"key-{number}") for number in range(50)]
        homes = {b"key-%d" % number: (await delivery).partition for number, delivery in enumerate(sent)}

    assert set(homes.values()) == {0, 1, 2}
    assert all(homes[record.key or b""] == record.partition for record in broker.records("orders"))


@pytest.mark.usefixtures("twin")
async def test_keys_headers_timestamps_partitions_and_tombstones_arrive_as_they_were_named(broker: FakeBroker) -> None:
    table = pa.table(
        {
            "id": ["a", None],
            "payload": [None, "v"],
            "at": pa.array([1_700_000_000_000_000, 0], pa.timestamp("us", "UTC")),
            "to": pa.array([2, 1], pa.int32()),
            "trace": ["t-1", None],
        }
    )
    async with opened(broker) as producer:
        result = await send(
            producer,
            "orders",
            table,
            key="id",
            value="payload",
            timestamp="at",
            partition="to",
            headers={"trace": "trace", "source": b"test"},
        )

    assert result.serialized_bytes == 2
    second, first = broker.records("orders")
    assert (first.partition, first.key, first.value, first.timestamp_ms) == (2, b"a", None, 1_700_000_000_000)
    assert first.headers == (("trace", b"t-1"), ("source", b"test"))
    assert (second.partition, second.key, second.value, second.timestamp_ms) == (1, None, b"v", 0)
    assert second.headers == (("trace", None), ("source", b"test"))


@pytest.mark.usefixtures("twin")
async def test_all_rows_may_go_to_one_partition(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        result = await send(producer, "orders", numbers(10), value="value", key="key", partition=1)

    assert result.offsets == {TopicPartition("orders", 1): (0, 9)}


async def test_the_batches_of_a_table_are_as_large_as_those_of_records(broker: FakeBroker) -> None:
    async with opened(broker, batch_size=1000) as producer:
        await send(producer, "orders", numbers(1000), value="value", partition=0)

    counts = [len(batch.records) for batch in broker.batches("orders")]
    assert len(set(counts[:-1])) <= 2
    assert min(counts[:-1]) >= 40


async def test_with_compression_batches_grow_until_they_are_as_large_on_the_wire(broker: FakeBroker) -> None:
    async with opened(broker, batch_size=1000, compression_type="gzip") as producer:
        for _ in range(20):
            await send(producer, "orders", pa.table({"value": ["x" * 50] * 200}), value="value", partition=0)

    counts = [len(batch.records) for batch in broker.batches("orders")]
    assert max(counts) > 2 * counts[0]


@pytest.mark.usefixtures("twin")
async def test_tables_are_compressed_with_the_codec_of_their_topic() -> None:
    codecs = {"logs": "zstd", "images": "none", "*": "lz4"}
    found: dict[str, set[int]] = {}
    with FakeBroker(topics={"logs": 1, "images": 1, "orders": 1}) as broker:
        async with opened(broker, compression_type=codecs) as producer:
            for topic in ("logs", "images", "orders"):
                await send(producer, topic, numbers(1000), value="value")
                found[topic] = {batch.header.codec for batch in broker.batches(topic)}

    assert found == {"logs": {4}, "images": {0}, "orders": {3}}


@pytest.mark.usefixtures("twin")
async def test_an_empty_table_sends_nothing(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        assert await send(producer, "orders", numbers(0), value="value") == SendManyResult()


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize("options", [{"value": "v"}, {"value_format": "json"}], ids=str)
async def test_a_table_of_empty_chunks_lets_the_event_loop_run(broker: FakeBroker, options: dict[str, Any]) -> None:
    chunk = pa.record_batch({"v": pa.array([], pa.string())})
    table = pa.RecordBatchReader.from_batches(chunk.schema, [chunk] * 3000)
    loop, turns, is_sent = asyncio.get_running_loop(), 0, False

    def turn() -> None:
        nonlocal turns
        turns += 1
        if not is_sent:
            loop.call_soon(turn)

    async with opened(broker) as producer:
        await producer.partitions_for("orders")
        loop.call_soon(turn)
        assert (await send(producer, "orders", table, **options)).count == 0
        is_sent = True
        assert turns >= 3000


async def test_polars_and_duckdb_tables_are_sent_as_they_are(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        await send(producer, "orders", pl.DataFrame({"v": ["polars"]}), value="v")
        await send(producer, "orders", duckdb.sql("select 'duckdb' as v"), value="v")

    assert sorted(record.value or b"" for record in broker.records("orders")) == [b"duckdb", b"polars"]


@pytest.mark.usefixtures("twin")
async def test_columns_become_json_objects(broker: FakeBroker) -> None:
    table = pa.table({"id": ["a", "b"], "n": [1, 2], "ok": [True, None]})
    async with opened(broker) as producer:
        await send(producer, "orders", table, key="id", value_format="json", partition=0)
        await send(producer, "orders", table, value=["n", "id"], value_format="json", partition=0)
        await send(producer, "orders", table, value="n", value_format="json", partition=0)

    assert [json.loads(record.value or b"") for record in broker.records("orders")] == [
        {"n": 1, "ok": True},
        {"n": 2, "ok": None},
        {"n": 1, "id": "a"},
        {"n": 2, "id": "b"},
        {"n": 1},
        {"n": 2},
    ]
    assert [record.key for record in broker.records("orders")][:2] == [b"a", b"b"]


async def test_progress_is_reported_and_the_last_of_it_is_the_result(broker: FakeBroker) -> None:
    progress: list[SendManyResult] = []
    async with opened(broker) as producer:
        result = await send(producer, "orders", numbers(1000), value="value", on_progress=progress.append)

    assert progress[-1] == result
    assert result.count == 1000


async def test_an_exception_of_on_progress_is_logged_and_changes_nothing(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    def on_progress(result: SendManyResult) -> None:
        raise ValueError("a bug")

    async with opened(broker) as producer:
        assert (await send(producer, "orders", numbers(10), value="value", on_progress=on_progress)).count == 10
        with pytest.raises(InvalidRecord, match="Invalid on_progress=1: must be a function"):
            await send(producer, "orders", numbers(10), value="value", on_progress=1)
        with pytest.raises(
            InvalidRecord, match=r"on_progress=<function sleep .*> is async, but nothing would await it"
        ):
            await send(producer, "orders", numbers(10), value="value", on_progress=asyncio.sleep)

    assert "on_progress raised for send_table to 'orders'" in caplog.text
    assert "a bug" in caplog.text


async def test_without_acknowledgements_no_offsets_are_reported(broker: FakeBroker) -> None:
    async with opened(broker, acks=0, enable_idempotence=False) as producer:
        result = await send(producer, "orders", numbers(100), value="value")

        assert (result.count, result.offsets) == (100, {})
        await until(lambda: len(broker.records("orders")) == 100)


async def test_a_batch_that_the_broker_finds_too_large_is_split_and_counted_as_one(broker: FakeBroker) -> None:
    async with opened(broker, batch_size=2000) as producer:
        broker.fail("Produce", "MESSAGE_TOO_LARGE", times=1)
        result = await send(producer, "orders", numbers(90), value="value", partition=0)

    assert (result.count, result.serialized_bytes) == (90, 720)
    assert result.offsets == {TopicPartition("orders", 0): (0, 89)}
    assert [record.value for record in broker.records("orders")] == [b"%08d" % number for number in range(90)]


async def test_records_of_send_and_of_tables_share_a_partition_in_order(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        before = await producer.enqueue("orders", b"before", partition=0)
        await send(producer, "orders", numbers(3), value="value", partition=0)
        await producer.send("orders", b"behind", partition=0)
        await before

    assert [record.value for record in broker.records("orders")] == [
        b"before",
        b"00000000",
        b"00000001",
        b"00000002",
        b"behind",
    ]


# -- the worker thread ---------------------------------------------------------------------------------------------------


class Chunk(NamedTuple):
    num_rows: int


class GatedSource:
    """A table whose every chunk must be let through."""

    fields = ()

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.asked = threading.Semaphore(0)
        self.allowed = threading.Semaphore(0)
        self.reads = 0
        self.is_closed = False

    def read(self) -> Chunk | None:
        self.asked.release()
        assert self.allowed.acquire(timeout=50)
        self.reads += 1
        return None if self.is_closed else Chunk(self.rows)

    def close(self) -> None:
        self.is_closed = True


class LateExecutor(ThreadPoolExecutor):
    """Reports the end of a call late, once it is set to be late."""

    is_late = False

    def __init__(self) -> None:
        super().__init__(max_workers=8)
        self.end = threading.Event()

    def submit(self, call: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        def late() -> Any:
            try:
                return call(*args, **options)
            finally:
                if self.is_late:
                    self.end.wait(50)

        return super().submit(late)


async def test_a_thread_that_has_read_enough_is_followed_by_another_before_it_is_seen_to_be_over(
    broker: FakeBroker,
) -> None:
    executor = LateExecutor()
    asyncio.get_running_loop().set_default_executor(executor)

    def batches() -> Iterator[pa.RecordBatch]:
        executor.is_late = True
        for _ in range(3):
            yield pa.record_batch({"v": pa.nulls(66_000, pa.binary())})

    table = pa.RecordBatchReader.from_batches(pa.schema([("v", pa.binary())]), batches())
    try:
        async with opened(broker) as producer, asyncio.timeout(45):
            assert (await send(producer, "orders", table, value="v")).count == 198_000
    finally:
        executor.end.set()


async def test_a_chunk_that_is_reported_late_and_taken_already_is_not_mistaken_for_the_next_one() -> None:
    source = GatedSource(1)
    chunks = _Chunks(source, asyncio.get_running_loop())
    waiting = asyncio.create_task(chunks.wait_ready(None))
    await asyncio.sleep(0)
    source.allowed.release()  # the event is to be set by this one,
    for _ in range(2):
        assert source.asked.acquire(timeout=50)  # the event loop is not to run now
    chunks.take()  # which is gone before anybody sees that

    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    source.allowed.release()
    assert await waiting
    assert chunks.take() == Chunk(1)

    chunks.close()
    source.allowed.release()


async def test_however_slowly_the_chunks_are_taken_few_are_read_ahead() -> None:
    source = GatedSource(1000)
    source.allowed.release(100_000)
    chunks = _Chunks(source, asyncio.get_running_loop())
    for taken in range(1, 20):
        await until(lambda: not chunks._is_reading)
        assert await chunks.wait_ready(None)
        chunks.take()
        assert source.reads <= taken + 66


# -- memory and time -----------------------------------------------------------------------------------------------------

TIGHT: dict[str, Any] = {"buffer_memory": 20_000, "max_request_size": 10_000, "batch_size": 2000}


@pytest.mark.usefixtures("twin")
async def test_a_table_many_times_larger_than_the_buffer_memory_is_sent_within_it(broker: FakeBroker) -> None:
    async with opened(broker, **TIGHT) as producer:
        result = await send(producer, "orders", numbers(10_000), value="value", key="key")

        assert memory_is_back(producer)
    assert result.count == 10_000


async def test_many_tables_and_senders_share_little_memory_without_standing_in_each_others_way() -> None:
    with FakeBroker(topics={"wide": 40}) as broker:
        async with opened(broker, **TIGHT) as producer, asyncio.timeout(50):
            records = [asyncio.create_task(producer.send("wide", b"x" * 9000, partition=3)) for _ in range(10)]
            tables = [send(producer, "wide", numbers(1500), value="value", key="key") for _ in range(4)]
            results = await asyncio.gather(*tables)
            await asyncio.wait(records)

            assert memory_is_back(producer)
        assert [result.count for result in results] == [1500] * 4
        assert len(broker.records("wide")) == 4 * 1500 + 10


def pace_of(*sizes: int) -> tuple[_Pace, list[ProduceResult]]:
    """A pace that was given a batch of each size, and their outcomes."""
    loop = asyncio.get_running_loop()
    log = ClientLog("test")
    pace, sink = _Pace(loop), UnobservedFailures(loop, None, ForeignTasks(loop, log), log)
    results = [ProduceResult(TopicPartition("orders", 0), sink) for _ in sizes]
    for result, size in zip(results, sizes, strict=True):
        pace.expect(SentBatch(result, 1, size), size)
    return pace, results


async def test_rows_are_encoded_no_further_ahead_than_the_brokers_can_be_sent() -> None:
    pace, results = pace_of(100, 100, 100, 100)
    await pace.wait(400)
    waiting = asyncio.create_task(pace.wait(300))
    for result in results[1:]:
        result.succeed(0, -1)
        await asyncio.sleep(0)

    assert not waiting.done()
    results[0].succeed(0, -1)
    await waiting


async def test_a_partition_that_is_stalled_does_not_keep_the_others_waiting_for_long() -> None:
    clock = Clock()
    pace, _ = pace_of(100, 100)
    waiting = asyncio.create_task(pace.wait(100))
    await asyncio.sleep(0)
    clock.advance(1)
    await waiting

    await pace.wait(100)  # it is not waited for again


async def test_a_table_is_sent_through_the_smallest_window(broker: FakeBroker) -> None:
    small: dict[str, Any] = {"max_in_flight_requests_per_connection": 1, "max_request_size": 1000, "batch_size": 500}
    async with opened(broker, **small) as producer:
        result = await send(producer, "orders", numbers(300), value="value", key="key")

        assert memory_is_back(producer)
    assert result.count == len(broker.records("orders")) == 300


async def test_a_table_that_finds_no_room_ends_in_its_time_with_the_number_of_accepted_rows(broker: FakeBroker) -> None:
    async with opened(broker, **TIGHT) as producer:
        await producer.partitions_for("orders")
        with broker.hold("Produce") as held:
            sending = asyncio.create_task(send(producer, "orders", numbers(10_000), value="value", timeout=0.05))
            await until(lambda: producer._usable().metrics.buffer_exhausted_total)
            held.release()
            with pytest.raises(SendManyError) as caught:
                await sending

        assert memory_is_back(producer)
    assert isinstance(caught.value.error, NotWrittenTimeout)
    assert "no room in buffer_memory" in str(caught.value)
    assert caught.value.result.count == len(broker.records("orders")) < 10_000
    assert caught.value.result.failed == 0
    assert f"Row {caught.value.result.count} of the table was not accepted" in str(caught.value.error)


async def test_an_unknown_topic_ends_in_its_time_as_not_written() -> None:
    async with opened("127.0.0.1:1") as producer:
        with pytest.raises(
            SendManyError, match=r"Row 0 .* not accepted within 0\.1 s, because the partitions"
        ) as caught:
            await send(producer, "orders", numbers(3), value="value", timeout=0.1)

    assert isinstance(caught.value.error, NotWrittenTimeout)


async def test_a_table_that_waits_for_room_ends_with_the_producer(broker: FakeBroker) -> None:
    async with opened(broker, **TIGHT) as producer:
        with broker.hold("Produce"):
            sending = asyncio.create_task(send(producer, "orders", numbers(10_000), value="value"))
            await until(lambda: producer._usable().pool.waiting)
            await producer.close(timeout=0.05)

            with pytest.raises(ProducerClosed):
                await sending


async def test_a_table_that_waits_for_its_source_ends_with_the_producer(broker: FakeBroker) -> None:
    goes_on = threading.Event()

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"v": ["a"]})
        goes_on.wait(50)

    async with opened(broker) as producer:
        table = pa.RecordBatchReader.from_batches(pa.schema([("v", pa.string())]), batches())
        sending = asyncio.create_task(send(producer, "orders", table, value="v"))
        await until(lambda: broker.records("orders"))
        await producer.close(timeout=1)

        with pytest.raises(ProducerClosed):
            await asyncio.wait_for(sending, 20)
    goes_on.set()


@pytest.mark.parametrize(("ends", "error"), [("closed", ProducerClosed), ("died", ProducerDied)])
async def test_a_table_never_succeeds_although_rows_of_it_were_not_sent(
    broker: FakeBroker, ends: str, error: type[Exception]
) -> None:
    goes_on = threading.Event()

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"v": ["x"] * 100})
        assert goes_on.wait(50)

    async with opened(broker, linger_ms=10_000) as producer:
        await producer.partitions_for("orders")
        engine = producer._usable()
        table = pa.RecordBatchReader.from_batches(pa.schema([("v", pa.string())]), batches())
        sending = asyncio.create_task(send(producer, "orders", table, value="v"))
        await until(lambda: engine.pool.used)
        if ends == "closed":
            await producer.close()
        else:
            engine._die(RuntimeError("a bug"))
        goes_on.set()

        with pytest.raises(error):
            await asyncio.wait_for(sending, 20)
        assert engine.pool.free == engine.pool.total
    assert broker.records("orders") == []


async def test_the_last_rows_wait_for_those_who_waited_for_the_topic_before(broker: FakeBroker) -> None:
    goes_on = threading.Event()

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"v": ["x"] * 100})
        assert goes_on.wait(50)

    async with opened(broker, linger_ms=10_000) as producer:
        await producer.partitions_for("orders")
        engine = producer._usable()
        table = pa.RecordBatchReader.from_batches(pa.schema([("v", pa.string())]), batches())
        sending = asyncio.create_task(send(producer, "orders", table, value="v"))
        await until(lambda: engine.pool.used)
        earlier = object()
        line: dict[object, int | None] = {earlier: None}
        engine.client._topic_waiters["orders"] = line
        goes_on.set()
        await until(lambda: len(line) == 2 or sending.done())
        del line[earlier]

        assert (await sending).count == 100
        assert engine.pool.free == engine.pool.total


async def test_a_table_that_waits_for_its_source_leaves_the_memory_to_others(broker: FakeBroker) -> None:
    goes_on = threading.Event()

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"v": ["x"] * 1000})
        assert goes_on.wait(50)

    async with opened(broker) as producer:
        table = pa.RecordBatchReader.from_batches(pa.schema([("v", pa.string())]), batches())
        sending = asyncio.create_task(send(producer, "orders", table, value="v"))
        await until(lambda: len(broker.records("orders")) == 1000)
        await producer.flush(30)

        assert memory_is_back(producer)
        goes_on.set()
        assert (await sending).count == 1000


async def test_a_failure_while_rows_are_encoded_gives_the_memory_back_once(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(broker, batch_size=500) as producer:
        accumulator = producer._usable().accumulator
        choose, turns = accumulator.sticky_partition, itertools.count()

        def fail_later(*args: Any) -> int:
            if next(turns) == 3:
                raise MemoryError("no more")
            return choose(*args)

        # Patched: this is where memory may really run out in the middle, and no argument leads there.
        monkeypatch.setattr(accumulator, "sticky_partition", fail_later)
        with pytest.raises(MemoryError, match="no more"):
            await send(producer, "orders", numbers(1000), value="value")

        assert memory_is_back(producer)
    assert len(broker.batches("orders")) == 3


# -- what goes wrong -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "value= is missing"),
        ({"value": "vlaue"}, "Did you mean 'value'?"),
        ({"value": "value", "key": "id"}, "no such column"),
        ({"value": ["value"]}, r"Invalid value=\['value'\]: must be one column"),
        ({"value": "value", "value_format": "avro"}, "value_format='avro': must be 'json'"),
        ({"value_format": "json"}, "'value' is binary, which JSON cannot represent"),
        ({"value": "value", "partition": -1}, "partition=-1"),
        ({"value": "value", "headers": 5}, "headers=5: must be a mapping from header names"),
        ({"value": "value", "headers": b"key"}, "headers=b'key': must be a mapping"),
        ({"value": "value", "headers": iter(["key"])}, "headers=<list_iterator .*>: must be a mapping"),
        ({"value_format": "json", "value": ["key"], "headers": [5]}, r"headers=\[5\]: must be a mapping"),
        (
            {"value_format": "json", "value": 5},
            "value=5: with value_format='json' it must be a column, a list of columns",
        ),
        ({"value_format": "json", "value": b"key"}, "value=b'key': with value_format='json'"),
        ({"value_format": "json", "value": [["key"]]}, r"value=\['key'\]: must be the name of a column"),
        ({"value_format": "json", "value": "key", "key": "id"}, "no such column. Its columns are 'value', 'key'.$"),
        ({"value_format": "json", "value": "key", "key": ""}, "key='': the table has no such column"),
    ],
)
async def test_columns_that_do_not_fit_are_refused_before_anything_is_sent(
    broker: FakeBroker, options: dict[str, Any], message: str
) -> None:
    async with opened(broker) as producer:
        with pytest.raises(InvalidRecord, match=message):
            await send(producer, "orders", numbers(10), **options)

        assert memory_is_back(producer)
    assert broker.count("Produce") == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key_serializer": str.encode}, "this producer has key_serializer=: use"),
        ({"value_serializer": str.encode}, "this producer has value_serializer="),
        (
            {"interceptors": [type("Sees", (), {"on_send": lambda self, record: record})()]},
            "this producer has interceptors=",
        ),
        ({"partitioner": "round_robin"}, "cannot call partitioner='round_robin' for every row: use send_many"),
    ],
)
async def test_a_producer_that_looks_at_every_record_is_pointed_to_send_many(
    broker: FakeBroker, options: dict[str, Any], message: str
) -> None:
    async with opened(broker, **options) as producer:
        with pytest.raises(ConfigError, match=message):
            await send(producer, "orders", numbers(10), value="value")


async def test_with_a_partitioner_all_rows_may_still_go_to_one_partition(broker: FakeBroker) -> None:
    async with opened(broker, partitioner="round_robin") as producer:
        assert (await send(producer, "orders", numbers(10), value="value", partition=2)).count == 10


async def test_a_table_takes_the_default_partitioner_by_its_other_name(broker: FakeBroker) -> None:
    async with opened(broker, partitioner="murmur2_random") as producer:
        assert (await send(producer, "orders", numbers(10), value="value")).count == 10


async def test_the_error_of_json_without_its_libraries_names_the_package(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "orjson", None)
    async with opened(broker) as producer:
        with pytest.raises(ConfigError, match=r"orjson is missing: pip install 'aioproducer\[arrow\]'"):
            await send(producer, "orders", numbers(1), value_format="json")


@pytest.mark.parametrize(
    ("send_buffer_bytes", "size"), [(131_072, 262_144), (4_096, 131_072), (1 << 30, 1 << 20), (-1, 1 << 20)]
)
def test_as_much_is_encoded_at_a_time_as_a_socket_takes_at_a_time(send_buffer_bytes: int, size: int) -> None:
    assert _slice_for(send_buffer_bytes) == size


@pytest.mark.usefixtures("twin")
async def test_a_row_that_is_too_large_is_named_and_those_of_the_slices_before_it_are_sent(broker: FakeBroker) -> None:
    table = pa.table({"value": pa.chunked_array([["x"] * 10, ["y", "x" * 20_000, "z"]])})
    async with opened(broker, **TIGHT) as producer:
        with pytest.raises(SendManyError, match="Row 11 of the table takes up to 20097 bytes") as caught:
            await send(producer, "orders", table, value="value")

        assert memory_is_back(producer)
    assert isinstance(caught.value.error, RecordTooLarge)
    assert caught.value.result.count == 10
    assert [record.value for record in broker.records("orders")] == [b"x"] * 10


async def test_a_partition_that_the_topic_does_not_have_stops_the_table(broker: FakeBroker) -> None:
    table = pa.table({"value": ["a", "b"], "to": [0, 7]})
    async with opened(broker) as producer:
        with pytest.raises(SendManyError, match="7") as caught:
            await send(producer, "orders", table, value="value", partition="to")
        with pytest.raises(SendManyError):
            await send(producer, "orders", table, value="value", partition=7)

        assert memory_is_back(producer)
    assert isinstance(caught.value.error, InvalidRecord)
    assert broker.records("orders") == []


async def test_rows_for_a_partition_that_is_new_wait_until_it_is_known(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        await producer.partitions_for("orders")
        broker.add_partitions("orders", 5)
        result = await send(producer, "orders", pa.table({"value": ["a"], "to": [4]}), value="value", partition="to")

    assert result.offsets == {TopicPartition("orders", 4): (0, 0)}


async def test_a_batch_that_is_refused_stops_the_rest_and_is_counted(broker: FakeBroker) -> None:
    async with opened(broker, **TIGHT) as producer:
        broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", times=1)
        with pytest.raises(SendManyError, match="TOPIC_AUTHORIZATION_FAILED") as caught:
            await send(producer, "orders", numbers(20_000), value="value", partition=0)

        assert memory_is_back(producer)
    result = caught.value.result
    assert isinstance(caught.value.error, NotWritten)
    assert result.failed > 0
    assert result.count + result.failed < 20_000
    assert result.count == len(broker.records("orders"))


async def test_a_batch_whose_answer_never_came_is_counted_as_unknown(broker: FakeBroker) -> None:
    async with opened(broker, delivery_timeout_ms=200, request_timeout_ms=150, linger_ms=0) as producer:
        await producer.partitions_for("orders")
        with broker.hold("Produce"), pytest.raises(SendManyError) as caught:
            await send(producer, "orders", numbers(100), value="value", partition=0)

    assert isinstance(caught.value.error, Unknown)
    assert (caught.value.result.count, caught.value.result.unknown) == (0, 100)


@pytest.mark.usefixtures("twin")
async def test_an_exception_raised_by_a_table_is_passed_on_and_the_rows_before_it_are_sent(broker: FakeBroker) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"v": ["a", "b"]})
        raise RuntimeError("the disk is gone")

    table = pa.RecordBatchReader.from_batches(pa.schema([("v", pa.string())]), batches())
    async with opened(broker) as producer:
        with pytest.raises(OSError, match="the disk is gone"):
            await send(producer, "orders", table, value="v")

        assert memory_is_back(producer)
    assert len(broker.records("orders")) == 2


@pytest.mark.usefixtures("twin")
async def test_rows_do_not_wait_for_a_table_that_is_slow_to_make_more(broker: FakeBroker) -> None:
    goes_on = threading.Event()

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"v": ["a", "b"]})
        yield pa.record_batch({"v": ["c"]})
        assert goes_on.wait(50)
        yield pa.record_batch({"v": ["d"]})

    table = pa.RecordBatchReader.from_batches(pa.schema([("v", pa.string())]), batches())
    async with opened(broker) as producer:
        sending = asyncio.create_task(send(producer, "orders", table, value="v"))
        await until(lambda: len(broker.records("orders")) == 3)
        assert not sending.done()
        goes_on.set()
        assert (await sending).count == 4


# -- cancellation --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("twin")
async def test_cancelled_anywhere_it_leaves_no_memory_behind_and_no_half_of_a_batch(broker: FakeBroker) -> None:
    async with opened(broker, **TIGHT) as producer:
        await producer.partitions_for("orders")
        for steps in range(0, 60, 3):
            sending = asyncio.create_task(send(producer, "orders", numbers(3000), value="value", partition=0))
            for _ in range(steps):
                await asyncio.sleep(0)
            sending.cancel()
            await asyncio.wait([sending])
            await producer.flush(30)

            assert sending.cancelled()
            assert memory_is_back(producer)
    values = [int(record.value or b"") for record in broker.records("orders")]
    assert all(b == a + 1 or b == 0 for a, b in itertools.pairwise(values))


class SlowToOpen:
    """A table that takes until ``goes_on`` to hand out its stream."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.is_asked = threading.Event()
        self.goes_on = threading.Event()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        self.is_asked.set()
        assert self.goes_on.wait(50)
        return self.table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("fails", [False, True])
async def test_a_table_that_is_opened_after_a_cancellation_is_closed(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    closed: list[object] = []

    class Source(_columns_pure.ArrowSource):
        def close(self) -> None:
            closed.append(self)
            super().close()

    monkeypatch.setattr(columns, "ArrowSource", Source)  # a source has no public sign of being closed
    table = SlowToOpen(numbers(3))
    async with opened(broker) as producer:
        sending = asyncio.create_task(send(producer, "orders", table, value="missing" if fails else "value"))
        await until(table.is_asked.is_set)
        sending.cancel()
        await asyncio.wait([sending])
        table.goes_on.set()
        await until(lambda: closed)

    assert sending.cancelled()


async def test_a_table_that_is_being_opened_ends_with_the_producer(broker: FakeBroker) -> None:
    table = SlowToOpen(numbers(3))
    async with opened(broker) as producer:
        sending = asyncio.create_task(send(producer, "orders", table, value="value"))
        await until(table.is_asked.is_set)
        await producer.close()

        with pytest.raises(ProducerClosed):
            await asyncio.wait_for(sending, 20)
    table.goes_on.set()


async def test_rows_handed_over_before_a_cancellation_are_delivered_all_the_same(broker: FakeBroker) -> None:
    async with opened(broker, **TIGHT) as producer:
        with broker.hold("Produce"):
            sending = asyncio.create_task(send(producer, "orders", numbers(10_000), value="value", partition=0))
            await until(lambda: producer._usable().pool.waiting)
            pending = producer._usable().accumulator.pending_records
            sending.cancel()
            await asyncio.wait([sending])
        await producer.flush(30)

    assert len(broker.records("orders")) == pending > 0


async def test_a_failure_after_a_cancellation_goes_to_on_delivery_error(broker: FakeBroker) -> None:
    failures: list[Delivery] = []
    async with opened(broker, **TIGHT, on_delivery_error=failures.append) as producer:
        await producer.partitions_for("orders")
        broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", times=None)
        with broker.hold("Produce"):
            sending = asyncio.create_task(send(producer, "orders", numbers(10_000), value="value", partition=0))
            await until(lambda: producer._usable().pool.waiting)
            pending = producer._usable().accumulator.pending_records
            sending.cancel()
            await asyncio.wait([sending])
        await producer.flush(30)
        await until(lambda: len(failures) == pending)


async def test_rows_that_failed_before_a_table_raised_go_to_on_delivery_error(broker: FakeBroker) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"v": ["a", "b"]})
        raise RuntimeError("the disk is gone")

    table = pa.RecordBatchReader.from_batches(pa.schema([("v", pa.string())]), batches())
    failures: list[Delivery] = []
    async with opened(broker, on_delivery_error=failures.append) as producer:
        broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", times=None)
        with pytest.raises(OSError, match="the disk is gone"):
            await send(producer, "orders", table, value="v")
        await until(lambda: len(failures) == 2)


async def test_rows_that_failed_before_a_cancellation_go_to_on_delivery_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioproducer.intake.table._PROGRESS_INTERVAL", 0.0)
    table = pa.table({"v": ["a", "b"], "p": [0, 1]})
    failures: list[Delivery] = []
    counted: list[SendManyResult] = []
    with FakeBroker(2, topics={"orders": 2}) as broker:
        async with opened(broker, on_delivery_error=failures.append) as producer:
            broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", topic="orders", partition=0)
            with broker.hold("Produce", topic="orders", partition=1):
                sending = asyncio.create_task(
                    send(producer, "orders", table, value="v", partition="p", on_progress=counted.append)
                )
                await until(lambda: counted and counted[-1].failed)
                assert not failures
                sending.cancel()
                await asyncio.wait([sending])
            await until(lambda: len(failures) == 1)


# -- real Kafka ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("options", [{}, {"compression_type": "zstd"}, {"batch_size": 900_000}], ids=str)
async def test_real_kafka_has_every_row_once_and_in_order(
    kafka: Kafka, kafka_topic: TopicFactory, options: dict[str, Any]
) -> None:
    topic = kafka_topic(6)
    table = numbers(200_000)

    async with opened(kafka.bootstrap_servers, **options) as producer:
        result = await send(producer, topic, table, value="value", key="key", headers={"source": b"table"})

    log = await asyncio.to_thread(read_log, kafka, topic)
    assert (
        result.count
        == sum(map(len, log.values()))
        == len({value for found in log.values() for value in found})
        == 200_000
    )
    assert all(found == sorted(found) for found in log.values())
    assert result.offsets == {
        TopicPartition(topic, partition): (0, len(found) - 1) for partition, found in log.items() if found
    }


@pytest.mark.parametrize("versions", ["3.9.2", "4.3.1"])
async def test_a_table_is_part_of_the_open_transaction_and_of_none_where_that_is_over(versions: str) -> None:
    table = pa.table({"value": [b"%d" % number for number in range(1000)]})
    with FakeBroker(topics={"orders": 3}, versions=versions) as broker:
        async with opened(broker, transactional_id="shop") as producer:
            with pytest.raises(TransactionStateError):
                await producer.send_table("orders", table, value="value")
            async with producer.transaction() as txn:
                await txn.send_table("orders", table, value="value")
            with suppress(LookupError):
                async with producer.transaction() as txn:
                    await txn.send_table("orders", table, value="value")
                    raise LookupError
            with pytest.raises(TransactionStateError):
                await producer.send_table("orders", table, value="value")
            assert producer.metrics()["buffer-available-bytes"] == producer.metrics()["buffer-total-bytes"]

        assert len(broker.records("orders", committed=True)) == 1000
        assert len(broker.records("orders")) == 2000
