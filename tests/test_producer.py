"""The producer as its users see it, on a broker that checks what it gets."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import pickle
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from fractions import Fraction
from functools import partial
from itertools import pairwise
from math import inf
from typing import Any
from zlib import crc32

import pytest

from aioproducer import (
    BufferFull,
    ConfigError,
    Delivery,
    Health,
    HealthStatus,
    InvalidRecord,
    JsonSerializer,
    KafkaTimeoutError,
    MetadataNotReady,
    NotStarted,
    NotWritten,
    NotWrittenTimeout,
    Producer,
    ProducerClosed,
    ProducerRecord,
    RecordTooLarge,
    SendManyError,
    SendManyResult,
    SerializationError,
    SyncProducer,
    TopicPartition,
    Unknown,
    UnknownTimeout,
    WrongEventLoop,
)
from aioproducer.config import CompressionType, PartitionerName
from aioproducer.core.partitioner import fnv1a
from aioproducer.errors import DeliveryError
from aioproducer.record import Codec, partition_for_key
from aioproducer.testing import FakeBroker, Hangup
from tests.conftest import opened, turns, until


async def test_a_record_is_sent_and_its_metadata_tell_where_it_is(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        metadata = await producer.send(
            "orders", b"value", key=b"key", headers={"trace": b"1"}, partition=2, timestamp_ms=1234
        )

    assert (metadata.topic, metadata.partition, metadata.offset, metadata.timestamp_ms) == ("orders", 2, 0, 1234)
    assert (metadata.serialized_key_size, metadata.serialized_value_size) == (3, 5)
    (record,) = broker.records("orders")
    assert (record.key, record.value, record.timestamp_ms) == (b"key", b"value", 1234)
    assert list(record.headers) == [("trace", b"1")]


async def test_text_is_utf8_and_none_is_null(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        await producer.send("orders", "grün", key=None, partition=0)
        await producer.send("orders", None, key="schlüssel", partition=0)

    assert [(record.key, record.value) for record in broker.records("orders")] == [
        (None, "grün".encode()),
        ("schlüssel".encode(), None),
    ]


async def test_a_record_is_accepted_at_once_and_acknowledged_later(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        await producer.partitions_for("orders")
        with broker.hold("Produce"):
            delivery = await producer.enqueue("orders", b"value")
            assert not delivery.done()

        assert (await delivery).offset == 0


async def test_records_of_one_partition_keep_their_order(broker: FakeBroker) -> None:
    async with opened(broker, linger_ms=0, batch_size=200) as producer:
        deliveries = [await producer.enqueue("orders", str(number), partition=1) for number in range(1000)]
        offsets = [(await delivery).offset for delivery in deliveries]

    assert offsets == list(range(1000))
    assert [record.value for record in broker.records("orders", 1)] == [str(n).encode() for n in range(1000)]


async def test_a_key_decides_the_partition_as_in_java(broker: FakeBroker) -> None:
    keys = [b"", b"21", b"foobar", "ключ".encode(), b"\xff\x00"]
    async with opened(broker) as producer:
        chosen = [(await producer.send("orders", b"", key=key)).partition for key in keys]

    assert chosen == [partition_for_key(key, 3) for key in keys]


async def test_a_whole_record_may_be_sent(broker: FakeBroker) -> None:
    record = ProducerRecord("orders", b"v", b"k", (("h", None), ("h", b"2")), 0, 5)
    async with opened(broker) as producer:
        await producer.send(record)
        with pytest.raises(InvalidRecord, match="pass it alone"):
            await producer.send(record, b"another value")

    assert list(broker.records("orders")[0].headers) == [("h", None), ("h", b"2")]


async def test_many_tasks_send_at_the_same_time(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        sent = await asyncio.gather(*(producer.send("orders", str(number)) for number in range(500)))

    assert len({(each.partition, each.offset) for each in sent}) == 500
    assert len(broker.records("orders")) == 500
    assert broker.count("Produce") < 100, "records that are sent together travel together"


async def test_flush_waits_for_everything_and_nothing_lingers_meanwhile(broker: FakeBroker) -> None:
    async with opened(broker, linger_ms=60_000) as producer:
        deliveries = [await producer.enqueue("orders", str(number), partition=0) for number in range(10)]
        await producer.flush(timeout=30)

        assert all(delivery.done() for delivery in deliveries)


async def test_flush_times_out_if_given_a_timeout(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        with broker.hold("Produce"):
            await producer.enqueue("orders", b"value")
            with pytest.raises(KafkaTimeoutError, match="1 record"):
                await producer.flush(timeout=0.05)


async def test_flushing_in_a_delivery_callback_does_not_deadlock(broker: FakeBroker) -> None:
    flushed: list[asyncio.Task[None]] = []
    async with opened(broker) as producer:
        await producer.send(
            "orders", b"value", on_delivery=lambda _: flushed.append(asyncio.create_task(producer.flush(30)))
        )
        await until(lambda: flushed)
        await flushed[0]


async def test_send_many_keeps_the_order_and_returns_the_offsets(broker: FakeBroker) -> None:
    progress: list[SendManyResult] = []

    async def numbers() -> AsyncIterator[object]:
        for number in range(100):
            yield str(number)

    async with opened(broker) as producer:
        result = await producer.send_many("orders", numbers(), partition=0, on_progress=progress.append)
        more = await producer.send_many("orders", (str(n) for n in range(50)), key=lambda item: item)

    assert (result.count, result.serialized_bytes) == (100, 190)
    assert list(result.offsets.values()) == [(0, 99)]
    assert progress[-1] == result
    assert more.count == 50
    assert [r.value for r in broker.records("orders", 0)][:100] == [str(n).encode() for n in range(100)]


async def test_send_many_stops_at_a_record_that_fails_and_reports_how_far_it_came(broker: FakeBroker) -> None:
    def values() -> Iterator[object]:
        yield b"good"
        yield b"x" * 2_000_000
        raise AssertionError("it should not be read any further")

    async with opened(broker) as producer:
        with pytest.raises(SendManyError) as caught:
            await producer.send_many("orders", values())

    assert caught.value.result.count == 1
    assert isinstance(caught.value.error, RecordTooLarge)


async def test_the_partitions_of_a_topic_can_be_asked_for(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        partitions = await producer.partitions_for("orders")

    assert [(each.partition, each.leader) for each in partitions] == [(0, 1), (1, 1), (2, 1)]


async def test_a_topic_that_stays_unknown_is_reported_with_the_reason() -> None:
    with FakeBroker(auto_create_topics=False) as broker:
        async with opened(broker) as producer:
            await producer.ready(timeout=30)
            with pytest.raises(KafkaTimeoutError, match=r"'nope' were not known in time: UNKNOWN_TOPIC_OR_PARTITION"):
                await producer.partitions_for("nope", timeout=0.1)
    async with opened("127.0.0.1:1") as producer:
        with pytest.raises(
            KafkaTimeoutError,
            match=r"no broker is connected \(bootstrap servers 127\.0\.0\.1:1\): .*Could not connect to",
        ):
            await producer.partitions_for("orders", timeout=0.2)


async def test_ready_returns_when_a_broker_has_answered(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        await producer.ready(timeout=30)

        assert producer.health().status is HealthStatus.READY
        assert producer.health().ready


async def test_entering_waits_for_no_broker_and_ready_raises_the_reason() -> None:
    async with opened("127.0.0.1:1") as producer:
        assert producer.health().status is HealthStatus.STARTING
        with pytest.raises(KafkaTimeoutError) as caught:
            await producer.ready(timeout=0.2)

    assert "127.0.0.1:1" in str(caught.value) or "127.0.0.1:1" in str(caught.value.__cause__)


async def test_a_send_without_a_broker_ends_in_its_time_as_not_written() -> None:
    async with opened("127.0.0.1:1") as producer:
        with pytest.raises(NotWrittenTimeout, match=r"not accepted within 0\.2 s"):
            await producer.send("orders", b"value", timeout=0.2)


async def test_a_send_that_is_not_acknowledged_in_its_time_ends_as_unknown_and_continues(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        await producer.partitions_for("orders")
        with broker.hold("Produce"), pytest.raises(UnknownTimeout, match="still being sent"):
            await producer.send("orders", b"value", timeout=0.1)
        await producer.flush(30)

    assert len(broker.records("orders")) == 1


async def test_enqueue_nowait_raises_instead_of_waiting(broker: FakeBroker) -> None:
    async with opened(broker, buffer_memory=5000, batch_size=1000, max_request_size=2000) as producer:
        with pytest.raises(MetadataNotReady):
            producer.enqueue_nowait("orders", b"value")
        await producer.partitions_for("orders")
        with broker.hold("Produce"):
            accepted = 0
            with suppress(BufferFull):
                for accepted in range(100):  # noqa: B007 - how many were accepted before it raised
                    producer.enqueue_nowait("orders", b"x" * 500)
            with pytest.raises(BufferFull, match="bytes are in use"):
                producer.enqueue_nowait("orders", b"x" * 500)
        await producer.flush(30)

        assert len(broker.records("orders")) == accepted > 3


async def test_a_full_buffer_makes_senders_wait_and_serves_them_in_order(broker: FakeBroker) -> None:
    async with opened(broker, buffer_memory=5000, batch_size=1000, max_request_size=2000) as producer:
        await producer.partitions_for("orders")
        with broker.hold("Produce"):
            tasks = [
                asyncio.create_task(producer.enqueue("orders", f"{number:0500}", partition=0)) for number in range(50)
            ]
            await until(lambda: producer.health().waiting_senders > 30)
        deliveries = await asyncio.gather(*tasks)
        await asyncio.gather(*deliveries)
        metrics = producer.metrics()

    assert [int(record.value or b"") for record in broker.records("orders", 0)] == list(range(50))
    assert metrics["buffer-available-bytes"] == metrics["buffer-total-bytes"] == 5000


async def test_no_send_overtakes_those_that_wait_for_a_topic(broker: FakeBroker) -> None:
    """Not even by the fast path into the batch that the first of them has opened."""
    async with opened(broker) as producer:

        async def send_two() -> None:
            await producer.enqueue("orders", b"first", partition=0)
            await producer.enqueue("orders", b"last", partition=0)

        with broker.hold("Metadata"):
            tasks = [
                asyncio.create_task(send_two()),
                asyncio.create_task(producer.enqueue("orders", b"second", partition=0)),
            ]
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)

    assert [record.value for record in broker.records("orders", 0)] == [b"first", b"second", b"last"]


async def test_waiting_for_room_ends_in_its_time(broker: FakeBroker) -> None:
    async with opened(broker, buffer_memory=2000, batch_size=1000, max_request_size=2000) as producer:
        await producer.partitions_for("orders")
        with broker.hold("Produce"):
            await producer.enqueue("orders", b"x" * 1500)
            with pytest.raises(NotWrittenTimeout, match="no room in buffer_memory") as caught:
                await producer.enqueue("orders", b"y" * 1500, timeout=0.1)

    assert caught.value.record is not None
    assert caught.value.record.value == b"y" * 1500


async def test_closing_delivers_what_was_accepted_and_reports_it(broker: FakeBroker) -> None:
    producer = Producer(broker.bootstrap_servers, linger_ms=60_000)
    await producer.start()
    for number in range(10):
        await producer.enqueue("orders", str(number))

    report = await producer.close()

    assert (report.delivered, report.failed, report.unknown, report.clean) == (10, 0, 0, True)
    assert len(broker.records("orders")) == 10
    assert await producer.close() == report
    assert producer.health().status is HealthStatus.CLOSED


async def test_closing_hands_back_what_could_not_be_delivered(broker: FakeBroker) -> None:
    errors: list[DeliveryError] = []
    producer = Producer(broker.bootstrap_servers, linger_ms=0, batch_size=100, on_delivery_error=errors.append)
    await producer.start()
    await producer.send("orders", b"first", partition=0)
    hold = broker.hold("Produce")
    for number in range(7):
        await producer.enqueue("orders", f"{number:090}", key=str(number), partition=0)
    await until(lambda: producer.metrics()["requests-in-flight"] == 5)

    report = await producer.close(timeout=0.1)

    hold.release()
    assert (report.delivered, report.failed + report.unknown) == (1, 7)
    assert [record.key for record in report.undelivered] == [str(number).encode() for number in range(7)]
    assert len(report.maybe_written) == report.unknown > 0
    assert len(errors) == 7


async def test_closing_ends_in_time_and_leaves_no_task_behind(broker: FakeBroker) -> None:
    before = asyncio.all_tasks()
    producer = Producer(broker.bootstrap_servers)
    await producer.start()
    broker.mute(1)
    waiting = asyncio.create_task(producer.send("orders", b"value"))
    await turns()

    async with asyncio.timeout(20):
        await producer.close(timeout=0.1)

    with pytest.raises(ProducerClosed):
        await waiting
    assert asyncio.all_tasks() == before


async def test_a_closed_or_unstarted_producer_refuses_calls_and_may_be_entered_again(broker: FakeBroker) -> None:
    producer = Producer(broker.bootstrap_servers)
    with pytest.raises(NotStarted):
        await producer.send("orders", b"value")

    async with producer:
        await producer.send("orders", b"one")
    with pytest.raises(ProducerClosed):
        await producer.send("orders", b"value")
    async with producer:
        await producer.send("orders", b"two")

    assert len(broker.records("orders")) == 2


def test_use_from_another_event_loop_is_reported(broker: FakeBroker) -> None:
    producer = Producer(broker.bootstrap_servers)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(producer.start())

    async def use() -> None:
        with pytest.raises(WrongEventLoop):
            await producer.send("orders", b"value")
        with pytest.raises(WrongEventLoop):
            producer.enqueue_nowait("orders", b"value")

    asyncio.run(use())
    loop.run_until_complete(producer.close())
    loop.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"metric_reporters": [type("Reporter", (), {"record": print})()]}, "metric_reporters"),
        ({"linger": 5}, "linger_ms"),
        ({"acks": 0}, "enable_idempotence=False"),
        ({"compression_type": "brotli"}, "zstd"),
    ],
)
def test_an_unknown_or_invalid_option_is_refused_when_the_producer_is_made(
    options: dict[str, object], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        Producer("localhost", **options)  # type: ignore[arg-type]


async def test_keys_can_be_ignored_in_the_choice_of_a_partition(broker: FakeBroker) -> None:
    async with opened(broker, partitioner_ignore_keys=True, batch_size=100) as producer:
        partitions = {(await producer.send("orders", b"x" * 200, key=b"same")).partition for _ in range(50)}

    assert partitions == {0, 1, 2}


BAD_RECORDS = [
    ({"topic": "no spaces please"}, InvalidRecord, "topic='no spaces please'"),
    ({"topic": ""}, InvalidRecord, "topic=''"),
    ({"topic": 7}, InvalidRecord, "topic=7"),
    ({"topic": ".."}, InvalidRecord, "neither"),
    ({"value": {"a": 1}}, InvalidRecord, "value_serializer"),
    ({"value": 3.5}, InvalidRecord, "float"),
    ({"key": 17}, InvalidRecord, "key_serializer"),
    ({"headers": {"n": 1}}, InvalidRecord, "'n'"),
    ({"headers": [("only one",)]}, InvalidRecord, "header"),
    ({"partition": -1}, InvalidRecord, "partition=-1"),
    ({"partition": "0"}, InvalidRecord, "partition='0'"),
    ({"partition": 99}, InvalidRecord, "partition=99: topic 'orders' has 3"),
    ({"timestamp_ms": -5}, InvalidRecord, "timestamp_ms=-5"),
    ({"timestamp_ms": 1.5}, InvalidRecord, "timestamp_ms=1.5"),
    ({"on_delivery": "print"}, InvalidRecord, "Invalid on_delivery='print': must be a function"),
    ({"value": b"x" * 2_000_000}, RecordTooLarge, "max_request_size=1048576"),
]


@pytest.mark.parametrize(("bad", "kind", "words"), BAD_RECORDS)
async def test_a_bad_record_gets_its_own_error_and_a_later_good_one_works(
    broker: FakeBroker, bad: dict[str, object], kind: type[Exception], words: str
) -> None:
    async with opened(broker) as producer:
        arguments: dict[str, object] = {"topic": "orders", "value": b"value", "timeout": 30} | bad
        with pytest.raises(kind, match=words):
            await producer.send(**arguments)  # type: ignore[arg-type]

        assert (await producer.send("orders", b"good")).offset == 0


async def test_a_record_that_memory_cannot_hold_names_the_option_that_has_to_be_raised(broker: FakeBroker) -> None:
    """If max_request_size is not given it is no larger than buffer_memory, and cannot be raised alone."""
    async with opened(broker, buffer_memory=50_000) as producer:
        with pytest.raises(RecordTooLarge, match=r"more than buffer_memory=50000: 60000 of value"):
            await producer.send("orders", b"x" * 60_000)


async def test_a_callback_that_cannot_be_called_is_refused_before_anything_is_buffered(broker: FakeBroker) -> None:
    nothing: Any = "print"
    async with opened(broker) as producer:
        await producer.send("orders", b"first", partition=0)
        with broker.hold("Produce"):
            await producer.enqueue("orders", b"opens a batch", partition=0)
            for send in (producer.enqueue, producer.send):
                with pytest.raises(InvalidRecord, match="on_delivery='print'"):
                    await send("orders", b"value", partition=0, on_delivery=nothing)
            with pytest.raises(InvalidRecord, match="on_delivery='print'"):
                producer.enqueue_nowait("orders", b"value", partition=0, on_delivery=nothing)

            assert producer.health().pending_records == 1


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"values": "text"}, r"single str was given: use send\(\) for it"),
        ({"values": b"text"}, "single bytes"),
        ({"values": bytearray(b"text")}, "single bytearray"),
        ({"values": memoryview(b"text")}, "single memoryview"),
        ({"values": 5}, "an iterable or an async iterable, which a value of type int is not"),
        ({"values": None}, "type NoneType is not"),
        ({"key": "id"}, "Invalid key='id': must be a function"),
        ({"on_progress": 1}, "Invalid on_progress=1: must be a function"),
        ({"key": asyncio.sleep}, r"key=<function sleep .*> is async, but nothing would await it"),
        ({"on_progress": asyncio.sleep}, r"on_progress=<function sleep .*> is async, but nothing would await it"),
    ],
)
async def test_an_invalid_argument_of_send_many_is_refused_before_anything_is_read(
    broker: FakeBroker, bad: dict[str, object], words: str
) -> None:
    values = iter([b"1", b"2"])
    async with opened(broker) as producer:
        arguments: dict[str, Any] = {"values": values} | bad
        with pytest.raises(InvalidRecord, match=words):
            await producer.send_many("orders", **arguments)

        assert (await producer.send_many("orders", values)).count == 2


NO_TIMEOUTS = ["x", "1", float("nan"), -1, -0.001, True, 1j, object(), 10**400]


@pytest.mark.parametrize("timeout", NO_TIMEOUTS, ids=lambda each: f"{each!r:.20}")
async def test_a_timeout_that_is_none_is_refused_before_anything_is_done(broker: FakeBroker, timeout: Any) -> None:
    async with opened(broker) as producer:
        await producer.send("orders", b"first")
        for send in (producer.send, producer.enqueue):
            with pytest.raises(InvalidRecord, match=r"timeout=.* a number of seconds >= 0"):
                await send("orders", b"value", timeout=timeout)
        with pytest.raises(InvalidRecord, match="timeout="):
            await producer.send_many("orders", [b"value"], timeout=timeout)
        for wait in (producer.flush, producer.ready, producer.close, partial(producer.partitions_for, "orders")):
            with pytest.raises(ConfigError, match=r"timeout=.* a number of seconds >= 0"):
                await wait(timeout=timeout)
        await producer.send("orders", b"last")

    assert len(broker.records("orders")) == 2


@pytest.mark.parametrize("timeout", [0, 0.0, inf, 5, Fraction(5)])
async def test_no_time_and_any_time_are_timeouts(broker: FakeBroker, timeout: Any) -> None:
    async with opened(broker) as producer:
        await producer.send("orders", b"value", partition=0)
        await producer.ready(timeout=timeout)
        await producer.flush(timeout=timeout)
        await producer.partitions_for("orders", timeout=timeout)
        delivery = await producer.enqueue("orders", b"value", partition=0, timeout=timeout)
        await delivery
        await producer.close(timeout=timeout)


async def test_serializers_may_be_plain_or_async(broker: FakeBroker) -> None:
    async def shout(value: object) -> bytes:
        await asyncio.sleep(0)
        return str(value).upper().encode()

    async with opened(broker, value_serializer=JsonSerializer(), key_serializer=shout) as producer:
        await producer.send("orders", {"a": 1}, key="key")
        with pytest.raises(SerializationError):
            await producer.send("orders", object(), key="key")
        with pytest.raises(InvalidRecord, match="enqueue_nowait"):
            producer.enqueue_nowait("orders", {"a": 2}, key="key")

    assert broker.json("orders") == [{"a": 1}]
    assert broker.records("orders")[0].key == b"KEY"


async def test_interceptors_see_records_and_outcomes(broker: FakeBroker) -> None:
    class Tracing:
        def __init__(self) -> None:
            self.outcomes: list[tuple[object, object, object]] = []
            self.closed = False

        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return ProducerRecord(record.topic, record.value, b"traced", {"id": b"1"}, 0)

        async def on_acknowledgement(self, metadata: object, error: object, headers: object) -> None:
            await asyncio.sleep(0)
            self.outcomes.append((metadata, error, headers))

        def close(self) -> None:
            self.closed = True

    class Broken:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            raise ValueError("never mind me")

    tracing = Tracing()
    async with opened(broker, interceptors=[Broken(), tracing]) as producer:
        metadata = await producer.send("orders", b"value")
        with pytest.raises(RecordTooLarge):
            await producer.send("orders", b"x" * 2_000_000)
        await until(lambda: len(tracing.outcomes) == 2)

    assert broker.records("orders")[0].key == b"traced"
    assert tracing.outcomes[0] == (metadata, None, (("id", b"1"),))
    assert isinstance(tracing.outcomes[1][1], RecordTooLarge)
    assert tracing.closed


async def test_a_partitioner_of_the_users_own_decides(broker: FakeBroker) -> None:
    def last(topic: str, key: bytes | None, value: bytes | None, partitions: tuple[int, ...]) -> int | None:
        return partitions[-1] if value == b"last" else 17 if value == b"wrong" else None

    async with opened(broker, partitioner=last) as producer:
        assert (await producer.send("orders", b"last")).partition == 2
        assert (await producer.send("orders", b"any")).partition in (0, 1, 2)
        with pytest.raises(InvalidRecord, match="chose 17"):
            await producer.send("orders", b"wrong")


async def test_a_delivery_is_not_awaited_in_another_loop(broker: FakeBroker) -> None:
    async def wait(delivery: Delivery) -> object:
        return await delivery

    async with opened(broker) as producer:
        await producer.partitions_for("orders")
        with broker.hold("Produce"):
            delivery = await producer.enqueue("orders", b"value")
            with pytest.raises(WrongEventLoop, match="another event loop"):
                await asyncio.to_thread(asyncio.run, wait(delivery))
        assert (await delivery).offset == 0
        assert await asyncio.to_thread(asyncio.run, wait(delivery)) == delivery.result(), "known is known everywhere"


async def test_a_partitioner_is_asked_once_for_a_record_that_waits_for_room(broker: FakeBroker) -> None:
    size = 10_000
    async with opened(
        broker, partitioner="round_robin", buffer_memory=size + 200, max_request_size=size + 200
    ) as producer:
        await producer.partitions_for("orders")
        with broker.hold("Produce"):
            tasks = [asyncio.create_task(producer.enqueue("orders", b"x" * size)) for _ in range(4)]
            await until(lambda: producer.metrics()["waiting-threads"] == 3)
        deliveries = await asyncio.gather(*tasks)

    assert [delivery.topic_partition.partition for delivery in deliveries] == [0, 1, 2, 0]


async def test_round_robin_takes_each_partition_in_turn(broker: FakeBroker) -> None:
    async with opened(broker, partitioner="round_robin") as producer:
        partitions = [(await producer.send("orders", b"", key=b"same")).partition for _ in range(6)]

    assert partitions == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize(
    ("name", "alice", "empty"),
    [
        ("consistent", crc32(b"alice") % 3, 0),
        ("consistent_random", crc32(b"alice") % 3, None),
        ("murmur2", partition_for_key(b"alice", 3), partition_for_key(b"", 3)),
        ("murmur2_random", partition_for_key(b"alice", 3), partition_for_key(b"", 3)),
        ("fnv1a", fnv1a(b"alice") % 3, fnv1a(b"") % 3),
        ("fnv1a_random", fnv1a(b"alice") % 3, fnv1a(b"") % 3),
    ],
)
async def test_a_partitioner_of_librdkafka_is_chosen_by_its_name(
    broker: FakeBroker, name: PartitionerName, alice: int, empty: int | None
) -> None:
    async with opened(broker, partitioner=name, batch_size=100) as producer:
        assert (await producer.send("orders", b"", key=b"alice")).partition == alice
        with_empty = {(await producer.send("orders", b"x" * 90, key=b"")).partition for _ in range(60)}
        without = {(await producer.send("orders", b"x" * 90)).partition for _ in range(60)}

    assert with_empty == ({0, 1, 2} if empty is None else {empty})
    assert without == ({0, 1, 2} if name.endswith("_random") else {empty})


async def test_records_without_a_key_stick_to_a_partition_and_spread_over_all(broker: FakeBroker) -> None:
    async with opened(broker, batch_size=1000) as producer:
        deliveries = [await producer.enqueue("orders", b"x" * 100) for _ in range(600)]
        partitions = [(await delivery).partition for delivery in deliveries]

    switches = sum(1 for one, other in pairwise(partitions) if one != other)
    assert set(partitions) == {0, 1, 2}
    assert switches < 120, "not a partition for each record"


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_every_codec_arrives(broker: FakeBroker, codec: str) -> None:
    value = b"all work and no play " * 20
    async with opened(broker, compression_type=codec, compression_threshold_bytes=4000) as producer:
        await producer.send_many("orders", [value] * 500, partition=0)
        rate = producer.metrics()["compression-rate-avg"]

    assert [record.value for record in broker.records("orders", 0)] == [value] * 500
    assert (0 < rate < 0.5) == (codec != "none")


@pytest.mark.parametrize("threshold", [0, 2**30], ids=["worker", "loop"])
async def test_each_topic_is_compressed_with_its_codec(threshold: int) -> None:
    codecs: dict[str, CompressionType] = {"logs": "zstd", "images": "none", "*": "lz4"}
    with FakeBroker(topics={"logs": 1, "images": 1, "orders": 1}) as broker:
        async with opened(broker, compression_type=codecs, compression_threshold_bytes=threshold) as producer:
            for topic in ("logs", "images", "orders"):
                await producer.send(topic, b"value " * 100)
                await producer.send_many(topic, [b"value " * 100] * 100)
            rate = producer.metrics()["compression-rate-avg"]

        found = {
            topic: {batch.header.codec for batch in broker.batches(topic)} for topic in ("logs", "images", "orders")
        }
        assert len(broker.records("images")) == 101
    assert found == {"logs": {Codec.ZSTD}, "images": {Codec.NONE}, "orders": {Codec.LZ4}}
    assert 0 < rate < 0.5, "of compressed batches"


async def test_only_topics_with_zstd_fail_at_a_broker_that_is_too_old_for_it() -> None:
    with FakeBroker(topics={"logs": 1, "orders": 1}, versions="2.1", max_versions={"Produce": 6}) as broker:
        codecs: dict[str, CompressionType] = {"logs": "zstd", "*": "lz4"}
        async with opened(broker, compression_type=codecs, linger_ms=50) as producer:
            deliveries = [await producer.enqueue(topic, b"value") for topic in ("logs", "orders") for _ in range(5)]
            for delivery in deliveries[:5]:
                with pytest.raises(NotWritten, match="too old for compression_type='zstd'"):
                    await delivery
            for delivery in deliveries[5:]:
                await delivery
            await producer.send("orders", b"later")

        assert len(broker.records("orders")) == 6
        assert not broker.records("logs")


OLD: dict[str, Any] = {"versions": "2.1", "max_versions": {"Produce": 6}}


def codecs_in(broker: FakeBroker, topic: str) -> set[Codec]:
    return {Codec(batch.header.codec) for batch in broker.batches(topic)}


@pytest.mark.parametrize("threshold", [0, 2**30], ids=["worker", "loop"])
@pytest.mark.parametrize(("release", "used"), [(OLD, "old"), ({}, "new"), ({"versions": "2.1"}, "new")], ids=str)
async def test_a_list_of_codecs_falls_back_for_a_broker_without_zstd(
    threshold: int, release: dict[str, Any], used: str
) -> None:
    codecs: Any = {"logs": ["zstd", "gzip"], "images": ["zstd", "none"], "raw": ["lz4", "zstd"], "*": ["zstd", "lz4"]}
    with FakeBroker(topics={"logs": 1, "images": 1, "raw": 1, "orders": 1}, **release) as broker:
        async with opened(broker, compression_type=codecs, compression_threshold_bytes=threshold) as producer:
            for topic in ("logs", "images", "raw", "orders"):
                await producer.send_many(topic, [b"value " * 100] * 3000)
                await producer.send(topic, b"value " * 100)
                await producer.send(topic, b"value " * 100)

        found = {topic: codecs_in(broker, topic) for topic in ("logs", "images", "raw", "orders")}
        assert {len(broker.records(topic)) for topic in found} == {3002}
    assert found == {
        "logs": {Codec.GZIP if used == "old" else Codec.ZSTD},
        "images": {Codec.NONE if used == "old" else Codec.ZSTD},
        "raw": {Codec.LZ4},
        "orders": {Codec.LZ4 if used == "old" else Codec.ZSTD},
    }


async def test_each_leader_of_a_cluster_gets_what_it_supports() -> None:
    with FakeBroker(brokers=2, topics={"orders": 2}) as broker:
        broker.set_versions("2.1", node=1, max_versions={"Produce": 6})
        async with opened(broker, compression_type=["zstd", "lz4"]) as producer:
            for partition in (0, 1):
                await producer.send("orders", b"value", partition=partition)

        for partition in (0, 1):
            [batch] = broker.batches("orders", partition)
            is_old = broker.leader("orders", partition) == 1
            assert batch.header.codec == (Codec.LZ4 if is_old else Codec.ZSTD)


async def test_a_batch_that_was_sealed_with_zstd_fails_at_a_leader_that_became_too_old() -> None:
    def downgrade(_: object) -> None:
        broker.set_versions("2.1", max_versions={"Produce": 6})
        raise Hangup

    with FakeBroker(topics={"orders": 1}) as broker:
        async with opened(broker, compression_type=["zstd", "lz4"], retry_backoff_ms=1) as producer:
            await producer.send("orders", b"first")
            broker.control("Produce", downgrade)
            with pytest.raises(DeliveryError, match="too old for compression_type='zstd'"):
                await producer.send("orders", b"second")
            await producer.send("orders", b"third")

        assert [Codec(batch.header.codec) for batch in broker.batches("orders")] == [Codec.ZSTD, Codec.LZ4]


async def test_a_codec_without_its_package_is_skipped_if_a_later_one_has_its_own(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)  # as if it was not installed
    monkeypatch.setitem(sys.modules, "cramjam", None)
    async with opened(broker, compression_type=["zstd", "snappy", "lz4"]) as producer:
        await producer.send("orders", b"value")
    assert codecs_in(broker, "orders") == {Codec.LZ4}

    with pytest.raises(ConfigError, match="zstd compression needs the package zstandard"):
        async with Producer("127.0.0.1:1", compression_type=["zstd", "snappy"]):
            pytest.fail("it started")


@pytest.mark.parametrize("codecs", [{"logs": "snappy"}, {"logs": "zstd", "*": "snappy"}], ids=str)
async def test_the_library_of_each_codec_is_needed_at_the_start(
    codecs: dict[str, CompressionType], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)  # as if it was not installed

    with pytest.raises(ConfigError, match="cramjam"):
        async with Producer("127.0.0.1:1", compression_type=codecs):
            pytest.fail("it started")


async def test_a_record_that_may_be_in_the_log_is_not_sent_under_a_new_number(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        await producer.send("orders", b"first", partition=0)
        broker.drop_connection("Produce", when="after")
        from_the_next_on = partial(broker.fail, "Produce", "UNKNOWN_PRODUCER_ID", times=None)
        broker.control("Produce", lambda _: from_the_next_on())
        delivery = await producer.enqueue("orders", b"second", partition=0)
        with pytest.raises(Unknown):
            await delivery
        broker.clear_faults()
        await producer.send("orders", b"third", partition=0, timeout=30)

    assert [record.value for record in broker.records("orders", 0)] == [b"first", b"second", b"third"]


async def test_a_producer_id_that_the_broker_forgets_is_replaced_and_nothing_is_lost(broker: FakeBroker) -> None:
    """Azure Event Hubs forgets producers that were idle for a while."""
    async with opened(broker) as producer:
        for partition in range(3):
            await producer.send("orders", b"first", partition=partition)
        broker.fail("Produce", "INVALID_PRODUCER_ID_MAPPING", times=None)
        broker.control("InitProducerId", lambda _: broker.clear_faults())
        values = [b"%d" % number for number in range(30)]
        deliveries = [await producer.enqueue("orders", value, partition=int(value) % 3) for value in values]
        for delivery in deliveries:
            await delivery

    assert broker.count("InitProducerId") == 2
    for partition in range(3):
        expected = [b"first", *values[partition::3]]
        assert [record.value for record in broker.records("orders", partition)] == expected
    assert len({batch.header.producer_id for batch in broker.batches("orders")}) == 2


async def test_a_record_that_may_be_in_the_log_is_not_sent_under_another_producer_id(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        await producer.send("orders", b"first", partition=0)
        broker.drop_connection("Produce", when="after")
        from_the_next_on = partial(broker.fail, "Produce", "INVALID_PRODUCER_ID_MAPPING", times=None)
        broker.control("Produce", lambda _: from_the_next_on())
        delivery = await producer.enqueue("orders", b"second", partition=0)
        with pytest.raises(Unknown):
            await delivery
        broker.control("InitProducerId", lambda _: broker.clear_faults())
        await producer.send("orders", b"third", partition=0, timeout=30)

    assert [record.value for record in broker.records("orders", 0)] == [b"first", b"second", b"third"]


async def test_acks_0_returns_when_the_bytes_are_sent_and_knows_no_offset(broker: FakeBroker) -> None:
    async with opened(broker, acks=0, enable_idempotence=False) as producer:
        metadata = await producer.send("orders", b"value", partition=1)

    assert (metadata.partition, metadata.offset) == (1, -1)
    await broker.wait_for_async(1, 30)


async def test_acks_1_is_acknowledged_by_the_leader(broker: FakeBroker) -> None:
    async with opened(broker, acks=1, enable_idempotence=False) as producer:
        assert (await producer.send("orders", b"value")).offset == 0


async def test_a_topic_that_the_broker_makes_is_waited_for() -> None:
    with FakeBroker(num_partitions=2) as broker:
        async with opened(broker) as producer:
            metadata = await producer.send("new-topic", b"value", timeout=30)

    assert metadata.topic == "new-topic"


async def test_a_topic_that_is_not_there_is_reported() -> None:
    with FakeBroker(auto_create_topics=False) as broker:
        async with opened(broker) as producer:
            message = ""
            async with asyncio.timeout(30):
                while (
                    "UNKNOWN_TOPIC_OR_PARTITION" not in message
                ):  # nor is it, on a busy machine, before anybody answered
                    with pytest.raises(NotWrittenTimeout) as caught:
                        await producer.send("nowhere", b"value", timeout=0.2)
                    message = str(caught.value)


async def test_metrics_carry_javas_names(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        await producer.send("orders", b"value")
        metrics = producer.metrics()

    assert metrics["record-send-total"] == 1
    assert metrics["record-error-total"] == 0
    assert metrics["request-latency-avg"] > 0
    assert metrics["buffer-total-bytes"] == 33_554_432
    assert producer.metrics("orders")["record-send-total"] == 1


async def test_free_memory_is_never_reported_as_less_than_none(broker: FakeBroker) -> None:
    """The parts of a batch that was split have a header each, and the whole had reserved only one."""
    record = b"x" * 900
    async with opened(broker, buffer_memory=1920, max_request_size=1920) as producer:  # the two records fit just so
        await producer.partitions_for("orders")
        refused = broker.hold("Produce", times=1)
        broker.fail("Produce", "MESSAGE_TOO_LARGE")
        parts = [producer.enqueue_nowait("orders", record, partition=0) for _ in range(2)]
        await until(lambda: refused.waiting)
        with broker.hold("Produce"):
            refused.release()
            await until(lambda: producer.metrics()["batch-split-total"])
            available = producer.metrics()["buffer-available-bytes"]
        await asyncio.gather(*parts)

    assert available == 0


async def test_a_lone_record_does_not_linger(broker: FakeBroker) -> None:
    async with opened(broker, linger_ms=60_000) as producer:
        async with asyncio.timeout(30):
            await producer.send("orders", b"value")
            await producer.send("orders", b"value")


async def test_a_cancelled_async_with_goes_on_delivering_until_it_is_cancelled_again(broker: FakeBroker) -> None:
    before = asyncio.all_tasks()
    producer = Producer(broker.bootstrap_servers, close_timeout_ms=60_000)

    async def use() -> None:
        async with producer:
            await producer.partitions_for("orders")
            await producer.enqueue("orders", b"value")
            await asyncio.Event().wait()

    with broker.hold("Produce"):
        task = asyncio.create_task(use())
        await until(lambda: producer.health().pending_records)
        task.cancel()
        await until(lambda: producer.health().status is HealthStatus.CLOSING)
        assert not task.done()
        task.cancel()
        async with asyncio.timeout(20):
            with pytest.raises(asyncio.CancelledError):
                await task

    assert producer.health().status is HealthStatus.CLOSED
    assert asyncio.all_tasks() == before


async def test_a_list_is_taken_in_by_the_batch(broker: FakeBroker) -> None:
    values = [b"%d" % number for number in range(5000)]
    async with opened(broker, batch_size=2000) as producer:
        result = await producer.send_many("orders", values, partition=1, headers={"trace": b"1"})
        assert len(broker.records("orders", 1)) == 5000, "nothing is reported before it is there"
        spread = await producer.send_many("orders", tuple(values))

    assert (result.count, result.serialized_bytes) == (5000, sum(map(len, values)))
    assert result.offsets == {TopicPartition("orders", 1): (0, 4999)}
    there = broker.records("orders", 1)[:5000]
    assert [record.value for record in there] == values
    assert {tuple(record.headers) for record in there} == {(("trace", b"1"),)}
    assert spread.count == 5000
    assert len(spread.offsets) > 1
    assert len(broker.records("orders")) == 10_000


async def test_a_list_in_a_batch_that_is_split_is_counted_record_by_record(broker: FakeBroker) -> None:
    broker.fail("Produce", "MESSAGE_TOO_LARGE")
    async with opened(broker) as producer:
        result = await producer.send_many("orders", [b"x" * 100] * 50, partition=0)

    assert producer.metrics()["batch-split-total"] >= 1
    assert (result.count, result.serialized_bytes) == (50, 5000)
    assert result.offsets == {TopicPartition("orders", 0): (0, 49)}
    assert len(broker.records("orders", 0)) == 50


@pytest.mark.parametrize("how", ["cancelled", "values raise"])
async def test_failures_of_a_bulk_that_ends_without_an_answer_are_reported(broker: FakeBroker, how: str) -> None:
    reported: list[DeliveryError] = []

    async def values() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"value"
        if how == "values raise":
            raise KeyError("the source is broken")
        await asyncio.Event().wait()

    broker.fail("Produce", "INVALID_RECORD", times=None)
    async with opened(broker, on_delivery_error=reported.append) as producer:
        await producer.partitions_for("orders")
        with broker.hold("Produce"):
            bulk = asyncio.create_task(producer.send_many("orders", values()))
            await until(lambda: producer.health().pending_records == 20)
            if how == "cancelled":
                bulk.cancel()
                await asyncio.wait([bulk])
        with pytest.raises(asyncio.CancelledError if how == "cancelled" else KeyError):
            await bulk
        await until(lambda: len(reported) == 20)


async def test_a_caller_that_never_waits_stays_on_the_fast_path(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        await producer.send("orders", b"")
        longest = 0
        for _ in range(10):
            for _ in range(1000):
                producer.enqueue_nowait("orders", b"x" * 100)
                longest = max(longest, producer.appender.burst)
            await producer.flush()

    assert longest < 600_000


def test_a_producer_left_open_at_the_end_of_asyncio_run_warns(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        producer = Producer(broker.bootstrap_servers, client_id="shop")
        await producer.start()
        await producer.send("orders", b"value")

    asyncio.run(main())

    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert record.exc_info is None, "the traceback of a cancellation says nothing"
    assert record.getMessage() == (
        "[shop] The producer's tasks were cancelled before it was closed; asyncio.run() does this when main() returns. "
        "Use `async with Producer(...)`, or await close() at the end."
    )


@pytest.mark.parametrize("producer_class", [Producer, SyncProducer])
def test_the_error_of_pickling_a_producer_names_the_alternative(
    producer_class: type[Producer] | type[SyncProducer],
) -> None:
    producer = producer_class("localhost:1")

    with pytest.raises(TypeError, match="Pickle its config"):
        pickle.dumps(producer)
    assert pickle.loads(pickle.dumps(producer.config)) == producer.config


async def test_health_turns_into_json(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        await producer.send("orders", b"value")
        healthy = json.loads(json.dumps(producer.health().as_dict()))
    failed = Health(HealthStatus.FAILED, error=KeyError("why"))

    assert (healthy["status"], healthy["alive"], healthy["ready"], healthy["error"]) == ("ready", True, True, None)
    assert json.loads(json.dumps(failed.as_dict()))["error"] == "KeyError: 'why'"
    assert set(healthy) == {field.name for field in dataclasses.fields(Health)} | {"alive", "ready"}
