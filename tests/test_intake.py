"""The intake of records: counts of refused ones, fairness to other tasks, and the options that reach each part."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioproducer import (
    BufferFull,
    InvalidRecord,
    NotWrittenTimeout,
    Producer,
    ProducerRecord,
    RecordTooLarge,
    SendManyError,
)
from aioproducer.accumulator.settings import AccumulatorSettings
from aioproducer.record import Codec
from aioproducer.testing import FakeBroker
from tests.conftest import opened


class Looking:
    """An interceptor that changes nothing."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record

    def __repr__(self) -> str:
        return "Looking()"


def settings_of(producer: Producer) -> AccumulatorSettings:
    engine = producer._engine
    assert engine is not None
    return engine.accumulator.settings


@pytest.mark.parametrize("options", [{}, {"value_serializer": bytes}, {"interceptors": [Looking()]}], ids=str)
async def test_a_task_that_enqueues_without_end_lets_the_others_run(
    broker: FakeBroker, options: dict[str, Any]
) -> None:
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            beats += 1
            await asyncio.sleep(0)

    async with opened(broker, buffer_memory=2**26, **options) as producer:
        await producer.send("orders", b"first", partition=0)
        heart = asyncio.create_task(beat())
        try:
            with broker.hold("Produce"):
                for number in range(8000):
                    await producer.enqueue("orders", b"x" * 1000, partition=number % 3)
        finally:
            heart.cancel()

    assert beats >= 25, "8 MB, and a pause after each 256 KiB"


async def test_a_record_that_is_refused_counts_as_an_error(broker: FakeBroker) -> None:
    async with opened(broker, max_request_size=2000) as producer:
        await producer.send("orders", b"good")
        with pytest.raises(RecordTooLarge):
            await producer.send("orders", b"x" * 3000)
        with pytest.raises(RecordTooLarge):
            producer.enqueue_nowait("orders", b"x" * 3000)
        with pytest.raises(InvalidRecord):
            await producer.send("..", b"no topic")
        with broker.hold("Metadata"), pytest.raises(NotWrittenTimeout):
            await producer.enqueue("payments", b"unknown as yet", timeout=0.01)
        numbers = producer.metrics()

        assert numbers["record-error-total"] == 4
        assert numbers["record-not-written-total"] == 0, "nothing that was accepted failed"
        report = await producer.close()
    assert (report.delivered, report.failed) == (1, 0)


async def test_a_record_that_finds_no_room_in_time_counts_as_exhausted_and_as_an_error(broker: FakeBroker) -> None:
    async with opened(broker, buffer_memory=20_000) as producer:
        await producer.send("orders", b"first")
        with broker.hold("Produce"):
            held = await producer.enqueue("orders", b"x" * 15_000)
            with pytest.raises(NotWrittenTimeout, match="no room"):
                await producer.enqueue("orders", b"x" * 15_000, timeout=0.02)
            with pytest.raises(BufferFull):
                producer.enqueue_nowait("orders", b"x" * 15_000)
            numbers = producer.metrics()
        await held

    assert numbers["buffer-exhausted-total"] == 1
    assert numbers["record-error-total"] == 1, "BufferFull only asks to come again"
    assert numbers["bufferpool-wait-time-ns-total"] >= 15e6


async def test_only_who_waits_for_memory_counts_as_waiting_for_memory(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        for number in range(3):  # the first waits for metadata
            await producer.send("orders", b"value", partition=number)
        await producer.send_many("orders", [b"value"] * 100)

        assert producer.metrics()["bufferpool-wait-time-ns-total"] == 0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"adaptive_partitioning": True, "availability_timeout_s": 0.0, "client_rack": None}),
        ({"partitioner_adaptive_partitioning_enable": False}, {"adaptive_partitioning": False}),
        ({"partitioner_availability_timeout_ms": 1500}, {"availability_timeout_s": 1.5}),
        ({"client_rack": "a"}, {"client_rack": None}),
        ({"client_rack": "a", "partitioner_rack_aware": True}, {"client_rack": "a"}),
        ({"linger_ms": 7, "batch_size": 999}, {"linger_s": 0.007, "batch_size": 999}),
        ({"max_request_size": 5000}, {"max_request_size": 5000}),
        (
            {"compression_type": "gzip", "compression_level": 3, "compression_threshold_bytes": 77},
            {"codec": Codec.GZIP, "compression_level": 3, "compression_threshold": 77},
        ),
    ],
)
async def test_the_options_reach_the_accumulator(
    broker: FakeBroker, options: dict[str, Any], expected: dict[str, Any]
) -> None:
    async with opened(broker, **options) as producer:
        settings = settings_of(producer)

    assert {name: getattr(settings, name) for name in expected} == expected


