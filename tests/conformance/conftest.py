"""The clusters that the conformance suite runs on: the fake broker and two releases of Apache Kafka, used alike."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, NamedTuple

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, Message
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

from aioproducer import Producer
from aioproducer.record import Codec
from aioproducer.testing import FakeBroker, TopicConfig, TopicSpec
from aioproducer.testing.admin import Admin
from aioproducer.testing.broker.log import BatchHeader
from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.plugin import KafkaFactory
from aioproducer.types import Header, TimestampType
from tests.conftest import QUICK

_PATIENCE = 30.0
_names = count(1)


class ReadBack(NamedTuple):
    """One record as librdkafka's consumer returned it, the CRC of its batch checked."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp_ms: int
    timestamp_type: TimestampType
    offset: int


class Cluster(ABC):
    """A cluster of one broker, which makes topics on request by itself."""

    bootstrap_servers: str

    def topic(self, partitions: int = 1, **config: object) -> str:
        """A new topic; ``config`` are topic configurations with underscores for dots."""
        name = f"conformance.{time.time_ns():x}.{next(_names)}"
        self.create(name, partitions, {key.replace("_", "."): str(value) for key, value in config.items()})
        return name

    @abstractmethod
    def create(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Make a topic of that name."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete the topic; when this returns, no metadata name it any more."""

    @abstractmethod
    def add_partitions(self, name: str, total: int) -> None:
        """Let the topic grow; when this returns, the metadata tell it."""

    @asynccontextmanager
    async def producer(self, **options: Any) -> AsyncIterator[Producer]:
        """A producer on this cluster that fails quickly.

        It retries records of any age: a new topic's broker may refuse the first attempt as not yet its leader.
        """
        always = {**QUICK, "close_timeout_ms": 10_000, "producer_id_expiration_ms": -1}
        async with Producer(self.bootstrap_servers, **{**always, **options}) as producer:
            yield producer

    def read(self, topic: str, at_least: int = 0) -> dict[int, list[ReadBack]]:
        """The records of each partition that has any; waits for ``at_least`` so many in all."""
        ends = self._ends(topic, at_least)
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": "conformance",
                "check.crcs": True,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "log_level": 0,
            }
        )
        try:
            consumer.assign([ConfluentPartition(topic, partition, 0) for partition, end in ends.items() if end])
            found = _consume(consumer, sum(ends.values()))
        finally:
            consumer.close()
        return {
            partition: sorted(records, key=lambda each: each.offset) for partition, records in sorted(found.items())
        }

    def batches(self, topic: str, partition: int = 0) -> list[BatchHeader]:
        """The headers of a partition's record batches as they are in the log."""
        return [BatchHeader.parse(raw) for raw in Admin(self.bootstrap_servers).fetch_all(topic)[partition]]

    def codecs(self, topic: str) -> set[Codec]:
        """The compression of the batches of partition 0 in the log."""
        return {Codec(batch.codec) for batch in self.batches(topic)}

    def _ends(self, topic: str, at_least: int) -> dict[int, int]:
        deadline = time.monotonic() + _PATIENCE
        while True:
            ends = {partition: end for partition, (_, end) in Admin(self.bootstrap_servers).list_offsets(topic).items()}
            if sum(ends.values()) >= at_least:
                return ends
            assert time.monotonic() < deadline, f"{topic} holds {ends}, and {at_least} records were expected"
            time.sleep(0.01)


def _consume(consumer: Consumer, wanted: int) -> dict[int, list[ReadBack]]:
    found: dict[int, list[ReadBack]] = defaultdict(list)
    deadline = time.monotonic() + _PATIENCE
    count = 0
    while count < wanted:
        for message in consumer.consume(wanted - count, 0.1):
            assert message.error() is None, message.error()
            found[message.partition() or 0].append(_read_back(message))
            count += 1
        assert time.monotonic() < deadline, f"{count} of {wanted} records were read"
    return found


def _read_back(message: Message) -> ReadBack:
    kind, timestamp = message.timestamp()
    stamped = TimestampType.LOG_APPEND_TIME if kind == TIMESTAMP_LOG_APPEND_TIME else TimestampType.CREATE_TIME
    headers: Any = message.headers() or ()
    return ReadBack(message.key(), message.value(), tuple(headers), timestamp, stamped, message.offset() or 0)


class FakeCluster(Cluster):
    """One fake broker."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.bootstrap_servers = broker.bootstrap_servers

    def create(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        self.broker.create_topic(name, TopicSpec(partitions, config=TopicConfig.from_kafka(config or {})))

    def delete(self, name: str) -> None:
        self.broker.delete_topic(name)

    def add_partitions(self, name: str, total: int) -> None:
        self.broker.add_partitions(name, total)


class RealCluster(Cluster):
    """One broker of Apache Kafka."""

    def __init__(self, kafka: KafkaCluster) -> None:
        self.kafka = kafka
        self.bootstrap_servers = kafka.bootstrap_servers

    def create(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        self.kafka.create_topic(name, partitions, config=config)

    def delete(self, name: str) -> None:
        self.kafka.delete_topic(name)

    def add_partitions(self, name: str, total: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        for done in admin.create_partitions([NewPartitions(name, total)]).values():
            done.result(_PATIENCE)
        deadline = time.monotonic() + _PATIENCE
        while len(self.kafka.admin.leaders(name)) < total:
            assert time.monotonic() < deadline, f"{name} does not grow to {total} partitions"
            time.sleep(0.01)


def _real(version: str) -> Any:
    return pytest.param(version, id=f"kafka-{version[:3]}", marks=[pytest.mark.slow, pytest.mark.timeout(300)])


@pytest.fixture(params=["fake", _real("4.3.1"), _real("3.9.2")])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Each test runs on every one of these, and may not tell them apart."""
    if request.param == "fake":
        with FakeBroker() as broker:
            yield FakeCluster(broker)
    else:
        factory: KafkaFactory = request.getfixturevalue("kafka_factory")
        yield RealCluster(factory(request.param))
