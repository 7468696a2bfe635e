"""librdkafka's mock cluster: a broker that neither we nor Apache Kafka wrote.

It knows ApiVersions up to version 2 and answers version 3 with error 35, as KIP-511 wants it; but that answer is not laid
out as version 0, as it should be. All that can be relied upon is its error code. Its Metadata answers from version 9 on
end with a byte too many.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import Producer as ConfluentProducer

from aioproducer.errors import ProtocolError
from aioproducer.protocol import decode_response_header
from aioproducer.protocol.messages import ApiVersionsRequest, ApiVersionsResponse
from aioproducer.record import partition_for_key
from aioproducer.testing.raw_client import RawClient
from tests.conftest import opened

PARTITIONS = 4  # what the mock gives to a topic that it makes


class Mock:
    """Three brokers inside a confluent-kafka producer, which live as long as it does."""

    def __init__(self) -> None:
        self._host = ConfluentProducer({"test.mock.num.brokers": 3, "log_level": 0})
        brokers = self._host.list_topics(timeout=40).brokers.values()
        self.addresses = [(broker.host, broker.port) for broker in brokers]
        self.bootstrap_servers = ",".join(f"{host}:{port}" for host, port in self.addresses)

    def read(self, topic: str, count: int) -> dict[int, list[tuple[bytes | None, bytes | None]]]:
        """Keys and values of each partition, once there are ``count``."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap_servers, "group.id": "g", "check.crcs": True})
        found: dict[int, list[tuple[bytes | None, bytes | None]]] = defaultdict(list)
        deadline = time.monotonic() + 40
        try:
            consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
            while sum(map(len, found.values())) < count and time.monotonic() < deadline:
                for message in consumer.consume(count, 0.05):
                    assert message.error() is None
                    found[message.partition() or 0].append((message.key(), message.value()))
        finally:
            consumer.close()
        return found


@pytest.fixture(scope="module")
def mock() -> Mock:
    return Mock()


def test_the_mock_answers_a_version_that_it_does_not_know_with_error_35_and_little_else(mock: Mock) -> None:
    question = ApiVersionsRequest(client_software_name="test", client_software_version="1")

    with RawClient(mock.addresses[0]) as client:
        client.send(question, 3)
        frame = client.read_frame()
        older = client.ask(question, 2)

    _, body = decode_response_header(frame, ApiVersionsRequest, 3)
    assert bytes(body[:2]) == b"\0\x23"
    with pytest.raises(ProtocolError):
        ApiVersionsResponse.decode(0, body)
    assert next(each.max_version for each in older.api_keys if each.api_key == 18) == 2


async def test_the_metadata_of_the_mock_are_understood(mock: Mock) -> None:
    async with opened(mock.bootstrap_servers) as producer:
        partitions = await producer.partitions_for("metadata")

    assert [each.partition for each in partitions] == list(range(PARTITIONS))
    assert {each.leader for each in partitions} <= {1, 2, 3}


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "not-idempotent"])
async def test_the_mock_takes_every_codec(mock: Mock, codec: str, idempotent: bool) -> None:
    topic = f"{codec}-{idempotent}"
    options: dict[str, Any] = {"compression_type": codec, "enable_idempotence": idempotent, "batch_size": 2000}
    records = [(b"key-%d" % (n % 20), b"%d " % n * 20) for n in range(1000)]

    async with opened(mock.bootstrap_servers, **options) as producer:
        deliveries = [await producer.enqueue(topic, value, key=key) for key, value in records]
        sent = [await delivery for delivery in deliveries]

    expected: dict[int, list[tuple[bytes | None, bytes | None]]] = defaultdict(list)
    for (key, value), metadata in zip(records, sent, strict=True):
        assert metadata.partition == partition_for_key(key, PARTITIONS)
        assert metadata.offset == len(expected[metadata.partition])
        expected[metadata.partition].append((key, value))
    assert await asyncio.to_thread(mock.read, topic, 1000) == expected
