"""Reads and checks the coordinators' responses to the requests of a transaction.

Each function reads one kind of response. It raises `ProtocolError` for an impossible one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from uuid import UUID

from aioproducer.core.transactions.identities import CoordinatorKey, ProducerIdAndEpoch
from aioproducer.errors import ProtocolError
from aioproducer.protocol.error_codes import ErrorCode
from aioproducer.types import TopicPartition

if TYPE_CHECKING:
    from aioproducer.protocol.messages import (
        AddOffsetsToTxnResponse,
        AddPartitionsToTxnResponse,
        EndTxnResponse,
        FindCoordinatorResponse,
        InitProducerIdResponse,
        TxnOffsetCommitResponse,
    )

__all__ = [
    "CoordinatorAnswer",
    "CoordinatorFound",
    "OffsetsAdded",
    "OffsetsTaken",
    "PartitionsAdded",
    "ProducerIdGiven",
    "TransactionEnded",
    "read_coordinator",
    "read_end",
    "read_offsets_added",
    "read_offsets_taken",
    "read_partitions_added",
    "read_producer_id",
]


class CoordinatorFound(NamedTuple):
    """FindCoordinator: the coordinator's broker."""

    code: int
    message: str | None
    node_id: int


class ProducerIdGiven(NamedTuple):
    """InitProducerId: the producer id and epoch to write under."""

    code: int
    producer: ProducerIdAndEpoch
    #: The producer id and epoch of a prepared transaction that is still open (KIP-939).
    ongoing: ProducerIdAndEpoch | None


class PartitionsAdded(NamedTuple):
    """AddPartitionsToTxn: the result for each partition."""

    codes: Mapping[TopicPartition, int]


class OffsetsAdded(NamedTuple):
    """AddOffsetsToTxn: whether offsets of the group may follow."""

    code: int


class OffsetsTaken(NamedTuple):
    """TxnOffsetCommit: the result for each partition's offset."""

    codes: Mapping[TopicPartition, int]


class TransactionEnded(NamedTuple):
    """EndTxn: whether it was ended, and with version 2 the next producer id and epoch."""

    code: int
    following: ProducerIdAndEpoch


CoordinatorAnswer: TypeAlias = (
    CoordinatorFound | ProducerIdGiven | PartitionsAdded | OffsetsAdded | OffsetsTaken | TransactionEnded
)


def read_coordinator(about: CoordinatorKey, response: FindCoordinatorResponse) -> CoordinatorFound:
    """The response's entry for the key; there must be no others."""
    if not response.coordinators:  # up to version 3
        found = CoordinatorFound(response.error_code, response.error_message, response.node_id)
    elif [each.key for each in response.coordinators] == [about.key]:
        (only,) = response.coordinators
        found = CoordinatorFound(only.error_code, only.error_message, only.node_id)
    else:
        keys = ", ".join(repr(each.key) for each in response.coordinators)
        raise ProtocolError(f"FindCoordinator for {about} was answered for {keys}.")
    if found.code == ErrorCode.NONE and found.node_id < 0:
        raise ProtocolError(f"FindCoordinator for {about} was answered with broker {found.node_id}.")
    return found


def read_producer_id(response: InitProducerIdResponse) -> ProducerIdGiven:
    """The producer id and the epoch; neither is negative."""
    if response.error_code == ErrorCode.NONE and (response.producer_id < 0 or response.producer_epoch < 0):
        raise ProtocolError(
            f"InitProducerId was answered with producer id {response.producer_id} and epoch {response.producer_epoch}."
        )
    ongoing = ProducerIdAndEpoch(response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch)
    return ProducerIdGiven(
        response.error_code,
        ProducerIdAndEpoch(response.producer_id, response.producer_epoch),
        ongoing if ongoing.producer_id >= 0 else None,
    )


def read_partitions_added(asked: frozenset[TopicPartition], response: AddPartitionsToTxnResponse) -> PartitionsAdded:
    """The result for each requested partition, and for no other."""
    results = [
        (TopicPartition(topic.name, each.partition_index), each.partition_error_code)
        for topic in response.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    ]
    _check_complete(asked, results)
    return PartitionsAdded(dict(results))


def read_offsets_added(response: AddOffsetsToTxnResponse) -> OffsetsAdded:
    """The error code; there is nothing else in it."""
    return OffsetsAdded(response.error_code)


def read_offsets_taken(
    asked: frozenset[TopicPartition], names: Mapping[UUID, str], response: TxnOffsetCommitResponse
) -> OffsetsTaken:
    """The result for each requested partition, and for no other; ``names`` are those of topics that go by their ids."""
    results = [
        (TopicPartition(names.get(topic.topic_id, topic.name), each.partition_index), each.error_code)
        for topic in response.topics
        for each in topic.partitions
    ]
    _check_complete(asked, results)
    return OffsetsTaken(dict(results))


def read_end(response: EndTxnResponse) -> TransactionEnded:
    """Whether it was ended; a producer id and an epoch come together."""
    if response.error_code == ErrorCode.NONE and (response.producer_id < 0) != (response.producer_epoch < 0):
        raise ProtocolError(
            f"EndTxn was answered with producer id {response.producer_id} and epoch {response.producer_epoch}."
        )
    return TransactionEnded(response.error_code, ProducerIdAndEpoch(response.producer_id, response.producer_epoch))


def _check_complete(asked: frozenset[TopicPartition], results: Sequence[tuple[TopicPartition, int]]) -> None:
    partitions = [partition for partition, _ in results]
    if sorted(partitions) != sorted(asked):
        raise ProtocolError(
            f"{', '.join(map(str, sorted(asked)))} were requested, but {', '.join(map(str, partitions)) or 'nothing'} "
            "was answered."
        )
