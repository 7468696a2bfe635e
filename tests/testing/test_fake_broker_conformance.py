"""The fake broker and Apache Kafka, asked the same, answer the same."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import pytest
from crc32c import crc32c

from aioproducer.errors import BrokerConnectionError
from aioproducer.protocol import ErrorCode
from aioproducer.protocol.messages import PartitionProduceResponse, ProduceRequest
from aioproducer.record import Codec, RecordBatchBuilder, encode_batch
from aioproducer.testing import FakeBroker, TopicConfig, TopicSpec
from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.raw_client import RawClient, produce
from tests.testing.own_kafka import own_kafka

pytestmark = pytest.mark.slow

NOW = 1_700_000_000_000
FAR_AHEAD = 4_000_000_000_000
MAX_SEQUENCE = 2**31 - 1

LENGTH, MAGIC, CRC, ATTRIBUTES, LAST_OFFSET_DELTA = 8, 16, 17, 21, 23
MAX_TIMESTAMP, PRODUCER_ID, COUNT = 35, 43, 57


def batch(
    count: int = 1,
    *,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    timestamp: int = NOW,
    codec: Codec = Codec.NONE,
    transactional: bool = False,
    size: int = 10,
) -> bytes:
    builder = RecordBatchBuilder()
    for _ in range(count):
        builder.append(timestamp, None, b"v" * size)
    encoded = encode_batch(builder, codec)
    encoded.stamp(producer_id, epoch, sequence, transactional)
    return b"".join(encoded.pieces)


def idem(sequence: int, count: int = 1, *, epoch: int = 0) -> bytes:
    return batch(count, producer_id=7_000_000, epoch=epoch, sequence=sequence)


def patched(data: bytes, at: int, layout: str, value: int, *, fix_crc: bool = True) -> bytes:
    raw = bytearray(data)
    struct.pack_into(layout, raw, at, value)
    if fix_crc:
        struct.pack_into(">I", raw, CRC, crc32c(bytes(raw[ATTRIBUTES:])))
    return bytes(raw)


def with_body(body: bytes) -> bytes:
    raw = bytearray(batch()[:61] + body)
    struct.pack_into(">i", raw, LENGTH, len(raw) - 12)
    struct.pack_into(">I", raw, CRC, crc32c(bytes(raw[ATTRIBUTES:])))
    return bytes(raw)


@dataclass(frozen=True)
class Scenario:
    """Batches that are produced one after the other to a separate topic."""

    name: str
    batches: Sequence[bytes]
    version: int = 9
    acks: int = -1
    config: Mapping[str, str] = field(default_factory=dict[str, str])
    partition: int = 0


GOOD = batch(2)

SCENARIOS = (
    Scenario("plain", [batch(2), batch(3)]),
    *(Scenario(f"codec-{codec.name}", [batch(5, codec=codec)]) for codec in Codec),
    Scenario("acks-1", [GOOD], acks=1),
    Scenario("acks-2", [GOOD], acks=2),
    Scenario("acks-minus-2", [GOOD], acks=-2),
    Scenario("no-partition", [GOOD], partition=5),
    Scenario("nothing", [b""]),
    Scenario("header-cut", [GOOD[:15]]),
    Scenario("records-cut", [GOOD[:-1]]),
    Scenario("two-batches", [GOOD + GOOD]),
    Scenario("length-13", [patched(GOOD, LENGTH, ">i", 13)]),
    Scenario("length-negative", [patched(GOOD, LENGTH, ">i", -1)]),
    Scenario("length-48", [patched(GOOD, LENGTH, ">i", 48)[:60]]),
    Scenario("magic-0", [patched(GOOD, MAGIC, ">b", 0)]),
    Scenario("magic-1", [patched(GOOD, MAGIC, ">b", 1)]),
    Scenario("magic-3", [patched(GOOD, MAGIC, ">b", 3)]),
    Scenario("crc", [patched(GOOD, CRC, ">I", 1, fix_crc=False)]),
    Scenario("base-offset", [patched(GOOD, 0, ">q", 1)]),
    Scenario("delta-large", [patched(GOOD, LAST_OFFSET_DELTA, ">i", 77)]),
    Scenario("delta-negative", [patched(GOOD, LAST_OFFSET_DELTA, ">i", -1)]),
    Scenario("count-large", [patched(GOOD, COUNT, ">i", 3)]),
    Scenario("count-zero", [patched(GOOD, COUNT, ">i", 0)]),
    Scenario("count-and-delta-large", [patched(patched(GOOD, COUNT, ">i", 3), LAST_OFFSET_DELTA, ">i", 2)]),
    Scenario("count-and-delta-small", [patched(patched(GOOD, COUNT, ">i", 1), LAST_OFFSET_DELTA, ">i", 0)]),
    Scenario("control", [patched(GOOD, ATTRIBUTES, ">h", 0x20)]),
    Scenario("pid-without-sequence", [patched(GOOD, PRODUCER_ID, ">q", 7)]),
    Scenario("record-length", [with_body(b"\x10\0\0\0\x01\x02v\0")]),
    Scenario("header-count", [with_body(b"\x0e\0\0\0\x01\x02v\x01")]),
    Scenario("noise", [with_body(b"\x55" * 40)]),
    Scenario("codec-unknown", [patched(GOOD, ATTRIBUTES, ">h", 5)]),
    *(
        Scenario(f"not-really-{codec.name}", [patched(GOOD, ATTRIBUTES, ">h", codec)])
        for codec in Codec
        if codec is not Codec.NONE
    ),
    Scenario("zstd-6", [batch(codec=Codec.ZSTD)], version=6),
    Scenario("zstd-7", [batch(codec=Codec.ZSTD)], version=7),
    Scenario("too-large", [batch(size=1000), batch(size=200)], config={"max.message.bytes": "500"}),
    Scenario(
        "too-large-uncompressed",
        [batch(size=1000, codec=Codec.GZIP), batch(size=200, codec=Codec.GZIP)],
        config={"max.message.bytes": "500", "compression.type": "uncompressed"},
    ),
    Scenario("no-key", [GOOD], config={"cleanup.policy": "compact"}),
    Scenario("too-old", [GOOD], config={"message.timestamp.before.max.ms": "1000"}),
    Scenario("future", [batch(timestamp=FAR_AHEAD)]),
    Scenario("append-time", [GOOD], config={"message.timestamp.type": "LogAppendTime"}),
    Scenario("min-isr", [GOOD], config={"min.insync.replicas": "2"}),
    Scenario("min-isr-acks-1", [GOOD], config={"min.insync.replicas": "2"}, acks=1),
    Scenario("idempotent", [idem(0, 3), idem(3), idem(4, 2)]),
    Scenario("repeated", [idem(0, 3), idem(3), idem(0, 3), idem(3), idem(4)]),
    Scenario("repeated-append-time", [idem(0), idem(0)], config={"message.timestamp.type": "LogAppendTime"}),
    Scenario("gap", [idem(0), idem(2), idem(1)]),
    Scenario("cut-otherwise", [idem(0, 3), idem(0, 2), idem(1, 2), idem(0, 4), idem(2, 2), idem(3)]),
    Scenario("window", [*(idem(n) for n in range(6)), idem(1), idem(0), idem(5), idem(6)]),
    Scenario("starts-at-5", [idem(5), idem(0), idem(6)]),
    Scenario("old-epoch", [idem(0, epoch=4), idem(1, epoch=3), idem(0, epoch=3), idem(1, epoch=4)]),
    Scenario("new-epoch", [idem(0), idem(1, epoch=1), idem(0, epoch=1), idem(0), idem(1, epoch=1), idem(0, epoch=1)]),
    Scenario("wrap", [idem(MAX_SEQUENCE), idem(0), idem(MAX_SEQUENCE), idem(1)]),
    Scenario("wrap-inside", [idem(MAX_SEQUENCE - 1, 4), idem(MAX_SEQUENCE - 1, 4), idem(3), idem(2)]),
    Scenario("repeated-but-corrupt", [idem(0), patched(idem(0), CRC, ">I", 5, fix_crc=False), idem(0)]),
)

#: Where the fake broker is stricter on purpose: no client of sound mind sends these, and Kafka puts them right.
STRICTER = (
    Scenario("byte-behind", [GOOD + b"\0"]),
    Scenario("wrong-max-timestamp", [patched(GOOD, MAX_TIMESTAMP, ">q", NOW + 1)]),
    Scenario("append-time-from-client", [patched(GOOD, ATTRIBUTES, ">h", 0x08)]),
)


class Answer(NamedTuple):
    code: str
    base_offset: int
    has_time: bool
    time_of_client: bool
    start_offset: int
    bad_records: Sequence[int]


Played: TypeAlias = list[Answer | str]


def code_of(played: Played) -> str:
    (answer,) = played
    return answer if isinstance(answer, str) else answer.code


def ask_the_leader(address: tuple[str, int], request: ProduceRequest, version: int) -> PartitionProduceResponse:
    """The answer, once the broker knows that it leads the topic, which may have been made a moment ago."""
    deadline = time.monotonic() + 30
    while True:
        with RawClient(address) as client:
            answer = client.ask(request, version).responses[0].partition_responses[0]
        if answer.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER or time.monotonic() > deadline:
            return answer
        time.sleep(0.05)


def play(address: tuple[str, int], scenario: Scenario) -> Played:
    answers: Played = []
    for data in scenario.batches:
        request = produce(scenario.name, {scenario.partition: data}, acks=scenario.acks)
        try:
            answer = ask_the_leader(address, request, scenario.version)
        except (BrokerConnectionError, ConnectionError):
            answers.append("hung up")
            continue
        answers.append(
            Answer(
                ErrorCode(answer.error_code).name,
                answer.base_offset,
                answer.log_append_time_ms != -1,
                answer.log_append_time_ms == NOW,
                answer.log_start_offset,
                [error.batch_index for error in answer.record_errors],
            )
        )
    return answers


@pytest.fixture(scope="module", params=["4.3.1", "3.9.2"])
def kafka(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    with own_kafka(request.param) as kafka:
        yield kafka


def play_both(kafka: KafkaCluster, scenarios: Sequence[Scenario]) -> Iterator[tuple[str, Played, Played]]:
    host, _, port = kafka.bootstrap_servers.partition(":")
    with FakeBroker(versions=kafka.version, auto_create_topics=False) as broker:
        for scenario in scenarios:
            kafka.create_topic(scenario.name, config=scenario.config)
            broker.create_topic(scenario.name, TopicSpec(config=TopicConfig.from_kafka(scenario.config)))
            yield scenario.name, play((host, int(port)), scenario), play(broker.addresses[1], scenario)


@pytest.mark.timeout(300)
def test_both_answer_every_batch_alike(kafka: KafkaCluster) -> None:
    differences = [(name, real, fake) for name, real, fake in play_both(kafka, SCENARIOS) if real != fake]

    assert differences == []


@pytest.mark.timeout(300)
def test_the_fake_broker_is_stricter_in_three_things(kafka: KafkaCluster) -> None:
    codes = {name: (code_of(real), code_of(fake)) for name, real, fake in play_both(kafka, STRICTER)}

    assert codes == {
        "byte-behind": ("NONE", "INVALID_RECORD"),
        "wrong-max-timestamp": ("NONE", "INVALID_RECORD"),
        "append-time-from-client": ("NONE", "INVALID_TIMESTAMP"),
    }
