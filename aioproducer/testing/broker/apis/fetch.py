"""Fetch (api key 1): returns stored batches to a consumer.

Long polling: with less than ``min_bytes`` available the response waits up to ``max_wait_ms``. There are no fetch sessions
(KIP-227): every response has session id 0, so the client must send full requests. Whole batches are returned, the first
one even if it is larger than the limits. The whole log is replicated: high watermark and end are the same. With isolation
level 1 (read_committed) reading ends at the last stable offset, and the response lists the transactions whose records must
be dropped. From version 13 on, topics are named by id.
"""

from __future__ import annotations

from aioproducer.protocol import ErrorCode
from aioproducer.protocol.messages import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from aioproducer.testing.broker.apis.leadership import check_leader
from aioproducer.testing.broker.cluster_state import Topic
from aioproducer.testing.broker.log import PartitionLog
from aioproducer.testing.broker.request import ApiHandler, NotYet, RequestContext

__all__ = ["HANDLER"]

_TOPIC_IDS_SINCE = 13
_READ_COMMITTED = 1


def handle(context: RequestContext, request: FetchRequest) -> FetchResponse | NotYet:
    """The batches from the requested offsets on."""
    response = _read(context, request)
    if context.patience and not _is_enough(response, request.min_bytes):
        return NotYet(request.max_wait_ms / 1000, lambda: _is_enough(_read(context, request), request.min_bytes))
    return response


def refuse(context: RequestContext, request: FetchRequest, code: ErrorCode) -> FetchResponse:
    """An error for the request as a whole."""
    return FetchResponse(error_code=code, session_id=0, responses=[])


def _is_enough(response: FetchResponse, min_bytes: int) -> bool:
    parts = [part for topic in response.responses for part in topic.partitions]
    if not parts or any(part.error_code != ErrorCode.NONE for part in parts):
        return True
    return sum(len(part.records or b"") for part in parts) >= min_bytes


def _read(context: RequestContext, request: FetchRequest) -> FetchResponse:
    room = request.max_bytes
    topics: list[FetchableTopicResponse] = []
    for asked in request.topics:
        parts: list[PartitionData] = []
        for partition in asked.partitions:
            committed = request.isolation_level == _READ_COMMITTED
            first = room == request.max_bytes
            part = _read_partition(context, asked, partition, room, first=first, committed=committed)
            room -= len(part.records or b"")
            parts.append(part)
        topics.append(FetchableTopicResponse(topic=asked.topic, topic_id=asked.topic_id, partitions=parts))
    return FetchResponse(error_code=ErrorCode.NONE, session_id=0, responses=topics)


def _read_partition(
    context: RequestContext, topic: FetchTopic, asked: FetchPartition, room: int, *, first: bool, committed: bool
) -> PartitionData:
    found = _find_topic(context, topic)
    if found is None:
        by_id = context.version >= _TOPIC_IDS_SINCE
        return _error(asked, ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partition = found.partition(asked.partition)
    injected = context.plan.injected_for(found.name, asked.partition)
    code = check_leader(context, partition, asked.current_leader_epoch) if injected is None else injected.code
    if code != ErrorCode.NONE or partition is None:
        return _error(asked, code)
    log = partition.log
    if not log.start_offset <= asked.fetch_offset <= log.end_offset:
        return _error(asked, ErrorCode.OFFSET_OUT_OF_RANGE)
    end = log.last_stable_offset if committed else log.end_offset
    return PartitionData(
        partition_index=asked.partition,
        error_code=ErrorCode.NONE,
        high_watermark=log.end_offset,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.start_offset,
        aborted_transactions=_aborted(log, asked.fetch_offset, end) if committed else None,
        records=log.read(asked.fetch_offset, min(asked.partition_max_bytes, room), at_least_one=first, before=end),
    )


def _aborted(log: PartitionLog, offset: int, end: int) -> list[AbortedTransaction]:
    return [
        AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
        for each in log.aborted_in(offset, end)
    ]


def _error(asked: FetchPartition, code: ErrorCode) -> PartitionData:
    """As in brokers, a response with an error does not contain the log's bounds."""
    return PartitionData(
        partition_index=asked.partition,
        error_code=code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=None,
        records=b"",
    )


def _find_topic(context: RequestContext, asked: FetchTopic) -> Topic | None:
    if context.version >= _TOPIC_IDS_SINCE:
        return context.cluster.topic_by_id(asked.topic_id)
    return context.cluster.topics.get(asked.topic)


def _partitions(context: RequestContext, request: FetchRequest) -> dict[str, frozenset[int]]:
    found = [(_find_topic(context, asked), asked) for asked in request.topics]
    return {
        topic.name: frozenset(each.partition for each in asked.partitions)
        for topic, asked in found
        if topic is not None
    }


HANDLER = ApiHandler.of(FetchRequest, handle, partitions=_partitions)
