"""AddPartitionsToTxn (api key 24): lets a transaction write to partitions; all of them, or none.

Version 4 and later are for brokers, which send several transactions at once, or ask (``verify_only``) whether a partition
belongs to one. PRODUCER_FENCED exists from version 2 on.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

from aioproducer.protocol import ErrorCode
from aioproducer.protocol.messages import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from aioproducer.testing.broker.apis.coordination import check_transaction_coordinator, fencing_code
from aioproducer.testing.broker.request import ApiHandler, RequestContext
from aioproducer.testing.broker.transaction_state import ProducerIdAndEpoch, TopicPartition

__all__ = ["HANDLER"]

_MANY_SINCE = 4
_PRODUCER_FENCED_SINCE = 2


def handle(context: RequestContext, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    """One result for each partition."""
    results = [(asked.transactional_id, _results(_answer(context, asked))) for asked in _transactions(context, request)]
    if context.version >= _MANY_SINCE:
        return AddPartitionsToTxnResponse(
            error_code=ErrorCode.NONE,
            results_by_transaction=[
                AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=topics)
                for transactional_id, topics in results
            ],
        )
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0][1])


def _transactions(context: RequestContext, request: AddPartitionsToTxnRequest) -> list[AddPartitionsToTxnTransaction]:
    if context.version >= _MANY_SINCE:
        return request.transactions
    return [
        AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
    ]


def _answer(context: RequestContext, asked: AddPartitionsToTxnTransaction) -> Mapping[TopicPartition, ErrorCode]:
    partitions = [(topic.name, partition) for topic in asked.topics for partition in topic.partitions]
    whole = context.plan.injected_for()
    if whole is not None and not whole.applied:
        return dict.fromkeys(partitions, whole.code)
    refused = {each: code for each in partitions if (code := _check_partition(context, each)) is not ErrorCode.NONE}
    if refused:
        return {each: refused.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED) for each in partitions}
    answer = _apply(context, asked, partitions)
    injected = {each: context.plan.injected_for(*each) for each in partitions}
    return {each: answer[each] if error is None else error.code for each, error in injected.items()}


def _check_partition(context: RequestContext, where: TopicPartition) -> ErrorCode:
    name, index = where
    injected = context.plan.injected_for(name, index)
    if injected is not None and not injected.applied:
        return injected.code
    topic = context.cluster.topics.get(name)
    exists = topic is not None and topic.partition(index) is not None
    return ErrorCode.NONE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _apply(
    context: RequestContext, asked: AddPartitionsToTxnTransaction, partitions: list[TopicPartition]
) -> Mapping[TopicPartition, ErrorCode]:
    producer = ProducerIdAndEpoch(asked.producer_id, asked.producer_epoch)
    transactions = context.cluster.transactions
    code = check_transaction_coordinator(context, asked.transactional_id)
    if code is ErrorCode.NONE and asked.verify_only:
        return transactions.verify(asked.transactional_id, producer, partitions)
    if code is ErrorCode.NONE:
        code = transactions.add_partitions(asked.transactional_id, producer, partitions, context.now_ms)
    return dict.fromkeys(partitions, fencing_code(context, code, _PRODUCER_FENCED_SINCE))


def _results(answer: Mapping[TopicPartition, ErrorCode]) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(partition_index=where[1], partition_error_code=answer[where])
                for where in partitions
            ],
        )
        for name, partitions in groupby(answer, key=lambda where: where[0])
    ]


def _partitions(context: RequestContext, request: AddPartitionsToTxnRequest) -> dict[str, frozenset[int]]:
    topics: list[AddPartitionsToTxnTopic] = [t for each in _transactions(context, request) for t in each.topics]
    return {topic.name: frozenset(topic.partitions) for topic in topics}


HANDLER = ApiHandler.of(AddPartitionsToTxnRequest, handle, partitions=_partitions)
