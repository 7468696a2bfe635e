"""Produce (api key 0): appends record batches to the logs that this node leads.

Before the first batch of a transaction is appended to this log, the transaction coordinator is asked; from version 12 on
(transaction.version 2) it adds the partition to the transaction, before that the partition must already be part of it.

With acks=0 there is no response; an error closes the connection instead, so that the producer notices. From version 10 a
NOT_LEADER_OR_FOLLOWER response names the leader (KIP-951), from version 13 topics are named by id. Below version 8
a response has no error messages and no record errors.
"""

from __future__ import annotations

from typing import NamedTuple

from aioproducer.protocol import ErrorCode
from aioproducer.protocol.messages import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from aioproducer.testing.broker.apis.verification import Support, verify
from aioproducer.testing.broker.cluster_state import Partition, Topic
from aioproducer.testing.broker.log import BatchHeader, Refused
from aioproducer.testing.broker.request import ApiHandler, Hangup, RequestContext
from aioproducer.testing.broker.transaction_state import ProducerIdAndEpoch

__all__ = ["HANDLER"]

_VALID_ACKS = frozenset({0, 1, -1})
_TOPIC_IDS_SINCE = 13
_ADDS_PARTITION_SINCE = 12
_GENERIC_ERROR_SINCE = 11
#: Kafka's internal topics; only its own admin client may write to them.
_INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
#: Older clients may give up on these errors, so they get a retriable one.
_UNVERIFIED = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
_WITHOUT_LOG_START = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


def handle(context: RequestContext, request: ProduceRequest) -> ProduceResponse | None:
    """Append what can be appended, partition by partition."""
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[_append(context, request, topic, data) for data in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )
    if request.acks == 0:
        if any(p.error_code != ErrorCode.NONE for topic in response.responses for p in topic.partition_responses):
            raise Hangup
        return None
    response.node_endpoints = _endpoints(context, response)
    return response


def _append(
    context: RequestContext, request: ProduceRequest, asked: TopicProduceData, data: PartitionProduceData
) -> PartitionProduceResponse:
    topic = find_topic(context, asked)
    injected = context.plan.injected_for(None if topic is None else topic.name, data.index)
    if injected is not None and not injected.applied:
        return _refused(context, topic, data.index, Refused(injected.code, "injected by the test"))
    outcome = _outcome(context, request, topic, data)
    if injected is not None:
        return _refused(context, topic, data.index, Refused(injected.code, "injected by the test, after the append"))
    if isinstance(outcome, Refused):
        return _refused(context, topic, data.index, outcome)
    return PartitionProduceResponse(
        index=data.index,
        error_code=ErrorCode.NONE,
        base_offset=outcome.base_offset,
        log_append_time_ms=outcome.log_append_time_ms,
        log_start_offset=outcome.log_start_offset,
    )


class _Outcome(NamedTuple):
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int


def _outcome(
    context: RequestContext, request: ProduceRequest, topic: Topic | None, data: PartitionProduceData
) -> _Outcome | Refused:
    if topic is None:
        unknown = ErrorCode.UNKNOWN_TOPIC_ID
        named = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return Refused(
            unknown if context.version >= _TOPIC_IDS_SINCE else named, "This server does not host this topic"
        )
    partition = topic.partition(data.index)
    if partition is None:
        return Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition")
    if topic.name in _INTERNAL_TOPICS:
        text = f"Cannot append to internal topic {topic.name}"
        return Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, text, reached_log=False)
    records = b"" if data.records is None else bytes(data.records)
    batch = _transactional_batch(records)
    refused = _check_leader(context, request, topic, partition)
    if refused is None and batch is not None:
        refused = _check_transaction(context, request, partition, batch)
    refused = refused or _check_replicas(request, topic, partition)
    if refused is not None:
        return refused
    result = partition.log.append(
        records,
        leader_epoch=partition.leader_epoch,
        now_ms=context.now_ms,
        rules=context.cluster.log_rules(context.node, context.version),
        verified=batch is not None,
    )
    if isinstance(result, Refused):
        return result
    return _Outcome(result.base_offset, result.log_append_time_ms, partition.log.start_offset)


