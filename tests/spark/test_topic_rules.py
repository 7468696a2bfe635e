"""A topic's configuration says what a broker refuses, in the words of whichever release reports it."""

from __future__ import annotations

import pytest

from aioproducer.config import ProducerConfig
from aioproducer.spark.sink.topic_rules import TimestampLimit, TopicRules

BEFORE, AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
DIFFERENCE = "message.timestamp.difference.max.ms"
NEVER = str(2**63 - 1)


@pytest.mark.parametrize(
    ("configs", "rules"),
    [
        ({}, TopicRules()),
        ({"max.message.bytes": "100"}, TopicRules(max_message_bytes=100)),
        ({"max.message.bytes": None}, TopicRules()),
        ({"max.message.bytes": "many"}, TopicRules()),
        ({"compression.type": "producer"}, TopicRules()),
        ({"compression.type": "uncompressed"}, TopicRules(stores_uncompressed=True)),
        ({"cleanup.policy": "delete"}, TopicRules()),
        ({"cleanup.policy": "compact,delete"}, TopicRules(is_compacted=True)),
        ({BEFORE: "5", AFTER: NEVER}, TopicRules(before=TimestampLimit(BEFORE, 5))),
        ({BEFORE: NEVER, AFTER: "6"}, TopicRules(after=TimestampLimit(AFTER, 6))),
        (
            {BEFORE: "5", AFTER: NEVER, DIFFERENCE: "7"},
            TopicRules(before=TimestampLimit(BEFORE, 5), after=TimestampLimit(DIFFERENCE, 7)),
        ),
        ({DIFFERENCE: "7"}, TopicRules(before=TimestampLimit(DIFFERENCE, 7), after=TimestampLimit(DIFFERENCE, 7))),
        ({BEFORE: "5", AFTER: "6", "message.timestamp.type": "LogAppendTime"}, TopicRules()),
    ],
)
def test_the_rules_are_those_that_the_broker_goes_by(configs: dict[str, str | None], rules: TopicRules) -> None:
    assert TopicRules.from_kafka(configs) == rules


@pytest.mark.parametrize(("limit", "size"), [(None, 1000), (5000, 1000), (400, 400)])
def test_batches_grow_no_larger_than_the_topic_takes(limit: int | None, size: int) -> None:
    config = ProducerConfig.create("a:9092", batch_size=1000)

    assert TopicRules(limit).fitting(config).batch_size == size
