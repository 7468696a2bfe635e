"""Metadata (api key 3): the brokers, and the topics with the leaders of their partitions."""

from __future__ import annotations

from aioproducer.protocol.api_key import ApiKey
from aioproducer.protocol.message import (
    Array,
    Bool,
    Int16,
    Int32,
    NullableArray,
    NullableString,
    Request,
    Response,
    String,
    Struct,
    Uuid,
    always,
    since,
)
from aioproducer.protocol.wire import ZERO_UUID

__all__ = [
    "NO_AUTHORIZED_OPERATIONS",
    "MetadataRequest",
    "MetadataRequestTopic",
    "MetadataResponse",
    "MetadataResponseBroker",
    "MetadataResponsePartition",
    "MetadataResponseTopic",
]

#: The value of the authorized operations (a bit set) if they were not requested.
NO_AUTHORIZED_OPERATIONS = -0x80000000


class MetadataRequestTopic(Struct):
    """A requested topic. By id only from version 12 on: 10 and 11 have the field, but brokers refuse it."""

    topic_id: Uuid = since(10, default=ZERO_UUID)
    name: NullableString = always(default=None, nullable=10)


class MetadataResponseBroker(Struct):
    """A broker, with its address on the listener that received the request."""

    node_id: Int32
    host: String
    port: Int32
    rack: NullableString = None


class MetadataResponsePartition(Struct):
    """A partition. ``leader_id`` -1: it has none. ``leader_epoch`` can be trusted from version 9 on (KAFKA-9212)."""

    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = since(7, default=-1)
    replica_nodes: Array[Int32] = always(default=[])
    isr_nodes: Array[Int32] = always(default=[])
    offline_replicas: Array[Int32] = since(5, default=[])


class MetadataResponseTopic(Struct):
    """A topic; the name is null if the broker does not know the requested id."""

    error_code: Int16
    name: NullableString = always(nullable=12)
    topic_id: Uuid = since(10, default=ZERO_UUID)
    is_internal: Bool = False
    partitions: Array[MetadataResponsePartition] = always(default=[])
    topic_authorized_operations: Int32 = since(8, default=NO_AUTHORIZED_OPERATIONS)


class MetadataResponse(Response):
    """The cluster as one broker knows it. ``error_code`` can be REBOOTSTRAP_REQUIRED (KIP-1102)."""

    throttle_time_ms: Int32 = since(3, default=0)
    brokers: Array[MetadataResponseBroker]
    cluster_id: NullableString = since(2, default=None)
    controller_id: Int32 = -1
    topics: Array[MetadataResponseTopic]
    cluster_authorized_operations: Int32 = since(8, until=10, default=NO_AUTHORIZED_OPERATIONS)
    error_code: Int16 = since(13, default=0)

    @classmethod
    def _may_end_with(cls, version: int, rest: bytes) -> bool:
        # librdkafka's mock cluster (2.16) ends its flexible responses with a second, empty section of tagged fields.
        return cls.is_flexible(version) and rest == b"\0"


class MetadataRequest(Request[MetadataResponse], api_key=ApiKey.METADATA, versions=(1, 13), flexible=9):
    """``topics`` None requests all topics, an empty list none."""

    topics: NullableArray[MetadataRequestTopic]
    allow_auto_topic_creation: Bool = since(4, default=True)
    include_cluster_authorized_operations: Bool = since(8, until=10, default=False)
    include_topic_authorized_operations: Bool = since(8, default=False)
