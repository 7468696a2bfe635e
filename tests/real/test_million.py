"""Records through each codec, with and without keys, to each Kafka: none lost, doubled, moved or damaged.

They are 100 bytes each, sent with the producer's defaults (idempotent, five requests in flight). While they are sent, a
SHA-256 of the records of each partition is computed here; Java's consumer reads the topic back, checks the CRC of every
batch, and computes the same. Equal digests mean equal records in equal order. Kafka's own log checker looks through the
files of one run of each Kafka. A million of each of the twenty kinds take twelve minutes on two busy cores, so that is for
the soak; at every build two kinds are a million, and all of them 100,000.
"""

from __future__ import annotations

import random
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from aioproducer import Producer
from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.kafka.jars import KafkaJars
from aioproducer.testing.kafka.java_tools import JavaTools, RecordDigest
from aioproducer.testing.plugin import KafkaFactory

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

MILLION, SOME = 1_000_000, 100_000
PARTITIONS = 6
VALUE_SIZE = 100
#: Of all lengths up to 30 bytes, not only text.
KEYS: Sequence[bytes] = [random.Random(number).randbytes(number % 28) + b"%d" % number for number in range(10_007)]
#: What stands behind the counter in a value: half of it can be compressed.
TAILS: Sequence[bytes] = [random.Random(-number).randbytes(45) + b"kafka" * 9 for number in range(1000)]


class Cluster:
    """A Kafka, its own Java tools, and the partitions that its Java producer would choose for our keys."""

    def __init__(self, kafka: KafkaCluster) -> None:
        self.kafka = kafka
        self.tools = JavaTools(KafkaJars.get(kafka.version))
        self.javas_choice = dict(zip(KEYS, self.tools.java_partitions(KEYS, PARTITIONS), strict=True))


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest, kafka_factory: KafkaFactory) -> Cluster:
    return Cluster(kafka_factory(request.param))


@pytest.fixture
def topic(cluster: Cluster) -> Iterator[str]:
    name = f"million-{uuid.uuid4().hex[:8]}"
    cluster.kafka.create_topic(name, PARTITIONS)
    yield name
    cluster.kafka.delete_topic(name)


async def send_all(
    cluster: Cluster, topic: str, codec: str, keyed: bool, total: int
) -> tuple[dict[int, RecordDigest], set[int]]:
    """Send so many; what each partition must hold then, and the partitions that a key of ours went astray to."""
    digests: dict[int, RecordDigest] = defaultdict(RecordDigest)
    astray: set[int] = set()
    async with Producer(cluster.kafka.bootstrap_servers, compression_type=codec) as producer:  # type: ignore[arg-type]
        for number in range(total):
            key = KEYS[number % len(KEYS)] if keyed else None
            value = b"%010d" % number + TAILS[number % 1000]
            delivery = await producer.enqueue(topic, value, key=key)
            partition = delivery.topic_partition.partition
            digests[partition].add(key, value)
            if key is not None and cluster.javas_choice[key] != partition:
                astray.add(partition)
        report = await producer.close()
    assert (report.delivered, report.failed, report.unknown) == (total, 0, 0)
    return digests, astray


#: Of which a million are sent at every build, to the newest Kafka.
OFTEN = {("none", False), ("zstd", True)}


def kinds() -> Iterator[Any]:
    for version in ("4.3.1", "3.9.2"):
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            for how, keyed in (("keyed", True), ("unkeyed", False)):
                is_frequent = version == "4.3.1" and (codec, keyed) in OFTEN
                name = f"{version}-{codec}-{how}"
                yield pytest.param(version, codec, keyed, SOME, id=f"{name}-{SOME}")
                rarely = () if is_frequent else pytest.mark.soak
                yield pytest.param(version, codec, keyed, MILLION, id=f"{name}-{MILLION}", marks=rarely)


@pytest.mark.parametrize(("cluster", "codec", "keyed", "total"), list(kinds()), indirect=["cluster"])
async def test_all_records_arrive_once_in_order_and_undamaged(
    cluster: Cluster, topic: str, codec: str, keyed: bool, total: int
) -> None:
    sent, astray = await send_all(cluster, topic, codec, keyed, total)

    read = cluster.tools.digest(cluster.kafka.bootstrap_servers, topic)

    assert astray == set(), "Java's producer would have sent some key elsewhere"
    assert sum(each.count for each in read.values()) == total
    assert {partition: (each.count, each.sha256) for partition, each in read.items()} == {
        partition: (each.count, each.hexdigest()) for partition, each in sent.items()
    }
    assert all((each.first_offset, each.last_offset) == (0, each.count - 1) for each in read.values())
    assert read.keys() == set(range(PARTITIONS))
    if (codec, keyed) == ("zstd", True):
        check_files(cluster, topic, sent[0].count)


def check_files(cluster: Cluster, topic: str, count: int) -> None:
    """Let Kafka's log checker judge the files of partition 0."""
    batches = cluster.tools.dump_log_segments(cluster.kafka.data_directory(1) / f"{topic}-0")

    assert sum(batch.count for batch in batches) == count
    assert all(batch.is_valid and batch.codec == "zstd" for batch in batches)
    assert [batch.base_sequence for batch in batches] == [batch.base_offset for batch in batches]
    assert len({(batch.producer_id, batch.producer_epoch) for batch in batches}) == 1
