"""CreateTopics (api key 19): creates topics; a producer does not need it, its tests do."""

from __future__ import annotations

from aioproducer.protocol.api_key import ApiKey
from aioproducer.protocol.message import (
    Array,
    Bool,
    Int8,
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
    tagged,
)
from aioproducer.protocol.wire import ZERO_UUID

__all__ = [
    "CreatableReplicaAssignment",
    "CreatableTopic",
    "CreatableTopicConfig",
    "CreatableTopicConfigs",
    "CreatableTopicResult",
    "CreateTopicsRequest",
    "CreateTopicsResponse",
]


class CreatableReplicaAssignment(Struct):
    """The brokers of one partition, the preferred leader first."""

    partition_index: Int32
    broker_ids: Array[Int32]


class CreatableTopicConfig(Struct):
    """A configuration for the new topic."""

    name: String
    value: NullableString


class CreatableTopic(Struct):
    """A topic to create; -1 partitions or replicas use the broker's default (version 4), or that of the assignments."""

    name: String
    num_partitions: Int32 = -1
    replication_factor: Int16 = -1
    assignments: Array[CreatableReplicaAssignment] = always(default=[])
    configs: Array[CreatableTopicConfig] = always(default=[])


class CreatableTopicConfigs(Struct):
    """A configuration of the created topic."""

    name: String
    value: NullableString
    read_only: Bool = False
    config_source: Int8 = -1
    is_sensitive: Bool = False


class CreatableTopicResult(Struct):
    """The result for one topic; ``configs`` is null if access is denied, ``topic_config_error_code`` says why."""

    name: String
    topic_id: Uuid = since(7, default=ZERO_UUID)
    error_code: Int16
    error_message: NullableString = None
    topic_config_error_code: Int16 = tagged(0, since=5, default=0)
    num_partitions: Int32 = since(5, default=-1)
    replication_factor: Int16 = since(5, default=-1)
    configs: NullableArray[CreatableTopicConfigs] = since(5, default=[])


class CreateTopicsResponse(Response):
    """One result for each topic of the request."""

    throttle_time_ms: Int32 = 0
    topics: Array[CreatableTopicResult]


class CreateTopicsRequest(Request[CreateTopicsResponse], api_key=ApiKey.CREATE_TOPICS, versions=(2, 7), flexible=5):
    """With ``validate_only`` nothing is created. The broker waits up to ``timeout_ms`` until the topics exist."""

    topics: Array[CreatableTopic]
    timeout_ms: Int32 = 60_000
    validate_only: Bool = False
