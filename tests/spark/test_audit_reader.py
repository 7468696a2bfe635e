"""The audit's reader: committed records in order, and for each offset without one the reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from aioproducer import Producer
from aioproducer.protocol.messages import AbortedTransaction
from aioproducer.spark.audit.gaps import Gap, GapReason, Span, explain_with, spans_of
from aioproducer.spark.audit.left_out import explained
from aioproducer.spark.audit.murmur2 import home_partitions
from aioproducer.spark.audit.offsets import AuditFailed, OffsetRange, split_ranges, stable_ranges
from aioproducer.spark.audit.reader import RangeReader
from aioproducer.testing import FakeBroker
from aioproducer.testing.broker.secured import SecuredBroker
from aioproducer.testing.raw_client import record_batch
from tests.conftest import opened


def config(broker: FakeBroker) -> dict[str, str]:
    return {"bootstrap.servers": broker.bootstrap_servers}


def rows_of(reader: RangeReader, ranges: Sequence[OffsetRange]) -> list[dict[str, Any]]:
    return [row for each in ranges for batch in reader.read(each) for row in batch.to_pylist()]


def ranges_of(broker: FakeBroker, topic: str = "orders") -> Sequence[OffsetRange]:
    return stable_ranges(config(broker), topic, 5.0)


async def send(producer: Producer, *values: bytes) -> None:
    for value in values:
        await producer.enqueue("orders", value, key=b"k" + value, partition=0, headers={"h": b"1"}, timestamp_ms=7)
    await producer.flush()


async def test_every_part_of_a_record_is_read(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        await send(producer, b"a", b"b")

    rows = rows_of(RangeReader(config(broker), "orders", 3), ranges_of(broker))

    assert [row["value"] for row in rows] == [b"a", b"b"]
    assert rows[1] == {
        "kind": "record",
        "partition": 0,
        "offset": 1,
        "count": 1,
        "timestamp": 7,
        "key": b"kb",
        "value": b"b",
        "headers": [{"key": "h", "value": b"1"}],
        "home": home_partitions_of(b"kb"),
    }


def home_partitions_of(key: bytes) -> int:
    import pyarrow as pa  # type: ignore[import-untyped]

    return int(home_partitions(pa.array([key], pa.binary()), 3).to_pylist()[0])


async def test_a_range_is_read_from_its_first_offset_to_its_last(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        await send(producer, *(b"%d" % number for number in range(10)))

    ranges = split_ranges(ranges_of(broker), 4)
    rows = rows_of(RangeReader(config(broker), "orders", 3), ranges)

    assert ranges == [OffsetRange(0, 0, 4), OffsetRange(0, 4, 8), OffsetRange(0, 8, 10)]
    assert [row["offset"] for row in rows] == list(range(10))
    assert [row["offset"] for row in rows_of(RangeReader(config(broker), "orders", 3), ranges[1:2])] == [4, 5, 6, 7]


async def test_where_the_leader_does_not_know_of_the_range_s_end_yet_it_is_waited_for(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        await send(producer, b"a", b"b")
        batches = RangeReader(config(broker), "orders", 3).read(OffsetRange(0, 0, 4))
        first = next(batches)
        await send(producer, b"c", b"d")

    assert [row["value"] for batch in (first, *batches) for row in batch.to_pylist()] == [b"a", b"b", b"c", b"d"]


def test_a_range_s_end_that_never_comes_is_reported_and_not_mistaken_for_missing_records(broker: FakeBroker) -> None:
    reader = RangeReader(config(broker), "orders", 3, with_gaps=True, patience=1.0)

    with pytest.raises(AuditFailed, match=r"nothing from orders-0 for 1 s, before it reached offset 4"):
        rows_of(reader, [OffsetRange(0, 0, 4)])


async def test_aborted_records_are_not_read_and_their_offsets_are_explained(broker: FakeBroker) -> None:
    async with opened(broker, transactional_id="t") as producer:
        async with producer.transaction():
            await send(producer, b"a", b"b")
        await producer.begin_transaction()
        await send(producer, b"never", b"seen", b"this")
        await producer.abort_transaction()
        async with producer.transaction():
            await send(producer, b"c")

    rows = rows_of(RangeReader(config(broker), "orders", 3, with_gaps=True), ranges_of(broker))

    assert [row["value"] for row in rows if row["kind"] == "record"] == [b"a", b"b", b"c"]
    assert {row["kind"]: row["count"] for row in rows if row["kind"] != "record"} == {"control": 3, "aborted": 3}


async def test_offsets_are_explained_over_tls_and_with_a_login() -> None:
    with SecuredBroker({"orders": 3}) as broker:
        async with opened(broker, transactional_id="t", **broker.client_options) as producer:
            async with producer.transaction():
                await send(producer, b"a")
            await producer.begin_transaction()
            await send(producer, b"never")
            await producer.abort_transaction()

        secured = config(broker) | {
            "security.protocol": "sasl_ssl",
            "ssl.ca.pem": broker.authority.pem,
            "sasl.mechanisms": "SCRAM-SHA-256",
            "sasl.username": "alice",
            "sasl.password": "alice-secret",
        }
        rows = rows_of(RangeReader(secured, "orders", 3, with_gaps=True), stable_ranges(secured, "orders", 5.0))

    assert {row["kind"]: row["count"] for row in rows} == {"record": 1, "control": 2, "aborted": 1}


def test_brokers_that_cannot_be_asked_for_reasons_are_a_trouble_in_words() -> None:
    with SecuredBroker({"orders": 3}) as broker:
        secured = config(broker) | {
            "security.protocol": "SASL_SSL",
            "ssl.ca.pem": broker.authority.pem,
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "canary-secret",
        }
        with pytest.raises(AuditFailed, match=r"orders-0 have no record.* PLAIN login failed.*refused") as reported:
            explained(secured, "orders", 0, [Gap(0, 1)])

    assert "canary-secret" not in str(reported.value)


async def test_an_open_transaction_keeps_an_audit_from_being_made(broker: FakeBroker) -> None:
    async with opened(broker, transactional_id="t") as producer, producer.transaction():
        await send(producer, b"open")

        with pytest.raises(AuditFailed, match=r"A transaction is open in partitions \[0\] of topic 'orders'"):
            stable_ranges(config(broker), "orders", 0.0)


def test_a_topic_that_is_not_there_cannot_be_audited(broker: FakeBroker) -> None:
    with pytest.raises(AuditFailed, match="There is no topic 'nothing'"):
        ranges_of(broker, "nothing")


def test_options_that_the_consumer_refuses_are_reported(broker: FakeBroker) -> None:
    reader = RangeReader({**config(broker), "no.such.option": "1"}, "orders", 3)

    with pytest.raises(AuditFailed, match=r"no\.such\.option"):
        rows_of(reader, [OffsetRange(0, 0, 1)])


def test_offsets_of_which_the_log_has_nothing_are_missing() -> None:
    spans = [Span(0, 3, GapReason.CONTROL), Span(5, 6, GapReason.ABORTED), Span(6, 9, GapReason.WITHHELD)]

    assert list(explain_with(spans, Gap(2, 8))) == [
        (GapReason.CONTROL, Gap(2, 3)),
        (GapReason.MISSING, Gap(3, 5)),
        (GapReason.ABORTED, Gap(5, 6)),
        (GapReason.WITHHELD, Gap(6, 8)),
    ]
    assert list(explain_with(spans, Gap(9, 11))) == [(GapReason.MISSING, Gap(9, 11))]
    assert list(explain_with([], Gap(0, 1))) == [(GapReason.MISSING, Gap(0, 1))]


def at(offset: int, batch: bytes, *, transactional: bool = False, last_delta: int | None = None) -> bytes:
    """The batch as a broker keeps it there; the checksum no longer fits, and is not looked at."""
    found = bytearray(batch)
    found[0:8] = offset.to_bytes(8, "big")
    if transactional:
        found[22] |= 0x10
    if last_delta is not None:
        found[23:27] = last_delta.to_bytes(4, "big")
    return bytes(found)


def test_a_committed_record_that_was_not_given_is_withheld() -> None:
    log = at(5, record_batch(b"a", b"b")) + at(7, record_batch(b"c", producer_id=9), transactional=True)

    assert list(spans_of(log, [])) == [Span(5, 7, GapReason.WITHHELD), Span(7, 8, GapReason.WITHHELD)]
    assert list(spans_of(log, [AbortedTransaction(producer_id=9, first_offset=2)]))[1].reason is GapReason.ABORTED
    assert list(spans_of(log, [AbortedTransaction(producer_id=8, first_offset=2)]))[1].reason is GapReason.WITHHELD


def test_a_record_that_compaction_took_out_of_a_batch_is_missing_without_a_fault() -> None:
    compacted = at(5, record_batch(b"a"), last_delta=3)

    assert list(spans_of(compacted + b"\0" * 30, [])) == [Span(5, 9, GapReason.MISSING)]
