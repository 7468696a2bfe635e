"""Refusals by a broker, and the producer's reaction: on the fake broker as on Apache Kafka."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest

from aioproducer import BrokerError, InvalidRecord, NotWritten, NotWrittenTimeout, Producer, RecordTooLarge
from tests.conformance.conftest import Cluster
from tests.conftest import turns

MODES: Sequence[dict[str, Any]] = [{}, {"enable_idempotence": False}, {"compression_type": "gzip"}]
modes = pytest.mark.parametrize("options", MODES, ids=["idempotent", "not-idempotent", "compressed"])


async def outcomes(producer: Producer, topic: str, *records: dict[str, Any]) -> list[Any]:
    """Send the records in one batch; metadata or the error of each."""
    await producer.partitions_for(topic)
    deliveries = [await producer.enqueue(topic, **record) for record in records]
    return await asyncio.gather(*deliveries, return_exceptions=True)


def noise(number: int, size: int) -> bytes:
    """A value that begins with its number and that gzip cannot make small."""
    body = b"".join(hash((number, n)).to_bytes(8, "big", signed=True) for n in range(size // 8))
    return b"%06d" % number + body[: size - 6]


@modes
async def test_a_batch_that_is_too_large_is_split_and_arrives_in_order(
    cluster: Cluster, options: dict[str, Any]
) -> None:
    topic = cluster.topic(max_message_bytes=1500)
    values = [noise(number, 300) for number in range(200)]

    async with cluster.producer(**options) as producer:
        sent = await outcomes(producer, topic, *({"value": value} for value in values))
        metrics = producer.metrics()

    assert [metadata.offset for metadata in sent] == list(range(200))
    assert [record.value for record in cluster.read(topic)[0]] == values
    assert metrics["batch-split-total"] > 0


@modes
async def test_a_record_that_is_too_large_for_the_topic_is_reported_and_the_next_ones_arrive(
    cluster: Cluster, options: dict[str, Any]
) -> None:
    topic = cluster.topic(max_message_bytes=1500)

    async with cluster.producer(**options) as producer:
        with pytest.raises(NotWritten, match=r"max\.message\.bytes") as caught:
            await producer.send(topic, noise(0, 5000))
        after = [await producer.send(topic, noise(number, 100)) for number in range(1, 6)]

    assert isinstance(caught.value.__cause__, RecordTooLarge)
    assert caught.value.retriable is False
    assert caught.value.record is not None
    assert caught.value.record.value == noise(0, 5000)
    assert [metadata.offset for metadata in after] == list(range(5))
    assert [record.value for record in cluster.read(topic)[0]] == [noise(number, 100) for number in range(1, 6)]


@modes
async def test_of_a_batch_with_one_record_that_is_too_large_all_others_arrive(
    cluster: Cluster, options: dict[str, Any]
) -> None:
    topic = cluster.topic(max_message_bytes=1500)
    values = [noise(number, 5000 if number == 7 else 300) for number in range(20)]

    async with cluster.producer(batch_size=65536, **options) as producer:
        sent = await outcomes(producer, topic, *({"value": value} for value in values))

    failed = [number for number, each in enumerate(sent) if isinstance(each, Exception)]
    assert failed == [7]
    assert isinstance(sent[7], NotWritten)
    assert isinstance(sent[7].__cause__, RecordTooLarge)
    good = [value for value in values if value is not values[7]]
    assert [record.value for record in cluster.read(topic)[0]] == good
    assert [each.offset for each in sent if not isinstance(each, Exception)] == list(range(19))


@modes
async def test_a_record_without_a_key_is_refused_by_a_compacted_topic_together_with_its_batch(
    cluster: Cluster, options: dict[str, Any]
) -> None:
    topic = cluster.topic(cleanup_policy="compact")

    async with cluster.producer(**options) as producer:
        sent = await outcomes(
            producer,
            topic,
            {"value": b"good", "key": b"1"},
            {"value": b"bad"},
            {"value": b"good too", "key": b"2"},
            {"value": b"bad too"},
        )
        after = await producer.send(topic, b"later", key=b"1")

    assert {type(each) for each in sent} == {NotWritten}
    assert {each.__cause__.name for each in sent} == {"INVALID_RECORD"}
    assert [each.retriable for each in sent] == [False] * 4
    for number in (1, 3):
        assert "Compacted topic cannot accept message without key" in str(sent[number])
        assert "shared a batch" not in str(sent[number])
    for number in (0, 2):
        assert "it shared a batch with 2 record(s) that the broker refused" in str(sent[number])
    assert [each.record.value for each in sent] == [b"good", b"bad", b"good too", b"bad too"]
    assert after.offset == 0
    assert [record.value for record in cluster.read(topic)[0]] == [b"later"]


@modes
@pytest.mark.parametrize("side", ["before", "after"])
async def test_a_timestamp_beyond_the_topics_limits_is_refused(
    cluster: Cluster, side: str, options: dict[str, Any]
) -> None:
    topic = cluster.topic(**{f"message_timestamp_{side}_max_ms": 60_000})
    now = time.time_ns() // 1_000_000
    wrong = now + (3_600_000 if side == "after" else -3_600_000)

    async with cluster.producer(**options) as producer:
        sent = await outcomes(
            producer, topic, {"value": b"good", "timestamp_ms": now}, {"value": b"bad", "timestamp_ms": wrong}
        )
        after = await producer.send(topic, b"later", timestamp_ms=now)

    assert {type(each) for each in sent} == {NotWritten}
    assert {each.__cause__.name for each in sent} == {"INVALID_TIMESTAMP"}
    assert "it shared a batch with 1 record(s) that the broker refused" in str(sent[0])
    assert "shared a batch" not in str(sent[1])
    assert after.offset == 0
    assert [record.value for record in cluster.read(topic)[0]] == [b"later"]


async def test_a_refused_batch_between_others_leaves_the_others_in_order(cluster: Cluster) -> None:
    topic = cluster.topic(cleanup_policy="compact")

    async with cluster.producer(batch_size=200) as producer:
        sent = await outcomes(
            producer,
            topic,
            *({"value": noise(number, 150), "key": None if number % 10 == 5 else b"k"} for number in range(100)),
        )

    failed = [number for number, each in enumerate(sent) if isinstance(each, Exception)]
    assert failed == list(range(5, 100, 10))
    assert {type(sent[number]) for number in failed} == {NotWritten}
    delivered = [number for number in range(100) if number not in failed]
    assert [record.value for record in cluster.read(topic)[0]] == [noise(number, 150) for number in delivered]
    assert [sent[number].offset for number in delivered] == list(range(90))


@pytest.mark.parametrize("topic", ["", ".", "..", "a b", "ü", "x" * 250, "a/b"])
async def test_an_impossible_topic_is_refused_at_once(cluster: Cluster, topic: str) -> None:
    async with cluster.producer() as producer:
        with pytest.raises(InvalidRecord, match="Invalid topic="):
            await producer.send(topic, b"value")


async def test_a_topic_of_the_brokers_own_is_refused(cluster: Cluster) -> None:
    async with cluster.producer() as producer:
        with pytest.raises(NotWritten) as caught:
            await producer.send("__consumer_offsets", b"value", key=b"key", timeout=20)

    assert isinstance(caught.value.__cause__, BrokerError)
    assert caught.value.__cause__.name == "INVALID_TOPIC_EXCEPTION"


async def test_a_partition_that_does_not_exist_is_refused(cluster: Cluster) -> None:
    topic = cluster.topic(2)

    async with cluster.producer() as producer:
        with pytest.raises(InvalidRecord, match=r"2 partition\(s\), 0 to 1"):
            await producer.send(topic, b"value", partition=2)


async def test_a_topic_that_may_not_be_created_is_waited_for_and_not_created(cluster: Cluster) -> None:
    unknown = cluster.topic() + ".unknown"

    async with cluster.producer(allow_auto_create_topics=False) as producer:
        await producer.ready()
        with pytest.raises(NotWrittenTimeout, match=r"not accepted within 2 s") as caught:
            await producer.send(unknown, b"value", timeout=2)

        assert isinstance(caught.value.__cause__, BrokerError)
        assert caught.value.__cause__.name == "UNKNOWN_TOPIC_OR_PARTITION"

        waiting = asyncio.create_task(producer.send(unknown, b"value", timeout=20))
        await turns()
        await asyncio.to_thread(cluster.create, unknown)
        assert (await waiting).offset == 0
