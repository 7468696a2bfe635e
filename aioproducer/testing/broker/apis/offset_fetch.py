"""OffsetFetch (api key 9): where groups stand.

With ``require_stable`` a partition that an open transaction has an offset for is answered with UNSTABLE_OFFSET_COMMIT. Up
to version 7 one group is asked for, from version 8 on several, and from version 10 on topics are named by id. Version 1 has
no error of the whole group: each partition has it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from aioproducer.protocol import ErrorCode
from aioproducer.protocol.messages import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from aioproducer.protocol.wire import ZERO_UUID
from aioproducer.testing.broker.apis.coordination import check_group_coordinator
from aioproducer.testing.broker.cluster_state import Topic
from aioproducer.testing.broker.consumer_group import CommittedOffset, ConsumerGroup
from aioproducer.testing.broker.request import ApiHandler, RequestContext

__all__ = ["HANDLER"]

_GROUP_ERROR_SINCE = 2
_MANY_GROUPS_SINCE = 8
_TOPIC_IDS_SINCE = 10
_NOTHING = CommittedOffset(-1)


def handle(context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """The committed offset of each partition that is asked for, -1 where there is none."""
    return _response(context, [_group(context, request, asked) for asked in _groups(context, request)])


def refuse(context: RequestContext, request: OffsetFetchRequest, code: ErrorCode) -> OffsetFetchResponse:
    """An error for each group."""
    return _response(context, [_refused(context, asked, code) for asked in _groups(context, request)])


def _groups(context: RequestContext, request: OffsetFetchRequest) -> list[OffsetFetchRequestGroup]:
    if context.version >= _MANY_GROUPS_SINCE:
        return request.groups
    return [OffsetFetchRequestGroup(group_id=request.group_id, topics=request.topics)]


def _response(context: RequestContext, groups: list[OffsetFetchResponseGroup]) -> OffsetFetchResponse:
    if context.version >= _MANY_GROUPS_SINCE:
        return OffsetFetchResponse(groups=groups)
    (one,) = groups
    return OffsetFetchResponse(topics=one.topics, error_code=one.error_code)


def _refused(context: RequestContext, asked: OffsetFetchRequestGroup, code: ErrorCode) -> OffsetFetchResponseGroup:
    topics = (
        [] if context.version >= _GROUP_ERROR_SINCE else [_refused_topic(topic, code) for topic in asked.topics or ()]
    )
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics, error_code=code)


def _refused_topic(asked: OffsetFetchRequestTopic, code: ErrorCode) -> OffsetFetchResponseTopic:
    partitions = [_partition(index, _NOTHING, code) for index in asked.partition_indexes]
    return OffsetFetchResponseTopic(name=asked.name, partitions=partitions)


def _group(
    context: RequestContext, request: OffsetFetchRequest, asked: OffsetFetchRequestGroup
) -> OffsetFetchResponseGroup:
    code = check_group_coordinator(context, asked.group_id)
    if code is not ErrorCode.NONE:
        return _refused(context, asked, code)
    group = context.cluster.groups.groups.get(asked.group_id, ConsumerGroup(asked.group_id))
    topics = _all_topics(context, group) if asked.topics is None else asked.topics
    return OffsetFetchResponseGroup(
        group_id=asked.group_id,
        topics=[_topic(context, group, topic, require_stable=request.require_stable) for topic in topics],
    )


def _all_topics(context: RequestContext, group: ConsumerGroup) -> Iterable[OffsetFetchRequestTopic]:
    for name, partitions in groupby(sorted(group.offsets), key=lambda where: where[0]):
        topic = context.cluster.topics.get(name)
        topic_id = ZERO_UUID if topic is None else topic.topic_id
        yield OffsetFetchRequestTopic(
            name=name, topic_id=topic_id, partition_indexes=[index for _, index in partitions]
        )


def _topic(
    context: RequestContext, group: ConsumerGroup, asked: OffsetFetchRequestTopic, *, require_stable: bool
) -> OffsetFetchResponseTopic:
    found = _find_topic(context, asked)
    unknown = found is None and context.version >= _TOPIC_IDS_SINCE
    name = asked.name if found is None else found.name
    return OffsetFetchResponseTopic(
        name=asked.name,
        topic_id=asked.topic_id,
        partitions=[
            _partition(index, _NOTHING, ErrorCode.UNKNOWN_TOPIC_ID)
            if unknown
            else _stable_partition(group, name, index)
            if require_stable
            else _partition(index, group.offsets.get((name, index), _NOTHING))
            for index in asked.partition_indexes
        ],
    )


def _stable_partition(group: ConsumerGroup, name: str, index: int) -> OffsetFetchResponsePartition:
    if group.is_unstable((name, index)):
        return _partition(index, _NOTHING, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    return _partition(index, group.offsets.get((name, index), _NOTHING))


def _partition(
    index: int, committed: CommittedOffset, code: ErrorCode = ErrorCode.NONE
) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=code,
    )


def _find_topic(context: RequestContext, asked: OffsetFetchRequestTopic) -> Topic | None:
    if context.version >= _TOPIC_IDS_SINCE:
        return context.cluster.topic_by_id(asked.topic_id)
    return context.cluster.topics.get(asked.name)


HANDLER = ApiHandler.of(OffsetFetchRequest, handle, refuse)