def _check_leader(
    context: RequestContext, request: ProduceRequest, topic: Topic, partition: Partition
) -> Refused | None:
    if request.acks not in _VALID_ACKS:
        text = f"acks must be 0, 1 or -1, not {request.acks}"
        return Refused(ErrorCode.INVALID_REQUIRED_ACKS, text, reached_log=False)
    if partition.leader != context.node.node_id:
        return Refused(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"Node {context.node.node_id} does not lead {topic.name}-{partition.index}; node {partition.leader} does",
        )
    return None


def _check_replicas(request: ProduceRequest, topic: Topic, partition: Partition) -> Refused | None:
    if request.acks == -1 and len(partition.isr) < min(topic.config.min_insync_replicas, len(partition.replicas)):
        return Refused(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"The size of the current ISR {partition.isr} is insufficient to satisfy the min.isr requirement of "
            f"{topic.config.min_insync_replicas} for partition {topic.name}-{partition.index}",
        )
    return None


def _transactional_batch(records: bytes) -> BatchHeader | None:
    """The header of a possibly transactional batch; the log reports other errors."""
    header = BatchHeader.of(records)
    is_transactional = header is not None and header.is_transactional and header.producer_id >= 0
    return header if is_transactional else None


def _check_transaction(
    context: RequestContext, request: ProduceRequest, partition: Partition, batch: BatchHeader
) -> Refused | None:
    if request.transactional_id is None:
        text = "A transactional batch came without a transactional id"
        return Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, text, reached_log=False)
    if partition.log.has_open_transaction(batch.producer_id, batch.producer_epoch):
        return None
    producer = ProducerIdAndEpoch(batch.producer_id, batch.producer_epoch)
    where, support = (partition.log.topic, partition.index), _support(context)
    partition.log.start_verification(batch, adds_partition=support is Support.ADD_PARTITION)
    code = verify(context, request.transactional_id, producer, where, support)
    if code is ErrorCode.NONE:
        return None
    retriable = code in _UNVERIFIED or (
        code is ErrorCode.CONCURRENT_TRANSACTIONS and context.version < _ADDS_PARTITION_SINCE
    )
    text = f"Unable to verify the partition has been added to the transaction. Underlying error: {code.name}"
    return Refused(ErrorCode.NOT_ENOUGH_REPLICAS if retriable else code, text, reached_log=False)


def _support(context: RequestContext) -> Support:
    if context.version >= _ADDS_PARTITION_SINCE:
        return Support.ADD_PARTITION
    return Support.GENERIC_ERROR if context.version >= _GENERIC_ERROR_SINCE else Support.DEFAULT_ERROR


def _refused(context: RequestContext, topic: Topic | None, index: int, refused: Refused) -> PartitionProduceResponse:
    partition = None if topic is None else topic.partition(index)
    reports_start = refused.reached_log and refused.code not in _WITHOUT_LOG_START
    response = PartitionProduceResponse(
        index=index,
        error_code=refused.code,
        base_offset=-1,
        log_append_time_ms=-1,
        log_start_offset=partition.log.start_offset if reports_start and partition is not None else -1,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=error.batch_index, batch_index_error_message=error.message)
            for error in refused.record_errors
        ],
        error_message=refused.message,
    )
    if refused.code == ErrorCode.NOT_LEADER_OR_FOLLOWER and partition is not None:
        response.current_leader = LeaderIdAndEpoch(leader_id=partition.leader, leader_epoch=partition.leader_epoch)
    return response


def _endpoints(context: RequestContext, response: ProduceResponse) -> list[NodeEndpoint]:
    leaders = {
        partition.current_leader.leader_id
        for topic in response.responses
        for partition in topic.partition_responses
        if partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    }
    nodes = [context.cluster.nodes[leader] for leader in sorted(leaders) if leader in context.cluster.nodes]
    return [NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack) for node in nodes]


def find_topic(context: RequestContext, asked: TopicProduceData) -> Topic | None:
    """The topic that a part of the request names, by id or by name."""
    if context.version >= _TOPIC_IDS_SINCE:
        return context.cluster.topic_by_id(asked.topic_id)
    return context.cluster.topics.get(asked.name)


def _partitions(context: RequestContext, request: ProduceRequest) -> dict[str, frozenset[int]]:
    found = [(find_topic(context, asked), asked) for asked in request.topic_data]
    return {
        topic.name: frozenset(data.index for data in asked.partition_data)
        for topic, asked in found
        if topic is not None
    }


HANDLER = ApiHandler.of(ProduceRequest, handle, partitions=_partitions)
