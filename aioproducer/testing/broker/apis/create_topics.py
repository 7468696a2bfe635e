"""CreateTopics (api key 19): creates topics at once. -1 partitions or replicas use the broker's default (version 4)."""

from __future__ import annotations

from aioproducer.errors import ConfigError
from aioproducer.protocol import ErrorCode
from aioproducer.protocol.messages import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from aioproducer.testing.broker.cluster_state import TopicSpec, is_valid_topic
from aioproducer.testing.broker.log import TopicConfig
from aioproducer.testing.broker.request import ApiHandler, RequestContext

__all__ = ["HANDLER"]


def handle(context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Create the topics, or only validate the request."""
    return CreateTopicsResponse(topics=[_create(context, asked, request.validate_only) for asked in request.topics])


def _create(context: RequestContext, asked: CreatableTopic, validate_only: bool) -> CreatableTopicResult:
    injected = context.plan.injected_for(asked.name)
    if injected is not None and not injected.applied:
        return _failed(asked, injected.code, "injected by the test")
    result = _checked(context, asked, validate_only)
    return (
        result
        if injected is None
        else _failed(asked, injected.code, "injected by the test, after the topic was created")
    )


def _checked(context: RequestContext, asked: CreatableTopic, validate_only: bool) -> CreatableTopicResult:
    cluster = context.cluster
    if not is_valid_topic(asked.name):
        return _failed(asked, ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name {asked.name!r} is invalid")
    if asked.name in cluster.topics:
        return _failed(asked, ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic {asked.name!r} already exists.")
    partitions = cluster.num_partitions if asked.num_partitions == -1 else asked.num_partitions
    if partitions < 1:
        return _failed(asked, ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    replicas = cluster.default_replication if asked.replication_factor == -1 else asked.replication_factor
    if not 1 <= replicas <= len(cluster.nodes):
        return _failed(asked, ErrorCode.INVALID_REPLICATION_FACTOR, f"Unable to replicate to {replicas} brokers.")
    try:
        config = TopicConfig.from_kafka({config.name: config.value for config in asked.configs})
    except ConfigError as error:
        return _failed(asked, ErrorCode.INVALID_CONFIG, str(error))
    if validate_only:
        return CreatableTopicResult(name=asked.name, error_code=ErrorCode.NONE, error_message=None)
    topic = cluster.create_topic(asked.name, TopicSpec(partitions, replicas, config))
    return CreatableTopicResult(
        name=asked.name,
        topic_id=topic.topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=partitions,
        replication_factor=replicas,
    )


def _failed(asked: CreatableTopic, code: ErrorCode, message: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=asked.name, error_code=code, error_message=message)


def _partitions(context: RequestContext, request: CreateTopicsRequest) -> dict[str, frozenset[int]]:
    return {asked.name: frozenset() for asked in request.topics}


HANDLER = ApiHandler.of(CreateTopicsRequest, handle, partitions=_partitions)
