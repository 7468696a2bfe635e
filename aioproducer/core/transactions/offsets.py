"""Requests a consumer group's committed positions (OffsetFetch), and reads the answer in each version."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import TypeAlias

from aioproducer.core.transactions.identities import CoordinatorKey, CoordinatorType
from aioproducer.core.transactions.queries import CoordinatorQuery, query_error
from aioproducer.errors import BrokerError, ProtocolError
from aioproducer.protocol.error_codes import ErrorCode
from aioproducer.protocol.messages import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from aioproducer.types import OffsetAndMetadata, TopicPartition

__all__ = ["STABLE_SINCE", "Committed", "committed_offsets"]

#: The group's committed position in each requested partition; None if it has committed none.
Committed: TypeAlias = dict[TopicPartition, "OffsetAndMetadata | None"]

#: The first version that distinguishes offsets of open transactions (KIP-447).
STABLE_SINCE = 7

_LOWEST = 1
_HIGHEST = 9  # from 10 on topics are named by ids, which are not known here


def committed_offsets(
    group_id: str, partitions: Collection[TopicPartition], *, require_stable: bool
) -> CoordinatorQuery[Committed]:
    """The group's positions; with ``require_stable`` an open transaction causes UNSTABLE_OFFSET_COMMIT, to be retried.

    Without it, the positions before open transactions.
    """
    topics = _by_topic(partitions)
    message = OffsetFetchRequest(
        group_id=group_id,
        topics=topics,
        groups=[OffsetFetchRequestGroup(group_id=group_id, topics=topics)],
        require_stable=require_stable,
    )
    return CoordinatorQuery(
        CoordinatorKey(CoordinatorType.GROUP, group_id),
        message,
        STABLE_SINCE if require_stable else _LOWEST,
        _HIGHEST,
        partial(_read, group_id, frozenset(partitions)),
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> list[OffsetFetchRequestTopic]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(set(partitions)):
        topics.setdefault(topic, []).append(partition)
    return [OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()]


def _check(group_id: str, asked: frozenset[TopicPartition], response: OffsetFetchResponse) -> None:
    if [each.group_id for each in response.groups] not in ([], [group_id]):
        raise ProtocolError(
            f"OffsetFetch for group {group_id!r} was answered for {[each.group_id for each in response.groups]}."
        )
    code, topics = _only_group(response)
    answers = _flat(topics)
    if code == ErrorCode.NONE and sorted(answers) != sorted(asked):
        names = ", ".join(map(str, answers)) or "nothing"
        raise ProtocolError(f"OffsetFetch for {', '.join(map(str, sorted(asked)))} was answered for {names}.")
    for partition, found in answers.items():
        if found.error_code == ErrorCode.NONE and found.committed_offset < -1:
            raise ProtocolError(f"OffsetFetch was answered with offset {found.committed_offset} for {partition}.")


def _read(group_id: str, asked: frozenset[TopicPartition], response: OffsetFetchResponse) -> Committed | BrokerError:
    _check(group_id, asked, response)
    code, topics = _only_group(response)
    if code != ErrorCode.NONE:
        return query_error(code, group_id)
    answers = _flat(topics)
    # Errors that waiting cannot change come first: there is no point in waiting for a group that may not be read.
    refused = [
        query_error(each.error_code, _about(each.error_code, group_id, where)) for where, each in _failed(answers)
    ]
    if refused:
        return min(refused, key=lambda each: each.retriable)
    return {where: _position(each) for where, each in sorted(answers.items())}


def _only_group(response: OffsetFetchResponse) -> tuple[int, list[OffsetFetchResponseTopic]]:
    """The error of the group, and its partitions. Up to version 7 an answer has one group only."""
    for group in response.groups:
        return group.error_code, group.topics
    return response.error_code, response.topics


def _flat(topics: Iterable[OffsetFetchResponseTopic]) -> dict[TopicPartition, OffsetFetchResponsePartition]:
    return {TopicPartition(topic.name, each.partition_index): each for topic in topics for each in topic.partitions}


def _failed(
    answers: Mapping[TopicPartition, OffsetFetchResponsePartition],
) -> list[tuple[TopicPartition, OffsetFetchResponsePartition]]:
    return [(where, each) for where, each in sorted(answers.items()) if each.error_code != ErrorCode.NONE]


def _about(code: int, group_id: str, where: TopicPartition) -> str:
    """Up to version 1 each partition has the group's error."""
    return where.topic if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED else group_id


def _position(found: OffsetFetchResponsePartition) -> OffsetAndMetadata | None:
    if found.committed_offset < 0:
        return None
    return OffsetAndMetadata(found.committed_offset, found.metadata or "", found.committed_leader_epoch)
