"""Rules are asked for once; where they cannot be, that is said, and there are none."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator

import pytest

from aioproducer.spark.options.sink import SinkOptions
from aioproducer.spark.sink.topic_rules import TimestampLimit, TopicRules
from aioproducer.spark.sink.topic_rules_reader import TopicRulesReader
from aioproducer.testing import FakeBroker, TopicConfig, TopicSpec

ORDERS = TopicConfig(max_message_bytes=500, message_timestamp_before_max_ms=1000, compacted=True)
LETTERS = "dead-letter:letters"


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    topics = {"orders": TopicSpec(config=ORDERS), "letters": TopicSpec(config=TopicConfig(max_message_bytes=900))}
    with FakeBroker(topics=topics, versions="3.9") as broker:
        yield broker


def reader(broker: FakeBroker, **more: str) -> TopicRulesReader:
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "orders", "on.record.error": LETTERS, **more}
    return TopicRulesReader(SinkOptions.from_spark(given))


def test_those_of_all_topics_that_the_options_name_are_one_question(broker: FakeBroker) -> None:
    rules = reader(broker)

    rules.learn()
    rules.learn()

    assert rules.of("orders") == TopicRules(
        500, is_compacted=True, before=TimestampLimit("message.timestamp.before.max.ms", 1000)
    )
    assert rules.of("letters") == TopicRules(900)
    assert broker.count("DescribeConfigs") == 1


def test_they_travel_to_the_tasks_which_ask_for_others_only(broker: FakeBroker) -> None:
    broker.create_topic("returns", TopicSpec(config=TopicConfig(compacted=True)))
    rules = reader(broker)
    rules.learn()

    copy: TopicRulesReader = pickle.loads(pickle.dumps(rules))

    assert copy.of("orders").is_compacted
    assert broker.count("DescribeConfigs") == 1
    assert [copy.of("returns").is_compacted for _ in range(2)] == [True, True]
    assert broker.count("DescribeConfigs") == 2


def test_no_request_is_sent_if_dead_letters_are_not_wanted(broker: FakeBroker) -> None:
    reader(broker, **{"on.record.error": "fail"}).learn()

    assert broker.requests == []


def test_a_question_that_gets_lost_is_asked_again(broker: FakeBroker) -> None:
    broker.drop_connection("DescribeConfigs")

    assert reader(broker).of("orders").is_compacted


def test_rules_that_may_not_be_read_are_empty_and_the_reason_is_logged_once(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.fail("DescribeConfigs", "TOPIC_AUTHORIZATION_FAILED")
    rules = reader(broker)

    with caplog.at_level(logging.WARNING, "aioproducer.spark"):
        found = [rules.of("orders") for _ in range(2)]

    assert found == [TopicRules()] * 2
    [reported] = caplog.messages
    assert "'orders'" in reported
    assert "TOPIC_AUTHORIZATION_FAILED" in reported
    assert "DESCRIBE_CONFIGS" in reported


@pytest.mark.parametrize(
    ("topic", "versions", "why"),
    [("nowhere", 4, "UNKNOWN_TOPIC_OR_PARTITION"), ("orders", 0, "DescribeConfigs")],
    ids=["a topic that is not there", "a broker that is too old"],
)
def test_the_reason_why_rules_cannot_be_read_is_logged(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture, topic: str, versions: int, why: str
) -> None:
    broker.set_versions(max_versions={"DescribeConfigs": versions})

    with caplog.at_level(logging.WARNING, "aioproducer.spark"):
        assert reader(broker).of(topic) == TopicRules()

    assert why in caplog.text


def test_a_cluster_that_is_not_there_is_not_waited_for_longer_than_a_producer_would(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "orders", "kafka.max.block.ms": "100"}

    with caplog.at_level(logging.WARNING, "aioproducer.spark"):
        assert TopicRulesReader(SinkOptions.from_spark(given)).of("orders") == TopicRules()

    assert "127.0.0.1:1" in caplog.text
