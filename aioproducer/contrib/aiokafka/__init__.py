"""aiokafka's producer by its names, over `aioproducer.Producer`: a program changes one import.

::

    from aioproducer.contrib.aiokafka import AIOKafkaProducer

It takes aiokafka 0.14's options with its defaults, and raises exceptions with its names: see `errors`. aiokafka need not be
installed. `AIOKafkaProducer` says where it differs.
"""

from __future__ import annotations

from aioproducer.contrib.aiokafka import errors
from aioproducer.contrib.aiokafka.options import create_ssl_context
from aioproducer.contrib.aiokafka.producer import AIOKafkaProducer, TransactionContext
from aioproducer.contrib.aiokafka.records import BatchBuilder
from aioproducer.contrib.aiokafka.structs import OffsetAndMetadata, RecordMetadata, TopicPartition

__all__ = [
    "AIOKafkaProducer",
    "BatchBuilder",
    "OffsetAndMetadata",
    "RecordMetadata",
    "TopicPartition",
    "TransactionContext",
    "create_ssl_context",
    "errors",
]
