"""Reads the response to a Produce request for its batches, or refuses it.

A response counts only as a whole: it must have exactly one answer for each requested batch, nothing else, and no
impossible values. Otherwise it is treated like a response that cannot be decoded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from aioproducer.errors import ProtocolError
from aioproducer.protocol.messages import NodeEndpoint, PartitionProduceResponse, ProduceResponse
from aioproducer.types import TopicPartition

__all__ = ["AskedFor", "ProduceAnswer", "read_produce_answer"]

_NO_OFFSET = -1
_OFFSETS = 2**63


class AskedFor(Protocol):
    """The part of a batch that this module uses."""

    @property
    def partition(self) -> TopicPartition: ...

    @property
    def count(self) -> int: ...


class ProduceAnswer(NamedTuple):
    """A broker's answer for each batch of a request, in the order of the batches."""

    of_batches: Sequence[PartitionProduceResponse]
    #: The addresses of the leaders that the answers name.
    node_endpoints: Sequence[NodeEndpoint]
    throttle_time_ms: int


def read_produce_answer(
    batches: Sequence[AskedFor], names: Mapping[UUID, str], response: ProduceResponse
) -> ProduceAnswer:
    """Return the broker's answer for each batch; a request has at most one per partition.

    ``names`` are the names of topics that the request identified by id. Raises `ProtocolError`.
    """
    answered: dict[TopicPartition, PartitionProduceResponse] = {}
    for topic in response.responses:
        name = topic.name or names.get(topic.topic_id, "")
        for answer in topic.partition_responses:
            partition = TopicPartition(name, answer.index)
            if partition in answered:
                raise ProtocolError(f"{partition} was answered twice.")
            answered[partition] = answer
    answers = [_answer_for(batch, answered) for batch in batches]
    if len(answered) > len(batches):
        asked = {batch.partition for batch in batches}
        raise ProtocolError(f"{next(each for each in answered if each not in asked)} was answered but not requested.")
    return ProduceAnswer(answers, response.node_endpoints, response.throttle_time_ms)


def _answer_for(
    batch: AskedFor, answered: Mapping[TopicPartition, PartitionProduceResponse]
) -> PartitionProduceResponse:
    answer = answered.get(batch.partition)
    if answer is None:
        raise ProtocolError(f"{batch.partition} was not answered.")
    if not _NO_OFFSET <= answer.base_offset <= _OFFSETS - batch.count:
        raise ProtocolError(f"{batch.count} record(s) of {batch.partition} cannot be at offset {answer.base_offset}.")
    for error in answer.record_errors:
        if not 0 <= error.batch_index < batch.count:
            raise ProtocolError(
                f"record {error.batch_index} (from 0) of {batch.partition} was refused, but the batch has only "
                f"{batch.count} record(s)."
            )
    return answer
