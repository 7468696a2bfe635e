"""A real broker refuses a record in the middle of a stream: with ``on_data_loss="stop"`` its log ends before that record."""

from __future__ import annotations

import uuid

import pytest

from aioproducer import DeliveryError, NotWritten, PartitionStopped, Producer, RecordTooLarge
from aioproducer.delivery import Delivery
from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.plugin import KafkaFactory
from aioproducer.types import TopicPartition
from tests.real.conftest import read_log

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

RECORDS, LOST = 2_000, 1_000


@pytest.fixture(params=["4.3.1", "3.9.2"])
def kafka(request: pytest.FixtureRequest, kafka_factory: KafkaFactory) -> KafkaCluster:
    """One broker."""
    return kafka_factory(request.param)


def value_of(number: int) -> bytes:
    """The value of a record; that of the lost one is larger than the topic allows."""
    return b"%d" % number + b"x" * (20_000 if number == LOST else 0)


async def send_all(producer: Producer, topic: str, partition: int) -> list[Delivery | DeliveryError]:
    outcomes: list[Delivery | DeliveryError] = []
    for number in range(RECORDS):
        try:
            outcomes.append(await producer.enqueue(topic, value_of(number), partition=partition))
        except NotWritten as error:
            outcomes.append(error)
    await producer.flush()
    return outcomes


@pytest.mark.parametrize("mode", ["continue", "stop"])
async def test_the_log_has_nothing_behind_the_refused_record(kafka: KafkaCluster, mode: str) -> None:
    topic = f"loss-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, 2, config={"max.message.bytes": "10000"})
    # Small batches, so that many are in flight and waiting behind the refused one.
    options = {"batch_size": 500, "on_data_loss": mode}
    async with Producer(kafka.bootstrap_servers, **options) as producer:  # type: ignore[arg-type]
        outcomes = await send_all(producer, topic, 0)
        errors = [each.exception() if isinstance(each, Delivery) else each for each in outcomes]
        stopped = dict(producer.stopped_partitions)
        resumed = producer.resume(topic)
        await producer.send(topic, b"after", partition=0)
        await producer.send(topic, b"other", partition=1)

    log = read_log(kafka, topic)
    written = [number for number in range(RECORDS) if errors[number] is None]
    assert log[0] == [*map(value_of, written), b"after"]
    assert log[1] == [b"other"]
    refused = errors[LOST]
    assert refused is not None
    assert isinstance(refused.__cause__, RecordTooLarge)
    if mode == "continue":
        assert (stopped, resumed) == ({}, ())
        assert written == [number for number in range(RECORDS) if number != LOST]
        return
    assert written == [*range(LOST)]
    assert list(stopped) == list(resumed) == [TopicPartition(topic, 0)]
    behind = errors[LOST + 1 :]
    assert all(isinstance(each, NotWritten) and isinstance(each.__cause__, PartitionStopped) for each in behind)
