"""DescribeProducers (api key 61): the producers that a replica of a partition knows (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterator

from aioproducer.protocol import ErrorCode
from aioproducer.protocol.messages import (
    DescribedProducer,
    DescribedProducersTopic,
    DescribeProducersPartition,
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from aioproducer.testing.broker.cluster_state import Partition
from aioproducer.testing.broker.log import PartitionLog
from aioproducer.testing.broker.request import ApiHandler, RequestContext

__all__ = ["HANDLER"]

_NONE = -1


def handle(context: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
    """The producers of each requested partition."""
    return DescribeProducersResponse(
        topics=[
            DescribedProducersTopic(
                name=topic.name,
                partitions=[_partition(context, topic.name, index) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _partition(context: RequestContext, name: str, index: int) -> DescribeProducersPartition:
    topic = context.cluster.topics.get(name)
    partition = None if topic is None else topic.partition(index)
    injected = context.plan.injected_for(name, index)
    code = _check_replica(context, partition) if injected is None else injected.code
    producers = [] if code != ErrorCode.NONE or partition is None else list(_producers(partition.log))
    return DescribeProducersPartition(partition_index=index, error_code=code, active_producers=producers)


def _check_replica(context: RequestContext, partition: Partition | None) -> ErrorCode:
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE if context.node.node_id in partition.replicas else ErrorCode.NOT_LEADER_OR_FOLLOWER


def _producers(log: PartitionLog) -> Iterator[DescribedProducer]:
    for producer_id, state in log.producers.items():
        yield DescribedProducer(
            producer_id=producer_id,
            producer_epoch=state.epoch,
            last_sequence=state.last_sequence,
            last_timestamp=state.last_timestamp_ms,
            coordinator_epoch=state.coordinator_epoch,
            current_txn_start_offset=log.open_transactions.get(producer_id, _NONE),
        )


def _partitions(context: RequestContext, request: DescribeProducersRequest) -> dict[str, frozenset[int]]:
    return {topic.name: frozenset(topic.partition_indexes) for topic in request.topics}


HANDLER = ApiHandler.of(DescribeProducersRequest, handle, partitions=_partitions)
