"""Rows that real Kafka refuses are dead letters, and no others; librdkafka's consumer reads what is there."""

from __future__ import annotations

import asyncio
import time
import uuid
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from aioproducer import Producer
from aioproducer.errors import DeliveryError
from aioproducer.spark.exactly_once.job_coordinator import JobCoordinator
from aioproducer.spark.exactly_once.task_attempt import TaskAttempt
from aioproducer.spark.exactly_once.task_summary import TaskSummary
from aioproducer.spark.options.sink import SinkOptions
from aioproducer.spark.sink.columns import SinkColumns
from aioproducer.spark.sink.task_run import TaskRun
from aioproducer.spark.sink.topic_rules_reader import TopicRulesReader
from aioproducer.testing import FakeBroker, TopicConfig, TopicSpec
from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.plugin import KafkaFactory
from tests.spark.read_back import committed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

HOUR = 3_600_000
LIMIT = 20_000
#: Of each topic: its configuration, by release where they differ.
TOPICS: dict[str, dict[str, str]] = {
    "small": {"max.message.bytes": str(LIMIT)},
    "plain": {"max.message.bytes": str(LIMIT), "compression.type": "uncompressed"},
    "compacted": {"cleanup.policy": "compact"},
    "fresh": {"message.timestamp.before.max.ms": str(HOUR), "message.timestamp.after.max.ms": str(HOUR)},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "letters": {"max.message.bytes": "2000000"},
}
#: What 3.6 to 3.9 know still.
DIFFERENCE = {"difference": {"message.timestamp.difference.max.ms": str(HOUR)}}


class Message(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes | None]


class OnKafka:
    """Topics with their own rules, on a cluster that other tests also use."""

    def __init__(self, kafka: KafkaCluster, version: str) -> None:
        self.kafka = kafka
        self.version = version
        self.configs = TOPICS | (DIFFERENCE if version.startswith("3.") else {})
        self._suffix = uuid.uuid4().hex[:8]
        for topic, config in self.configs.items():
            kafka.create_topic(self.name(topic), config=config)

    def name(self, topic: str) -> str:
        return f"{topic}-{self._suffix}"

    def options(self, **more: str) -> SinkOptions:
        letters = {"on.record.error": f"dead-letter:{self.name('letters')}", "kafka.max.block.ms": "120000"}
        return SinkOptions.from_spark({"kafka.bootstrap.servers": self.kafka.bootstrap_servers, **letters, **more})

    def read(self, topic: str) -> list[Message]:
        found: list[Message] = []
        for message in committed(self.kafka.bootstrap_servers, self.name(topic), 1):
            headers: Any = message.headers() or []
            found.append(Message(message.key(), message.value(), dict(headers)))
        return found


@pytest.fixture(params=["4.3.1", "3.9.2"])
def on(request: pytest.FixtureRequest, kafka_factory: KafkaFactory) -> OnKafka:
    return OnKafka(kafka_factory(request.param), request.param)


@pytest.fixture(params=["at-least-once", "exactly-once"])
def guarantee(request: pytest.FixtureRequest) -> dict[str, str]:
    if request.param == "at-least-once":
        return {}
    return {"delivery.guarantee": request.param, "transactional.id": uuid.uuid4().hex}


def run(options: SinkOptions, rows: Any) -> TaskSummary:
    kinds = {"string": "string", "binary": "binary", "int64": "bigint", "int32": "int"}
    columns = SinkColumns.of([(each.name, kinds[str(each.type)]) for each in rows.schema], options)
    if not options.is_exactly_once:
        return TaskRun(options, columns).run([rows])
    coordinator = JobCoordinator(options, is_stream=False)
    transaction = asyncio.run(coordinator.begin())
    summary = TaskRun(options, columns, transaction, TaskAttempt(1, 0, "q", 0)).run([rows])
    asyncio.run(coordinator.commit([summary], "q", 0))
    return summary


