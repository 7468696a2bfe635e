"""DeleteTopics (api key 20): deletes topics; a producer does not need it, its tests do."""

from __future__ import annotations

from aioproducer.protocol.api_key import ApiKey
from aioproducer.protocol.message import (
    Array,
    Int16,
    Int32,
    NullableString,
    Request,
    Response,
    String,
    Struct,
    Uuid,
    always,
    since,
    until,
)
from aioproducer.protocol.wire import ZERO_UUID

__all__ = ["DeletableTopicResult", "DeleteTopicState", "DeleteTopicsRequest", "DeleteTopicsResponse"]


class DeleteTopicState(Struct):
    """A topic by its name, or by its id if the name is None."""

    name: NullableString = None
    topic_id: Uuid = ZERO_UUID


class DeletableTopicResult(Struct):
    """The result for one topic; the name is null for an unknown id."""

    name: NullableString = always(nullable=6)
    topic_id: Uuid = since(6, default=ZERO_UUID)
    error_code: Int16
    error_message: NullableString = since(5, default=None)


class DeleteTopicsResponse(Response):
    """One result for each topic of the request."""

    throttle_time_ms: Int32 = 0
    responses: Array[DeletableTopicResult]


class DeleteTopicsRequest(Request[DeleteTopicsResponse], api_key=ApiKey.DELETE_TOPICS, versions=(1, 6), flexible=4):
    """``topic_names`` up to version 5, ``topics`` from version 6 on."""

    topics: Array[DeleteTopicState] = since(6, default=[])
    topic_names: Array[String] = until(5, default=[])
    timeout_ms: Int32 = 60_000
