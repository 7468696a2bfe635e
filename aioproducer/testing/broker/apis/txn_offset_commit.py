"""TxnOffsetCommit (api key 28): offsets of a group that count as soon as the transaction is committed.

Version 3 names the member (KIP-447), version 5 adds the group to the transaction by itself (transaction.version 2), and
version 6 names topics by id.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from aioproducer.protocol import ErrorCode
from aioproducer.protocol.messages import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from aioproducer.testing.broker.apis.coordination import check_group_coordinator
from aioproducer.testing.broker.apis.verification import Support, verify
from aioproducer.testing.broker.cluster_state import Topic
from aioproducer.testing.broker.consumer_group import Caller, CommittedOffset
from aioproducer.testing.broker.group_offsets import OFFSETS_TOPIC, offsets_partition
from aioproducer.testing.broker.request import ApiHandler, RequestContext
from aioproducer.testing.broker.transaction_state import ProducerIdAndEpoch

__all__ = ["HANDLER"]

_TOPIC_IDS_SINCE = 6
_ADDS_GROUP_SINCE = 5
_GENERIC_ERROR_SINCE = 4
_LARGEST_METADATA = 4096  # offset.metadata.max.bytes


class _Asked(NamedTuple):
    topic: Topic | None
    partition: TxnOffsetCommitRequestPartition


def handle(context: RequestContext, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    """One answer for each partition; those of topics that do not exist do not keep the others from being taken."""
    whole = context.plan.injected_for()
    if whole is not None and not whole.applied:
        return _response(context, request, {}, whole.code)
    asked = list(_asked(context, request))
    checked = {id(each.partition): _check(context, each) for each in asked}
    refused: dict[int, ErrorCode] = {where: code for where, code in checked.items() if code != ErrorCode.NONE}
    valid = [each for each in asked if id(each.partition) not in refused]
    code = _check_request(context, request) if valid else ErrorCode.NONE
    if code is ErrorCode.NONE:
        refused |= {id(each.partition): ErrorCode.OFFSET_METADATA_TOO_LARGE for each in valid if _is_too_large(each)}
        _commit(context, request, [each for each in valid if id(each.partition) not in refused])
    for each in asked:
        injected = context.plan.injected_for(None if each.topic is None else each.topic.name, _index(each))
        if injected is not None:
            refused[id(each.partition)] = injected.code
    return _response(context, request, refused, code)


def _asked(context: RequestContext, request: TxnOffsetCommitRequest) -> Iterator[_Asked]:
    for topic in request.topics:
        found = _find_topic(context, topic)
        for partition in topic.partitions:
            yield _Asked(found, partition)


def _check(context: RequestContext, asked: _Asked) -> ErrorCode:
    if asked.topic is None:
        by_id = context.version >= _TOPIC_IDS_SINCE
        return ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    injected = context.plan.injected_for(asked.topic.name, _index(asked))
    if injected is not None and not injected.applied:
        return injected.code
    if asked.topic.partition(_index(asked)) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def _is_too_large(asked: _Asked) -> bool:
    return len((asked.partition.committed_metadata or "").encode()) > _LARGEST_METADATA


def _commit(context: RequestContext, request: TxnOffsetCommitRequest, valid: list[_Asked]) -> None:
    offsets = {
        ("" if each.topic is None else each.topic.name, _index(each)): CommittedOffset(
            each.partition.committed_offset,
            each.partition.committed_leader_epoch,
            each.partition.committed_metadata or "",
        )
        for each in valid
    }
    if offsets:
        context.cluster.groups.add(request.group_id, _producer(request), offsets)


def _check_request(context: RequestContext, request: TxnOffsetCommitRequest) -> ErrorCode:
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    code = check_group_coordinator(context, request.group_id)
    if code is not ErrorCode.NONE:
        return code
    groups, producer = context.cluster.groups, _producer(request)
    if not groups.is_open(request.group_id, producer):
        where = (OFFSETS_TOPIC, offsets_partition(request.group_id))
        code = verify(context, request.transactional_id, producer, where, _support(context))
        if code is not ErrorCode.NONE:
            return code
    if context.node.release.makes_groups_of_strangers:
        groups.group(request.group_id)
    member = Caller(request.generation_id_or_member_epoch, request.member_id, request.group_instance_id)
    code = groups.refuse(request.group_id, member)
    if code is ErrorCode.NONE and groups.is_fenced(request.group_id, producer):
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def _support(context: RequestContext) -> Support:
    if context.version >= _ADDS_GROUP_SINCE:
        return Support.ADD_PARTITION
    return Support.GENERIC_ERROR if context.version >= _GENERIC_ERROR_SINCE else Support.DEFAULT_ERROR


def _producer(request: TxnOffsetCommitRequest) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(request.producer_id, request.producer_epoch)


def _response(
    context: RequestContext, request: TxnOffsetCommitRequest, refused: dict[int, ErrorCode], code: ErrorCode
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=refused.get(id(partition), code)
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _index(asked: _Asked) -> int:
    return asked.partition.partition_index


def _find_topic(context: RequestContext, asked: TxnOffsetCommitRequestTopic) -> Topic | None:
    if context.version >= _TOPIC_IDS_SINCE:
        return context.cluster.topic_by_id(asked.topic_id)
    return context.cluster.topics.get(asked.name)


def _partitions(context: RequestContext, request: TxnOffsetCommitRequest) -> dict[str, frozenset[int]]:
    found = [(_find_topic(context, topic), topic) for topic in request.topics]
    return {
        topic.name: frozenset(partition.partition_index for partition in asked.partitions)
        for topic, asked in found
        if topic is not None
    }


HANDLER = ApiHandler.of(TxnOffsetCommitRequest, handle, partitions=_partitions)