def test_every_rule_of_a_topic_is_found_before_the_broker_speaks(on: OnKafka, guarantee: dict[str, str]) -> None:
    now = time.time_ns() // 1_000_000
    old, ahead, usual = now - 2 * HOUR, now + 2 * HOUR, now - HOUR // 2
    random = Random(7)
    fine = [("k", b"fine " + topic.encode(), usual, topic) for topic in on.configs if topic != "letters"]
    refused = [
        ("k", random.randbytes(LIMIT), usual, "small"),
        (None, b"no key", usual, "compacted"),
        ("k", b"old", old, "fresh"),
        ("k", b"ahead", ahead, "fresh"),
        *[
            ("k", each, stamp, "difference")
            for each, stamp in ((b"older", old), (b"later", ahead))
            if "difference" in on.configs
        ],
    ]
    taken = [("k", b"old", old, "stamped"), ("k", b"old", old, "small"), (None, b"no key", usual, "small")]
    rows = [(*row[:3], on.name(row[3]), 0) for row in (*fine, *refused, *taken)]
    names = ["key", "value", "timestamp", "topic", "partition"]
    types = [pa.string(), pa.binary(), pa.int64(), pa.string(), pa.int32()]
    columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), types, strict=True)]

    summary = run(on.options(**guarantee), pa.record_batch(columns, names))

    assert (summary.rows, summary.dead_letters) == (len(fine) + len(taken), len(refused))
    for topic in on.configs:
        if topic != "letters":
            expected = [row[1] for row in (*fine, *taken) if row[3] == topic]
            assert [message.value for message in on.read(topic)] == expected
    letters = on.read("letters")
    assert sorted(
        (each.key, each.value, reported(each, "topic")) for each in letters if each.key is not None
    ) == sorted((b"k", value, on.name(topic)) for key, value, _, topic in refused if key is not None)
    assert [each.value for each in letters if each.key is None] == [b"no key"]
    assert all(reported(each, "error") for each in letters)


def reported(message: Message, header: str) -> str:
    return (message.headers[f"aioproducer.{header}"] or b"").decode()


@pytest.mark.parametrize(
    ("topic", "codec"),
    [*(("small", codec) for codec in ("none", "gzip", "snappy", "lz4", "zstd")), ("plain", "none"), ("plain", "lz4")],
)
def test_rows_are_too_large_exactly_where_the_broker_refuses_them(on: OnKafka, topic: str, codec: str) -> None:
    random = Random(3)
    sizes = [LIMIT - 100 + 2 * step for step in range(40)] + [LIMIT // 2, LIMIT + 5000]
    rows = [(f"{at}", random.randbytes(size)) for at, size in enumerate(sizes)]
    rows += [(f"x{size}", b"x" * size) for size in (LIMIT, 10 * LIMIT, 40 * LIMIT)]

    refused = asyncio.run(refused_one_by_one(on, topic, rows, codec))
    columns = [
        pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), (pa.string(), pa.binary()), strict=True)
    ]
    options = on.options(**{"topic": on.name(topic), "kafka.compression.type": codec})
    run(options, pa.record_batch(columns, ["key", "value"]))

    assert 0 < len(refused) < len(rows)
    assert [letter.key for letter in on.read("letters")] == refused


async def refused_one_by_one(on: OnKafka, topic: str, rows: list[tuple[str, bytes]], codec: Any) -> list[bytes]:
    """The keys of those that the broker refuses in a separate batch."""
    refused: list[bytes] = []
    async with Producer(on.kafka.bootstrap_servers, compression_type=codec, batch_size=0) as producer:
        for key, value in rows:
            try:
                await producer.send(on.name(topic), value, key=key.encode())
            except DeliveryError:
                refused.append(key.encode())
    return refused


def test_a_batch_that_is_too_large_though_each_row_fits_is_split(on: OnKafka, guarantee: dict[str, str]) -> None:
    values = [f"{row:0100d}".encode() for row in range(5000)]
    rows = {"value": values, "topic": [on.name("small")] * 5000, "partition": pa.array([0] * 5000, pa.int32())}

    summary = run(on.options(**guarantee), pa.record_batch(rows))

    assert (summary.rows, summary.dead_letters) == (5000, 0)
    assert [message.value for message in on.read("small")] == values


def test_the_fake_broker_reports_the_same_rules(on: OnKafka) -> None:
    topics = {on.name(topic): TopicSpec(config=TopicConfig.from_kafka(on.configs[topic])) for topic in on.configs}
    real = TopicRulesReader(on.options())

    with FakeBroker(topics=topics, versions=on.version) as broker:
        fake = TopicRulesReader(SinkOptions.from_spark({"kafka.bootstrap.servers": broker.bootstrap_servers}))

        assert {topic: real.of(topic) for topic in topics} == {topic: fake.of(topic) for topic in topics}
