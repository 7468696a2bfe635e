"""Decides which open transactions hang: no coordinator will write their markers (KIP-664); decides only.

Follows ``find-hanging`` of Kafka's TransactionsCommand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from aioproducer.protocol.messages import DescribedProducer, DescribedTransaction

__all__ = ["LocatedProducer", "TopicPartition", "hanging", "opened_before"]

#: A topic and the number of a partition.
TopicPartition: TypeAlias = tuple[str, int]


class LocatedProducer(NamedTuple):
    """A producer as one partition knows it."""

    where: TopicPartition
    producer: DescribedProducer

    @property
    def is_open(self) -> bool:
        """Whether it has a transaction open in the partition."""
        return self.producer.current_txn_start_offset >= 0

    @property
    def transaction(self) -> tuple[TopicPartition, int, int]:
        """Identifies the open transaction: the partition, the producer id, and its first offset there."""
        return self.where, self.producer.producer_id, self.producer.current_txn_start_offset


def opened_before(producers: Iterable[LocatedProducer], time_ms: int) -> list[LocatedProducer]:
    """Those with an open transaction that wrote nothing since this time: a timeout should have aborted it."""
    return [each for each in producers if each.is_open and each.producer.last_timestamp < time_ms]


def hanging(
    candidates: Sequence[LocatedProducer],
    transactional_ids: Mapping[int, str],
    described: Mapping[str, DescribedTransaction | None],
) -> list[LocatedProducer]:
    """The candidates whose coordinator does not know of the partition, so that it will never end them there.

    ``transactional_ids`` are by producer id; ``described`` has the coordinators' descriptions, None for an unknown id.
    """
    return [each for each in candidates if not _will_end(each, transactional_ids, described)]


def _will_end(
    candidate: LocatedProducer,
    transactional_ids: Mapping[int, str],
    described: Mapping[str, DescribedTransaction | None],
) -> bool:
    transactional_id = transactional_ids.get(candidate.producer.producer_id)
    description = None if transactional_id is None else described.get(transactional_id)
    if description is None:
        return False
    return candidate.where in {(each.topic, index) for each in description.topics for index in each.partitions}
