"""The totals of a run with faults are those that the requests, the log and the deliveries show, exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest

from aioproducer import Delivery, DeliveryError
from aioproducer.protocol.messages import ProduceRequest
from aioproducer.record.reader import read_batches
from aioproducer.testing import FakeBroker
from tests.conftest import opened

TOPICS = {"orders": 3, "clicks": 5}


def _script(broker: FakeBroker, random: Random, loses: bool) -> None:
    """Have the broker refuse or delay what comes next or, if it ``loses`` answers, break the connection."""
    topic = random.choice(list(TOPICS))
    match random.randrange(6 if loses else 5):
        case 0:
            broker.fail("Produce", "NOT_ENOUGH_REPLICAS", times=random.randrange(1, 3))
        case 1:
            broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", topic=topic)
        case 2:
            broker.throttle("Produce", 1)
        case 3:
            broker.fail("Produce", "INVALID_RECORD", topic=topic)
        case 4:
            partition = random.randrange(TOPICS[topic])
            broker.move_leader(topic, partition, random.randrange(1, 4))
        case _:
            broker.drop_connection("Produce", when="after")


def _requested(broker: FakeBroker) -> Iterator[tuple[str, bytes | None]]:
    """The topic and value of each record in each request: a record that was sent again is there again."""
    names = {topic.topic_id: name for name, topic in broker.cluster.topics.items()}
    for request in broker.requests_of("Produce"):
        assert isinstance(request.body, ProduceRequest)
        for data in request.body.topic_data:
            for part in data.partition_data:
                for batch in read_batches(part.records or b""):
                    yield from ((data.name or names[data.topic_id], record.value) for record in batch.records)


async def _failures(deliveries: list[Delivery]) -> Counter[str]:
    """Wait for all of them, and count those that failed, by topic."""
    failed = Counter[str]()
    for delivery in deliveries:
        try:
            await delivery
        except DeliveryError as error:
            failed[str(error.topic)] += 1
    return failed


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("loses", [False, True], ids=["refused", "lost"])
async def test_the_totals_of_a_run_with_faults_are_those_of_an_independent_count(seed: int, loses: bool) -> None:
    random = Random(seed)
    sent, failed = 0, Counter[str]()
    with FakeBroker(3, topics=dict(TOPICS)) as broker:
        async with opened(broker, compression_type=random.choice(["none", "lz4"])) as producer:
            for round_ in range(40):
                if round_ % 2:
                    _script(broker, random, loses)
                deliveries: list[Delivery] = []
                for _ in range(random.randrange(1, 30)):
                    topic = random.choice(list(TOPICS))
                    value = b"%d " % sent + bytes(random.randrange(1, 300))
                    partition = random.randrange(TOPICS[topic])
                    deliveries.append(await producer.enqueue(topic, value, partition=partition))
                    sent += 1
                failed += await _failures(deliveries)
            metrics, by_topic = producer.metrics(), producer.metrics_by_topic()
            by_broker = producer.metrics_by_broker()

        requested = Counter(_requested(broker))
        written = Counter(record.topic for record in broker.records())

    retried = Counter[str]()
    for (topic, _), times in requested.items():
        retried[topic] += times - 1
    assert sum(failed.values()) > 0 or sum(retried.values()) > 0, "a run without faults shows nothing"

    assert metrics["record-send-total"] == metrics["record-delivered-total"] == sum(written.values())
    assert metrics["record-not-written-total"] == metrics["record-error-total"] == sum(failed.values())
    assert metrics["record-unknown-total"] == 0
    # A request on a connection that breaks was sent, and is not among those that arrived.
    requests_lost = metrics["produce-request-total"] - broker.count("Produce")
    assert requests_lost >= 0 if loses else requests_lost == 0
    retries_lost = metrics["record-retry-total"] - sum(retried.values())
    assert retries_lost >= 0 if requests_lost else retries_lost == 0
    assert sent == sum(written.values()) + sum(failed.values())
    for topic in TOPICS:
        numbers = by_topic[topic]
        assert numbers["record-send-total"] == written[topic]
        assert numbers["record-error-total"] == failed[topic]
        assert numbers["record-retry-total"] >= retried[topic]
        logged = sum(len(batch.sent) for batch in broker.batches(topic))
        assert numbers["byte-total"] == logged
    assert sum(by_topic[topic]["record-retry-total"] for topic in TOPICS) == metrics["record-retry-total"]
    assert sum(numbers["request-total"] for numbers in by_broker.values()) <= metrics["request-total"]
