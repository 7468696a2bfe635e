"""OffsetCommit (api key 8): stores how far a group has read. Version 10 names topics by id."""

from __future__ import annotations

from collections.abc import Callable

from aioproducer.protocol import ErrorCode
from aioproducer.protocol.messages import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from aioproducer.testing.broker.apis.coordination import check_group_coordinator
from aioproducer.testing.broker.cluster_state import Topic
from aioproducer.testing.broker.consumer_group import Caller, CommittedOffset
from aioproducer.testing.broker.request import ApiHandler, RequestContext

__all__ = ["HANDLER"]

_TOPIC_IDS_SINCE = 10
_GROUP_NOT_FOUND_SINCE = 9
_LARGEST_METADATA = 4096  # offset.metadata.max.bytes


def handle(context: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """One answer for each partition; those that do not exist do not keep the others from being taken."""
    whole = context.plan.injected_for()
    if whole is not None and not whole.applied:
        return _response(request, lambda topic, partition: whole.code)
    for_group = ErrorCode.NONE
    if any(_find(context, topic, each) for topic in request.topics for each in topic.partitions):
        for_group = _check_group(context, request)

    def commit(topic: OffsetCommitRequestTopic, asked: OffsetCommitRequestPartition) -> ErrorCode:
        code = _commit(context, request, for_group, topic, asked)
        return code if whole is None else whole.code

    return _response(request, commit)


def _check_group(context: RequestContext, request: OffsetCommitRequest) -> ErrorCode:
    code = check_group_coordinator(context, request.group_id)
    if code is not ErrorCode.NONE:
        return code
    caller = Caller(request.generation_id_or_member_epoch, request.member_id, request.group_instance_id)
    code = context.cluster.group_coordinator.check_commit(request.group_id, caller, context.now_ms)
    if code is ErrorCode.GROUP_ID_NOT_FOUND and (
        context.version < _GROUP_NOT_FOUND_SINCE or context.node.release.makes_groups_of_strangers
    ):
        return ErrorCode.ILLEGAL_GENERATION
    return code


def _commit(
    context: RequestContext,
    request: OffsetCommitRequest,
    for_group: ErrorCode,
    topic: OffsetCommitRequestTopic,
    asked: OffsetCommitRequestPartition,
) -> ErrorCode:
    found = _find(context, topic, asked)
    if found is None:
        by_id = context.version >= _TOPIC_IDS_SINCE and context.cluster.topic_by_id(topic.topic_id) is None
        return ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    injected = context.plan.injected_for(found.name, asked.partition_index)
    if injected is not None and not injected.applied:
        return injected.code
    if for_group is not ErrorCode.NONE:
        return for_group
    metadata = asked.committed_metadata or ""
    if len(metadata.encode()) > _LARGEST_METADATA:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    committed = CommittedOffset(asked.committed_offset, asked.committed_leader_epoch, metadata)
    context.cluster.groups.group(request.group_id).offsets[found.name, asked.partition_index] = committed
    return ErrorCode.NONE if injected is None else injected.code


def _response(
    request: OffsetCommitRequest,
    code_of: Callable[[OffsetCommitRequestTopic, OffsetCommitRequestPartition], ErrorCode],
) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code_of(topic, each))
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _find(
    context: RequestContext, topic: OffsetCommitRequestTopic, asked: OffsetCommitRequestPartition
) -> Topic | None:
    """The topic, if it has this partition."""
    found = _find_topic(context, topic)
    return None if found is None or found.partition(asked.partition_index) is None else found


def _find_topic(context: RequestContext, asked: OffsetCommitRequestTopic) -> Topic | None:
    if context.version >= _TOPIC_IDS_SINCE:
        return context.cluster.topic_by_id(asked.topic_id)
    return context.cluster.topics.get(asked.name)


def _partitions(context: RequestContext, request: OffsetCommitRequest) -> dict[str, frozenset[int]]:
    found = [(_find_topic(context, topic), topic) for topic in request.topics]
    return {
        topic.name: frozenset(each.partition_index for each in asked.partitions)
        for topic, asked in found
        if topic is not None
    }


HANDLER = ApiHandler.of(OffsetCommitRequest, handle, partitions=_partitions)