async def test_records_without_a_key_go_to_leaders_in_the_clients_rack_where_that_is_wanted() -> None:
    with FakeBroker(2, topics={"orders": 4}) as broker:
        for node in broker.cluster.nodes.values():
            node.rack = f"rack-{node.node_id}"
        near = {partition for partition in range(4) if broker.leader("orders", partition) == 2}
        async with opened(broker, client_rack="rack-2", partitioner_rack_aware=True, batch_size=500) as producer:
            went = {(await producer.send("orders", b"x" * 600)).partition for _ in range(40)}

    assert went == near


async def test_a_duplicate_that_the_broker_recognises_is_a_success_with_an_unknown_offset(
    broker: FakeBroker,
) -> None:
    async with opened(broker) as producer:
        await producer.send("orders", b"first", partition=0)
        broker.fail_after_apply("Produce", "DUPLICATE_SEQUENCE_NUMBER")
        metadata = await producer.send("orders", b"second", partition=0)
        third = await producer.send("orders", b"third", partition=0)
        numbers = producer.metrics()

    assert metadata.offset == -1
    assert third.offset == 2
    assert numbers["record-retry-total"] == 0
    assert [record.value for record in broker.records("orders", 0)] == [b"first", b"second", b"third"]


async def test_a_record_that_is_too_large_is_named_by_its_key_and_the_sizes_of_its_parts(broker: FakeBroker) -> None:
    async with opened(broker, max_request_size=1000) as producer:
        with pytest.raises(RecordTooLarge) as caught:
            await producer.send("orders", b"x" * 2000, key=b"k" * 50, headers={"trace": b"12", "empty": None})
        with pytest.raises(RecordTooLarge, match="The record for 'orders' with no key takes"):
            await producer.send("orders", b"x" * 2000)
        with pytest.raises(SendManyError, match=r"stopped at record 7 \(from 0\) after 7 acknowledged") as many:
            await producer.send_many("orders", [b"x" * (2000 if number == 7 else 1) for number in range(9)], key=bytes)

    assert str(caught.value).startswith(f"The record for 'orders' with the key {b'k' * 40!r}... takes up to 21")
    assert "more than max_request_size=1000: 2000 of value, 50 of key, 12 of headers. Raise" in str(caught.value)
    assert isinstance(many.value.error, RecordTooLarge)
    assert many.value.result.count == 7


_WHOLE = ProducerRecord("orders", "text", b"key", {"header": "h"}, 1, 5)


@pytest.mark.parametrize("options", [{}, {"value_serializer": str.encode}, {"interceptors": [Looking()]}], ids=str)
async def test_records_that_user_code_has_seen_are_appended_without_a_further_decision(
    broker: FakeBroker, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(broker, linger_ms=60_000, **options) as producer:
        await producer.send(_WHOLE)

        def decided(*_: object) -> None:
            raise AssertionError("nothing is to decide here")

        monkeypatch.setattr(producer._intake, "checked", decided)
        deliveries = [
            await producer.enqueue(_WHOLE),
            producer.enqueue_nowait(_WHOLE),
            await producer.enqueue("orders", "text", key=b"key", headers={"header": "h"}, partition=1, timestamp_ms=5),
            producer.enqueue_nowait(
                "orders", "text", key="key", headers=[("header", b"h")], partition=1, timestamp_ms=5
            ),
        ]
        await producer.flush()
        offsets = [delivery.result().offset for delivery in deliveries]

    assert offsets == [1, 2, 3, 4]
    assert {(r.key, r.value, tuple(r.headers), r.timestamp_ms) for r in broker.records("orders")} == {
        (b"key", b"text", (("header", b"h"),), 5)
    }


class Text(bytes):
    """Bytes of another type, such as numpy's."""


@pytest.mark.parametrize(
    "options",
    [{}, {"key_serializer": Text}, {"value_serializer": Text}, {"interceptors": [Looking()]}],
    ids=["plain", "key", "value", "interceptor"],
)
async def test_types_derived_from_bytes_are_bytes(broker: FakeBroker, options: dict[str, Any]) -> None:
    async with opened(broker, **options) as producer:
        await producer.send("orders", Text(b"value"), key=Text(b"key"), partition=0)
        producer.enqueue_nowait("orders", Text(b"value"), key=Text(b"key"), partition=0)

    assert [(record.key, record.value) for record in broker.records("orders")] == [(b"key", b"value")] * 2
