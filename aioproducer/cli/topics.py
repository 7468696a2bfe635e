"""Creates and deletes the topics of the demo, with confluent-kafka's admin client."""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, KafkaException

__all__ = ["BrokersUnreachable", "TopicRefused", "create_topic", "delete_topic"]

_PATIENCE: Final = 30.0
_REACH: Final = 10.0
_REACH_STEP: Final = 0.5
_POLL: Final = 0.05
#: Reported by librdkafka when it has tried every broker and has no connection.
_ALL_DOWN: Final = "_ALL_BROKERS_DOWN"


class BrokersUnreachable(Exception):
    """No broker could be reached; the message says why."""


class TopicRefused(Exception):
    """The brokers did not create or delete the topic; the message says why."""


def create_topic(
    connection: Mapping[str, str], topic: str, partitions: int, config: Mapping[str, str], patience: float = _PATIENCE
) -> None:
    """Create the topic with the cluster's default replication, and wait until each partition has a leader.

    ``connection`` is librdkafka's configuration.

    Raises BrokersUnreachable, TopicRefused, or TimeoutError if a leader is missing after ``patience`` seconds.
    """
    from confluent_kafka import KafkaException

    admin = _admin(connection)
    wanted = _library().NewTopic(topic, num_partitions=partitions, replication_factor=-1, config=dict(config))
    deadline = time.monotonic() + patience
    try:
        admin.create_topics([wanted], request_timeout=patience)[topic].result()
        while not _has_leaders(admin, topic, partitions):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not each of its {partitions} partitions has a leader after {patience:g} s.")
            time.sleep(_POLL)
    except KafkaException as error:
        raise _refusal(error) from error


def delete_topic(connection: Mapping[str, str], topic: str, patience: float = _PATIENCE) -> None:
    """Delete the topic; brokers learn of it a little later. Raises BrokersUnreachable or TopicRefused."""
    from confluent_kafka import KafkaException

    admin = _admin(connection)
    try:
        admin.delete_topics([topic], request_timeout=patience)[topic].result()
    except KafkaException as error:
        raise _refusal(error) from error


def _library() -> Any:
    """The module without its stubs, which lack what is needed here."""
    return import_module("confluent_kafka.admin")


def _admin(connection: Mapping[str, str]) -> Any:
    """An admin client that has reached a broker. Raises BrokersUnreachable."""
    from confluent_kafka import KafkaException

    reported: list[KafkaError] = []
    admin = _library().AdminClient({**connection, "log_level": 2, "error_cb": reported.append})
    deadline = time.monotonic() + _REACH
    while True:
        try:
            admin.list_topics(timeout=_REACH_STEP)
            return admin
        except KafkaException as error:  # librdkafka keeps retrying, even without hope
            admin.poll(0)
            if any(each.name() == _ALL_DOWN for each in reported) or time.monotonic() > deadline:
                raise BrokersUnreachable((reported or error.args)[0].str()) from error


def _has_leaders(admin: Any, topic: str, partitions: int) -> bool:
    found = admin.list_topics(timeout=_PATIENCE).topics.get(topic)  # asking for this one topic might create it
    return found is not None and sum(each.leader >= 0 for each in found.partitions.values()) == partitions


def _refusal(error: KafkaException) -> TopicRefused:
    return TopicRefused(f"{error.args[0].name()}: {error.args[0].str()}")
