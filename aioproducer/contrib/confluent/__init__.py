"""confluent-kafka's producers by their names, over `aioproducer`: a program changes one import.

::

    from aioproducer.contrib.confluent import Producer

It takes librdkafka's configuration with its defaults, see `translate`, and raises `KafkaException`. confluent-kafka need not
be installed. `Producer` and `AIOProducer` say where they differ.
"""

from __future__ import annotations

from aioproducer.contrib.confluent.aio import AIOProducer
from aioproducer.contrib.confluent.configuration import Translation, translate
from aioproducer.contrib.confluent.errors import KafkaError, KafkaException
from aioproducer.contrib.confluent.message import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Message,
)
from aioproducer.contrib.confluent.metadata import BrokerMetadata, ClusterMetadata, PartitionMetadata, TopicMetadata
from aioproducer.contrib.confluent.producer import Producer

__all__ = [
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_LOG_APPEND_TIME",
    "TIMESTAMP_NOT_AVAILABLE",
    "AIOProducer",
    "BrokerMetadata",
    "ClusterMetadata",
    "KafkaError",
    "KafkaException",
    "Message",
    "PartitionMetadata",
    "Producer",
    "TopicMetadata",
    "Translation",
    "translate",
]
