"""Asks Kafka for the rules of topics, once per topic."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final

from aioproducer.config import ProducerConfig
from aioproducer.errors import KafkaError
from aioproducer.protocol.error_codes import ErrorCode, broker_error
from aioproducer.protocol.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
)
from aioproducer.spark.cluster_client import ClusterClient
from aioproducer.spark.options.sink import SinkOptions
from aioproducer.spark.sink.topic_rules import TOPIC_CONFIGS, TopicRules

__all__ = ["TopicRulesReader"]

logger = logging.getLogger("aioproducer.spark")

_TOPIC: Final = 2


class TopicRulesReader:
    """The rules of topics. It is pickled with known rules, so that tasks do not ask again for those of the driver.

    If rules cannot be read, there are none, with a warning. Both methods block, and must not be called on event loops.
    """

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._known: dict[str, TopicRules] = {}

    def learn(self) -> None:
        """Ask for the rules of the topics in the options; does nothing if rows are not checked."""
        options = self._options
        if options.dead_letter_topic is not None:
            self._ask(
                [options.dead_letter_topic] if options.topic is None else [options.topic, options.dead_letter_topic]
            )

    def of(self, topic: str) -> TopicRules:
        """The rules of one topic; asks for them if they are unknown."""
        self._ask([topic])
        return self._known[topic]

    def _ask(self, topics: Sequence[str]) -> None:
        unknown = [topic for topic in topics if topic not in self._known]
        if unknown:
            self._known |= asyncio.run(_read(self._options.config, unknown))


async def _read(config: ProducerConfig, topics: Sequence[str]) -> Mapping[str, TopicRules]:
    """Cancellation: nothing is left open."""
    async with ClusterClient(config) as cluster:
        try:
            response = await cluster.ask(_question(topics))
        except KafkaError as error:
            return {topic: _no_rules(topic, error) for topic in topics}
    found = {each.resource_name: each for each in response.results}
    return {topic: _rules(topic, found.get(topic)) for topic in topics}


def _question(topics: Sequence[str]) -> DescribeConfigsRequest:
    wanted = list(TOPIC_CONFIGS)
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=_TOPIC, resource_name=topic, configuration_keys=wanted)
            for topic in topics
        ]
    )


def _rules(topic: str, result: DescribeConfigsResult | None) -> TopicRules:
    if result is None or result.error_code != ErrorCode.NONE:
        code = ErrorCode.UNKNOWN_SERVER_ERROR if result is None else result.error_code
        return _no_rules(topic, broker_error(code, None if result is None else result.error_message))
    return TopicRules.from_kafka({each.name: each.value for each in result.configs})


def _no_rules(topic: str, error: KafkaError) -> TopicRules:
    logger.warning(
        "Could not read the configuration of topic %r, so rows that only the broker refuses fail the task: %s "
        "(DescribeConfigs needs the permission DESCRIBE_CONFIGS on the topic.)",
        topic,
        error,
    )
    return TopicRules()
