"""Checks that the topic of a load exists, before Spark is started."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from aioproducer.config import ProducerConfig
from aioproducer.errors import AuthenticationError, BrokerError, KafkaError
from aioproducer.producer import Producer
from aioproducer.protocol.error_codes import ErrorCode
from aioproducer.spark.load.state import LoadRefused

__all__ = ["check_topic"]

_PATIENCE_MS: Final = 15_000

#: It takes a moment until all brokers know a new topic.
_UNKNOWN_MS: Final = 5_000


def check_topic(producer: Mapping[str, str], topic: str) -> None:
    """Raise LoadRefused if no broker answers within 15 s, or the topic does not exist; blocks.

    Does not create the topic, unless these options of the producer say so. Raises BrokerError if access is denied.
    """
    config = _brief(producer)
    try:
        asyncio.run(_ask(config, topic))
    except KafkaError as error:
        servers = ",".join(config.bootstrap_servers)
        cause = error.__cause__
        if isinstance(cause, BrokerError) and cause.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise LoadRefused(
                f"There is no topic {topic!r} at {servers}. Create it, or choose another one with --topic."
            ) from error
        if isinstance(error, BrokerError):
            raise
        if isinstance(error, AuthenticationError):
            raise LoadRefused(str(error)) from error
        raise LoadRefused(
            f"{str(error).rstrip('.')}. Is --bootstrap-servers right, and is Kafka running there?"
        ) from error


def _brief(producer: Mapping[str, str]) -> ProducerConfig:
    config = ProducerConfig.from_properties(dict(producer))
    given = {name.replace(".", "_") for name in producer}
    return config.replace(
        max_block_ms=min(config.max_block_ms, _PATIENCE_MS),
        unknown_topic_timeout_ms=config.unknown_topic_timeout_ms or _UNKNOWN_MS,
        allow_auto_create_topics=config.allow_auto_create_topics and "allow_auto_create_topics" in given,
    )


async def _ask(config: ProducerConfig, topic: str) -> None:
    async with Producer(config) as producer:
        await producer.partitions_for(topic)
