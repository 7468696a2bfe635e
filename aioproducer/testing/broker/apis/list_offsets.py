"""ListOffsets (api key 2): the first offset of a log, its end, or the offset at a time.

Timestamps: -2 the start of the log, -1 its end, -3 (version 7) the record with the largest timestamp, -4 (version 8) the
start of the local log; anything else is a time in milliseconds. With isolation level 1 (read_committed) the log
ends at its last stable offset.
"""

from __future__ import annotations

from typing import NamedTuple

from aioproducer.protocol import ErrorCode
from aioproducer.protocol.messages import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from aioproducer.testing.broker.apis.leadership import check_leader
from aioproducer.testing.broker.log import PartitionLog
from aioproducer.testing.broker.request import ApiHandler, RequestContext

__all__ = ["HANDLER"]

_READ_COMMITTED = 1

_LATEST = -1
_EARLIEST = -2
_MAX_TIMESTAMP = -3
_EARLIEST_LOCAL = -4


class _Found(NamedTuple):
    timestamp: int
    offset: int


def handle(context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """The offset of each requested partition."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _partition(context, topic.name, asked, committed=request.isolation_level == _READ_COMMITTED)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _partition(
    context: RequestContext, name: str, asked: ListOffsetsPartition, *, committed: bool
) -> ListOffsetsPartitionResponse:
    topic = context.cluster.topics.get(name)
    partition = None if topic is None else topic.partition(asked.partition_index)
    injected = context.plan.injected_for(name, asked.partition_index)
    code = check_leader(context, partition, asked.current_leader_epoch) if injected is None else injected.code
    if code != ErrorCode.NONE or partition is None:
        return ListOffsetsPartitionResponse(
            partition_index=asked.partition_index, error_code=code, timestamp=-1, offset=-1
        )
    log = partition.log
    found = _find(log, asked.timestamp, log.last_stable_offset if committed else log.end_offset)
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        error_code=ErrorCode.NONE,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=partition.leader_epoch,
    )


def _find(log: PartitionLog, timestamp: int, end: int) -> _Found:
    if timestamp == _LATEST:
        return _Found(-1, end)
    if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        return _Found(-1, log.start_offset)
    if timestamp == _MAX_TIMESTAMP:
        newest = max(log.records(), key=lambda record: record.timestamp_ms, default=None)
    else:
        newest = log.first_record_since(timestamp)
    return _Found(-1, -1) if newest is None or newest.offset >= end else _Found(newest.timestamp_ms, newest.offset)


def _partitions(context: RequestContext, request: ListOffsetsRequest) -> dict[str, frozenset[int]]:
    return {topic.name: frozenset(asked.partition_index for asked in topic.partitions) for topic in request.topics}


HANDLER = ApiHandler.of(ListOffsetsRequest, handle, partitions=_partitions)
