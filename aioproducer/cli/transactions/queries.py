"""Asks brokers about transactions and the producers of partitions, and writes abort markers."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from aioproducer.cli.brokers import Brokers
from aioproducer.cli.transactions.hanging import LocatedProducer, TopicPartition
from aioproducer.cli.verb import Trouble
from aioproducer.core.transactions.queries import query_error
from aioproducer.errors import BrokerConnectionError, BrokerError
from aioproducer.protocol.error_codes import ErrorCode, broker_error
from aioproducer.protocol.messages import (
    DescribedTransaction,
    DescribeProducersRequest,
    DescribeProducersTopic,
    DescribeTransactionsRequest,
    ListedTransaction,
    ListTransactionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

__all__ = [
    "Coordinated",
    "Placed",
    "Producers",
    "describe_transactions",
    "list_transactions",
    "places",
    "producers_of",
    "refuse_without_coordinators",
    "write_abort_marker",
]

_PAUSE_S: Final = 0.2
#: Attempts to find the leader of a partition that has just moved.
_ATTEMPTS: Final = 5
#: Partitions in one request, as in Java: a broker answers it as a whole.
_PARTITIONS_AT_ONCE: Final = 500
_TRANSACTIONS_TOPIC: Final = "__transaction_state"
_LOADING: Final = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE})
#: With these the leader wrote no marker; after others, such as a timeout, it may have.
_NOTHING_WRITTEN: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
_MOVED: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE})


class Placed(NamedTuple):
    """One partition: the ids of its leader, -1 if it has none, and of its replicas."""

    where: TopicPartition
    leader: int
    replicas: Sequence[int]


class Coordinated(NamedTuple):
    """A transactional id's description, and the id of the broker that coordinates it."""

    coordinator_id: int
    description: DescribedTransaction


class Producers(NamedTuple):
    """The producers of some partitions; ``refused`` has Kafka's errors of the partitions that could not be read."""

    found: Sequence[LocatedProducer]
    refused: dict[TopicPartition, BrokerError]


async def places(brokers: Brokers, topics: Sequence[str] | None) -> dict[TopicPartition, Placed]:
    """The partitions of these topics, or of all; learns the brokers. Raises BrokerError for a topic that does not exist."""
    response = await _metadata(brokers, topics)
    for each in response.topics:
        if topics is not None and each.error_code not in (ErrorCode.NONE, *_MOVED):
            raise query_error(each.error_code, each.name or "")
    placed = [
        Placed((topic.name or "", each.partition_index), each.leader_id, list(each.replica_nodes))
        for topic in response.topics
        for each in topic.partitions
    ]
    return {each.where: each for each in sorted(placed)}


async def _metadata(brokers: Brokers, topics: Sequence[str] | None) -> MetadataResponse:
    named = None if topics is None else [MetadataRequestTopic(name=each) for each in topics]
    response = await brokers.ask(MetadataRequest(topics=named, allow_auto_topic_creation=False))
    brokers.learn(response.brokers)
    return response


async def list_transactions(
    brokers: Brokers, request: ListTransactionsRequest, *, backwards: bool = False
) -> list[tuple[int, ListedTransaction]]:
    """The transactional ids that all coordinators list, each with the id of its coordinator. Waits while one is loading.

    ``backwards``: asks the brokers in the other order, and so finds what moved ahead of the first listing.

    Raises BrokerError if a filter is invalid, and UnsupportedVersion if a broker does not know one.
    """
    await _metadata(brokers, [])
    found: list[tuple[int, ListedTransaction]] = []
    for node_id in reversed(brokers.ids) if backwards else brokers.ids:
        lowest = 2 if request.transactional_id_pattern is not None else 1 if request.duration_filter >= 0 else 0
        response = await brokers.ask(request, node_id, lowest=lowest)
        while response.error_code in _LOADING:
            await asyncio.sleep(_PAUSE_S)
            response = await brokers.ask(request, node_id, lowest=lowest)
        if response.error_code != ErrorCode.NONE:
            raise broker_error(response.error_code)
        found += [(node_id, each) for each in response.transaction_states]
    return sorted(found, key=lambda each: each[1].transactional_id)


async def refuse_without_coordinators(brokers: Brokers) -> None:
    """Raise Trouble if a coordinator is missing: its transactions are in no list then."""
    metadata = await _metadata(brokers, None)
    for topic in metadata.topics:
        for each in topic.partitions:
            if topic.name == _TRANSACTIONS_TOPIC and each.leader_id not in brokers.ids:
                raise Trouble(
                    f"Partition {each.partition_index} of {_TRANSACTIONS_TOPIC} has no leader: the transactions that it "
                    "coordinates cannot be listed, and would seem to hang. Try again when it has one."
                )


