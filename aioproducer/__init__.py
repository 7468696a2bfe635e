"""The asyncio-native Apache Kafka producer for Python.

::

    async with Producer("localhost:9092") as producer:
        await producer.send("orders", b"value", key=b"key")

The names are imported when they are first used: every pytest run of its users loads the pytest plugin, which needs none
of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from aioproducer._version import __version__

if TYPE_CHECKING:
    from aioproducer.config import OAuthToken, ProducerConfig, ProducerOptions
    from aioproducer.core.partitioner import Partitioner, PartitionIds, RoundRobinPartitioner
    from aioproducer.core.transactions.handle import TransactionHandle
    from aioproducer.core.transactions.prepared_transaction import PreparedTransactionState
    from aioproducer.delivery import Delivery
    from aioproducer.errors import (
        AuthenticationError,
        BrokerConnectionError,
        BrokerError,
        BufferFull,
        CommitFailed,
        CommitUnknown,
        ConfigError,
        CorruptRecord,
        DeliveryError,
        ForkedProcess,
        InvalidRecord,
        KafkaError,
        KafkaTimeoutError,
        LastError,
        MetadataNotReady,
        NotStarted,
        NotWritten,
        NotWrittenTimeout,
        PartitionStopped,
        ProducerClosed,
        ProducerDied,
        ProducerFenced,
        ProducerIdExpired,
        ProducerStateError,
        ProtocolError,
        RecordsPurged,
        RecordTooLarge,
        ReopenRequired,
        SendManyError,
        SerializationError,
        SharedPartition,
        TransactionAbortable,
        TransactionAborted,
        TransactionError,
        TransactionFatal,
        TransactionStateError,
        Unknown,
        UnknownTimeout,
        UnsupportedVersion,
        WrongEventLoop,
    )
    from aioproducer.interceptors import ProducerInterceptor
    from aioproducer.metrics.application import ApplicationMetric
    from aioproducer.producer import Producer
    from aioproducer.serializers import (
        BytesSerializer,
        IntegerSerializer,
        JsonSerializer,
        LongSerializer,
        SerializationContext,
        StringSerializer,
    )
    from aioproducer.sync import SyncDelivery, SyncProducer, SyncTransaction
    from aioproducer.transactions.client import TransactionCoordinatorClient
    from aioproducer.transactions.context import Transaction
    from aioproducer.types import (
        BrokerInfo,
        CloseReport,
        ClusterInfo,
        ConsumerGroupMetadata,
        Health,
        HealthStatus,
        OffsetAndMetadata,
        PartitionInfo,
        ProducerRecord,
        PurgeReport,
        RecordMetadata,
        SendManyResult,
        TimestampType,
        TopicInfo,
        TopicPartition,
        Written,
    )

__all__ = [
    "ApplicationMetric",
    "AuthenticationError",
    "BrokerConnectionError",
    "BrokerError",
    "BrokerInfo",
    "BufferFull",
    "BytesSerializer",
    "CloseReport",
    "ClusterInfo",
    "CommitFailed",
    "CommitUnknown",
    "ConfigError",
    "ConsumerGroupMetadata",
    "CorruptRecord",
    "Delivery",
    "DeliveryError",
    "ForkedProcess",
    "Health",
    "HealthStatus",
    "IntegerSerializer",
    "InvalidRecord",
    "JsonSerializer",
    "KafkaError",
    "KafkaTimeoutError",
    "LastError",
    "LongSerializer",
    "MetadataNotReady",
    "NotStarted",
    "NotWritten",
    "NotWrittenTimeout",
    "OAuthToken",
    "OffsetAndMetadata",
    "PartitionIds",
    "PartitionInfo",
    "PartitionStopped",
    "Partitioner",
    "PreparedTransactionState",
    "Producer",
    "ProducerClosed",
    "ProducerConfig",
    "ProducerDied",
    "ProducerFenced",
    "ProducerIdExpired",
    "ProducerInterceptor",
    "ProducerOptions",
    "ProducerRecord",
    "ProducerStateError",
    "ProtocolError",
    "PurgeReport",
    "RecordMetadata",
    "RecordTooLarge",
    "RecordsPurged",
    "ReopenRequired",
    "RoundRobinPartitioner",
    "SendManyError",
    "SendManyResult",
    "SerializationContext",
    "SerializationError",
    "SharedPartition",
    "StringSerializer",
    "SyncDelivery",
    "SyncProducer",
    "SyncTransaction",
    "TimestampType",
    "TopicInfo",
    "TopicPartition",
    "Transaction",
    "TransactionAbortable",
    "TransactionAborted",
    "TransactionCoordinatorClient",
    "TransactionError",
    "TransactionFatal",
    "TransactionHandle",
    "TransactionStateError",
    "Unknown",
    "UnknownTimeout",
    "UnsupportedVersion",
    "Written",
    "WrongEventLoop",
    "__version__",
]

_HOMES = {
    "metrics.application": ("ApplicationMetric",),
    "config": (
        "OAuthToken",
        "ProducerConfig",
        "ProducerOptions",
    ),
    "transactions.client": ("TransactionCoordinatorClient",),
    "core.partitioner": (
        "PartitionIds",
        "Partitioner",
        "RoundRobinPartitioner",
    ),
    "core.transactions.prepared_transaction": ("PreparedTransactionState",),
    "core.transactions.handle": ("TransactionHandle",),
    "delivery": ("Delivery",),
    "errors": (
        "AuthenticationError",
        "BrokerConnectionError",
        "BrokerError",
        "BufferFull",
        "CommitFailed",
        "CommitUnknown",
        "ConfigError",
        "CorruptRecord",
        "DeliveryError",
        "ForkedProcess",
        "InvalidRecord",
        "KafkaError",
        "KafkaTimeoutError",
        "LastError",
        "MetadataNotReady",
        "NotStarted",
        "NotWritten",
        "NotWrittenTimeout",
        "PartitionStopped",
        "ProducerClosed",
        "ProducerDied",
        "ProducerFenced",
        "ProducerIdExpired",
        "ProducerStateError",
        "ProtocolError",
        "RecordTooLarge",
        "RecordsPurged",
        "ReopenRequired",
        "SendManyError",
        "SerializationError",
        "SharedPartition",
        "TransactionAbortable",
        "TransactionAborted",
        "TransactionError",
        "TransactionFatal",
        "TransactionStateError",
        "Unknown",
        "UnknownTimeout",
        "UnsupportedVersion",
        "WrongEventLoop",
    ),
    "interceptors": ("ProducerInterceptor",),
    "producer": ("Producer",),
    "serializers": (
        "BytesSerializer",
        "IntegerSerializer",
        "JsonSerializer",
        "LongSerializer",
        "SerializationContext",
        "StringSerializer",
    ),
    "sync": (
        "SyncDelivery",
        "SyncProducer",
        "SyncTransaction",
    ),
    "transactions.context": ("Transaction",),
    "types": (
        "BrokerInfo",
        "CloseReport",
        "ClusterInfo",
        "ConsumerGroupMetadata",
        "Health",
        "HealthStatus",
        "OffsetAndMetadata",
        "PartitionInfo",
        "ProducerRecord",
        "PurgeReport",
        "RecordMetadata",
        "SendManyResult",
        "TimestampType",
        "TopicInfo",
        "TopicPartition",
        "Written",
    ),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
