"""DeleteTopics (api key 20): deletes topics at once, by name or (version 6) by id."""

from __future__ import annotations

from uuid import UUID

from aioproducer.protocol import ErrorCode
from aioproducer.protocol.messages import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from aioproducer.protocol.wire import ZERO_UUID
from aioproducer.testing.broker.request import ApiHandler, RequestContext

__all__ = ["HANDLER"]

_STATES_SINCE = 6


def handle(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Delete the topics that exist."""
    if context.version < _STATES_SINCE:
        return DeleteTopicsResponse(responses=[_delete(context, name, ZERO_UUID) for name in request.topic_names])
    return DeleteTopicsResponse(responses=[_delete(context, asked.name, asked.topic_id) for asked in request.topics])


def _delete(context: RequestContext, name: str | None, topic_id: UUID) -> DeletableTopicResult:
    cluster = context.cluster
    topic = cluster.topic_by_id(topic_id) if name is None else cluster.topics.get(name)
    if topic is None:
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return DeletableTopicResult(name=name, topic_id=topic_id, error_code=unknown, error_message=None)
    injected = context.plan.injected_for(topic.name)
    if injected is None or injected.applied:
        cluster.delete_topic(topic.name)
    code = ErrorCode.NONE if injected is None else injected.code
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=code, error_message=None)


def _partitions(context: RequestContext, request: DeleteTopicsRequest) -> dict[str, frozenset[int]]:
    names = request.topic_names if context.version < _STATES_SINCE else [asked.name for asked in request.topics]
    return {name: frozenset() for name in names if name is not None}


HANDLER = ApiHandler.of(DeleteTopicsRequest, handle, partitions=_partitions)