async def describe_transactions(
    brokers: Brokers, transactional_ids: Iterable[str], *, are_listed: bool = False
) -> dict[str, Coordinated | None]:
    """The descriptions at the coordinators, None for an id that is not known. Waits while a coordinator is loading.

    ``are_listed``: a coordinator has listed them, so that one of them knows each.
    All brokers are asked: FindCoordinator would create the coordinators' topic in a cluster that has no transactions.
    Raises BrokerError if the description is not allowed.
    """
    metadata = await _metadata(brokers, None)
    has_coordinators = any(each.name == _TRANSACTIONS_TOPIC for each in metadata.topics)
    found: dict[str, Coordinated | None] = {}
    missing: list[str] = list(dict.fromkeys(transactional_ids))
    while missing:
        is_loading = False
        for node_id in brokers.ids:
            response = await brokers.ask(DescribeTransactionsRequest(transactional_ids=missing), node_id)
            for each in response.transaction_states:
                is_loading |= each.error_code in _LOADING
                if each.error_code == ErrorCode.NONE:
                    found[each.transactional_id] = Coordinated(node_id, each)
                elif each.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    found[each.transactional_id] = None
                elif each.error_code not in (*_LOADING, ErrorCode.NOT_COORDINATOR):
                    raise query_error(each.error_code, each.transactional_id)
        missing = [each for each in missing if each not in found]
        if missing and not (is_loading or has_coordinators or are_listed):
            return found | dict.fromkeys(missing)
        if missing:
            brokers.stage = f"no broker coordinates the transactional id {missing[0]!r}"
            await asyncio.sleep(_PAUSE_S)
    return found


async def producers_of(
    brokers: Brokers, partitions: Mapping[TopicPartition, Placed], broker_id: int | None = None
) -> Producers:
    """The producers that the leaders of these partitions know, or the replicas on the broker with this id."""
    found: list[LocatedProducer] = []
    refused: dict[TopicPartition, BrokerError] = {}
    left = partitions
    for _ in range(_ATTEMPTS):
        asked = await _producers_now(brokers, left.values(), broker_id)
        found += asked.found
        refused = {where: error for where, error in refused.items() if where not in left} | asked.refused
        moved = [where for where, error in asked.refused.items() if error.code in _MOVED]
        if not moved or broker_id is not None:
            break
        await asyncio.sleep(_PAUSE_S)
        present = await places(brokers, None)
        left = {where: present[where] for where in moved if where in present}
    return Producers(sorted(found, key=lambda each: (each.where, each.producer.producer_id)), refused)


async def _producers_now(brokers: Brokers, partitions: Iterable[Placed], broker_id: int | None) -> Producers:
    found: list[LocatedProducer] = []
    placed = list(partitions)
    without = [each.where for each in placed if each.leader < 0]
    refused = {where: broker_error(ErrorCode.LEADER_NOT_AVAILABLE) for where in without}
    for node_id, chunk in _by_broker(placed, broker_id):
        asked = await _describe_producers(brokers, node_id, chunk)
        found += asked.found
        refused |= asked.refused
    return Producers(found, refused)


def _by_broker(partitions: Iterable[Placed], broker_id: int | None) -> Iterable[tuple[int, Sequence[TopicPartition]]]:
    asked: dict[int, list[TopicPartition]] = defaultdict(list)
    for each in partitions:
        if each.leader >= 0:
            asked[each.leader if broker_id is None else broker_id].append(each.where)
    for node_id, wheres in sorted(asked.items()):
        for first in range(0, len(wheres), _PARTITIONS_AT_ONCE):
            yield node_id, wheres[first : first + _PARTITIONS_AT_ONCE]


async def _describe_producers(brokers: Brokers, node_id: int, partitions: Sequence[TopicPartition]) -> Producers:
    indexes: dict[str, list[int]] = defaultdict(list)
    for topic, index in partitions:
        indexes[topic].append(index)
    topics = [DescribeProducersTopic(name=topic, partition_indexes=each) for topic, each in indexes.items()]
    response = await brokers.ask(DescribeProducersRequest(topics=topics), node_id)
    found: list[LocatedProducer] = []
    refused: dict[TopicPartition, BrokerError] = {}
    for answered in response.topics:
        for each in answered.partitions:
            where = (answered.name, each.partition_index)
            found += [LocatedProducer(where, producer) for producer in each.active_producers]
            if each.error_code != ErrorCode.NONE:
                refused[where] = _why_refused(each.error_code, answered.name, each.error_message)
    return Producers(found, refused)


def _why_refused(code: int, topic: str, message: str | None) -> BrokerError:
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return broker_error(code, f"Looking at the producers of topic {topic!r} needs READ on it.")
    return broker_error(code, message)


async def write_abort_marker(
    brokers: Brokers, placed: Placed, producer_id: int, producer_epoch: int, coordinator_epoch: int
) -> None:
    """Write the marker that aborts the producer's transaction in the partition; raises KafkaError.

    Raises BrokerConnectionError if it is not known whether the marker was written.
    """
    topic, index = placed.where
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
        coordinator_epoch=coordinator_epoch,
    )
    response = await brokers.ask(WriteTxnMarkersRequest(markers=[marker]), placed.leader)
    codes = [part.error_code for each in response.markers for at in each.topics for part in at.partitions]
    for code in codes:
        if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise broker_error(code, "Aborting a transaction needs ALTER, or CLUSTER_ACTION, on the cluster.")
        if code in _NOTHING_WRITTEN:
            raise broker_error(code)
        if code != ErrorCode.NONE:
            raise BrokerConnectionError(str(broker_error(code)))
    if not codes:
        raise BrokerConnectionError("The answer of the broker names no partition.")
