"""WriteTxnMarkers (api key 27): ends transactions in single partitions, whatever their coordinator knows of them."""

from __future__ import annotations

from aioproducer.protocol import ErrorCode
from aioproducer.protocol.messages import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from aioproducer.testing.broker.apis.leadership import check_leader
from aioproducer.testing.broker.request import ApiHandler, RequestContext

__all__ = ["HANDLER"]

_ANY_LEADER_EPOCH = -1


def handle(context: RequestContext, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    """Write each marker into each of its partitions."""
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=index, error_code=_write(context, marker, topic.name, index)
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def _write(context: RequestContext, marker: WritableTxnMarker, name: str, index: int) -> int:
    injected = context.plan.injected_for(name, index)
    if injected is not None and not injected.applied:
        return injected.code
    topic = context.cluster.topics.get(name)
    partition = None if topic is None else topic.partition(index)
    code = check_leader(context, partition, _ANY_LEADER_EPOCH)
    if code is not ErrorCode.NONE or partition is None:
        return code
    code = partition.log.refuse_marker(
        marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.transaction_version
    )
    if code is not ErrorCode.NONE:
        return code
    partition.log.end_transaction(
        marker.producer_id,
        marker.producer_epoch,
        committed=marker.transaction_result,
        leader_epoch=partition.leader_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        now_ms=context.now_ms,
    )
    return ErrorCode.NONE if injected is None else injected.code


def _partitions(context: RequestContext, request: WriteTxnMarkersRequest) -> dict[str, frozenset[int]]:
    named: dict[str, frozenset[int]] = {}
    for marker in request.markers:
        for topic in marker.topics:
            named[topic.name] = named.get(topic.name, frozenset()) | frozenset(topic.partition_indexes)
    return named


HANDLER = ApiHandler.of(WriteTxnMarkersRequest, handle, partitions=_partitions)
