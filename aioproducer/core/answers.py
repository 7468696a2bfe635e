"""Reads the answer to a Produce request for the batches in it, or refuses it.

An answer counts only as a whole: it tells of each batch that was asked for exactly once, of nothing else, and says nothing
that no broker could mean. One that does not is no better than one that cannot be read.
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
    """What this module needs to know of a batch."""

    @property
    def partition(self) -> TopicPartition: ...

    @property
    def count(self) -> int: ...


class ProduceAnswer(NamedTuple):
    """What a broker says of each batch of a request, in the order of the batches."""

    of_batches: Sequence[PartitionProduceResponse]
    #: Where the leaders are that the answers name.
    node_endpoints: Sequence[NodeEndpoint]
    throttle_time_ms: int


def read_produce_answer(
    batches: Sequence[AskedFor], names: Mapping[UUID, str], response: ProduceResponse
) -> ProduceAnswer:
    """What the broker says of each batch; there is at most one of each partition.

    ``names`` are those of the topics that the request called by their ids. Raises `ProtocolError`.
    """
    told: dict[TopicPartition, PartitionProduceResponse] = {}
    for topic in response.responses:
        name = topic.name or names.get(topic.topic_id, "")
        for answer in topic.partition_responses:
            partition = TopicPartition(name, answer.index)
            if partition in told:
                raise ProtocolError(f"{partition} was answered twice.")
            told[partition] = answer
    answers = [_answer_for(batch, told) for batch in batches]
    if len(told) > len(batches):
        asked = {batch.partition for batch in batches}
        raise ProtocolError(f"{next(each for each in told if each not in asked)} was answered, and not asked for.")
    return ProduceAnswer(answers, response.node_endpoints, response.throttle_time_ms)


def _answer_for(batch: AskedFor, told: Mapping[TopicPartition, PartitionProduceResponse]) -> PartitionProduceResponse:
    answer = told.get(batch.partition)
    if answer is None:
        raise ProtocolError(f"{batch.partition} was not answered.")
    if not _NO_OFFSET <= answer.base_offset <= _OFFSETS - batch.count:
        raise ProtocolError(f"{batch.count} record(s) of {batch.partition} cannot be at offset {answer.base_offset}.")
    for error in answer.record_errors:
        if not 0 <= error.batch_index < batch.count:
            raise ProtocolError(
                f"record {error.batch_index} of {batch.partition} was refused, in a batch of {batch.count} record(s)."
            )
    return answer
