"""The requests of a transaction: their destination, their versions, and the readers of their answers.

Transaction version 2 (KIP-890) is a feature of the cluster, not of a broker: a broker that supports the newer versions
accepts them only if the cluster has finalized it. Therefore each request has the versions in which it may be sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

from aioproducer.core.transactions.answers import (
    CoordinatorAnswer,
    read_coordinator,
    read_end,
    read_offsets_added,
    read_offsets_taken,
    read_partitions_added,
    read_producer_id,
)
from aioproducer.core.transactions.identities import CoordinatorKey, CoordinatorType, ProducerIdAndEpoch
from aioproducer.core.transactions.topic_ids import TopicIds
from aioproducer.protocol.message import Request
from aioproducer.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from aioproducer.protocol.wire import ZERO_UUID
from aioproducer.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

__all__ = [
    "FIRST_VERSION_THAT_BUMPS",
    "CoordinatorRequest",
    "Rpc",
    "add_offsets",
    "add_partitions",
    "end_transaction",
    "find_coordinator",
    "init_producer_id",
    "offset_commit",
]

#: From this version on InitProducerId returns the next epoch of a producer's id (KIP-360).
FIRST_VERSION_THAT_BUMPS = 3

_HIGHEST_INIT_PRODUCER_ID = 5
_TWO_PHASE_COMMIT = 6  # InitProducerId, KIP-939
_HIGHEST_ADD_PARTITIONS = 3  # those above are for brokers among themselves
_HIGHEST_ADD_OFFSETS = 4
#: The last versions before transaction version 2, and the ones that do what it needs.
_END_TXN_TV1, _END_TXN_TV2 = 4, 5
_OFFSET_COMMIT_TV1, _OFFSET_COMMIT_TV2 = 4, 5
_OFFSET_COMMIT_WITH_MEMBER = 3  # KIP-447
_OFFSET_COMMIT_BY_ID = 6  # KIP-1319
_HIGHEST_FIND_COORDINATOR = 5  # 6 is for share groups


class Rpc(Enum):
    """The kind of a request. EndTxn counts as two: the meaning of an error depends on commit or abort."""

    FIND_COORDINATOR = "FindCoordinator"
    INIT_PRODUCER_ID = "InitProducerId"
    ADD_PARTITIONS_TO_TXN = "AddPartitionsToTxn"
    ADD_OFFSETS_TO_TXN = "AddOffsetsToTxn"
    TXN_OFFSET_COMMIT = "TxnOffsetCommit"
    COMMIT = "EndTxn(commit)"
    ABORT = "EndTxn(abort)"


@dataclass(frozen=True, slots=True, eq=False)
class CoordinatorRequest:
    """One request, ready to be sent.

    ``node_id`` is the broker that must get it, None if any can answer. It may be sent in the versions ``lowest`` to
    ``highest``; if broker and client share none of these, it must be refused with `UnsupportedVersion`. ``read`` returns the
    result in the response; it raises `ProtocolError` for an impossible one.
    """

    rpc: Rpc
    message: Request[Any]
    node_id: int | None
    lowest: int
    highest: int
    read: Callable[[Any], CoordinatorAnswer]
    about: CoordinatorKey

    @property
    def ends_v2(self) -> bool:
        """Whether it ends a transaction of version 2."""
        return self.rpc in (Rpc.COMMIT, Rpc.ABORT) and self.lowest == _END_TXN_TV2


# -- constructors -----------------------------------------------------------------------------------------------------


def find_coordinator(about: CoordinatorKey) -> CoordinatorRequest:
    """Requests the coordinator from any broker."""
    message = FindCoordinatorRequest(key=about.key, key_type=about.type.value, coordinator_keys=[about.key])
    lowest = 0 if about.type is CoordinatorType.GROUP else 1  # version 0 knows groups only
    read = partial(read_coordinator, about)
    return CoordinatorRequest(Rpc.FIND_COORDINATOR, message, None, lowest, _HIGHEST_FIND_COORDINATOR, read, about)


def init_producer_id(
    about: CoordinatorKey,
    node_id: int,
    timeout_ms: int,
    current: ProducerIdAndEpoch | None,
    *,
    enable_2pc: bool,
    keep_prepared: bool,
) -> CoordinatorRequest:
    """Requests a producer id, or the next epoch of the ``current`` one."""
    producer_id, epoch = current or (-1, -1)
    message = InitProducerIdRequest(
        transactional_id=about.key,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        enable_2pc=enable_2pc,
        keep_prepared_txn=keep_prepared,
    )
    if enable_2pc or keep_prepared:
        lowest = highest = _TWO_PHASE_COMMIT
    else:
        lowest, highest = 0 if current is None else FIRST_VERSION_THAT_BUMPS, _HIGHEST_INIT_PRODUCER_ID
    return CoordinatorRequest(Rpc.INIT_PRODUCER_ID, message, node_id, lowest, highest, read_producer_id, about)


def add_partitions(
    about: CoordinatorKey, node_id: int, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
) -> CoordinatorRequest:
    """Adds partitions to the transaction at its coordinator; not for transaction version 2."""
    asked = frozenset(partitions)
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(asked):
        topics.setdefault(topic, []).append(partition)
    message = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=about.key,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=each) for name, each in topics.items()],
    )
    read = partial(read_partitions_added, asked)
    return CoordinatorRequest(Rpc.ADD_PARTITIONS_TO_TXN, message, node_id, 0, _HIGHEST_ADD_PARTITIONS, read, about)


def add_offsets(about: CoordinatorKey, node_id: int, producer: ProducerIdAndEpoch, group_id: str) -> CoordinatorRequest:
    """Adds a group to the transaction at its coordinator; not for transaction version 2."""
    message = AddOffsetsToTxnRequest(
        transactional_id=about.key, producer_id=producer.producer_id, producer_epoch=producer.epoch, group_id=group_id
    )
    return CoordinatorRequest(
        Rpc.ADD_OFFSETS_TO_TXN, message, node_id, 0, _HIGHEST_ADD_OFFSETS, read_offsets_added, about
    )


def offset_commit(
    transactional_id: str,
    node_id: int,
    producer: ProducerIdAndEpoch,
    group: ConsumerGroupMetadata,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    topic_ids: TopicIds,
    *,
    tv2: bool,
) -> CoordinatorRequest:
    """Sends offsets to the group's coordinator, inside the transaction; by the topics' ids if all of them are known."""
    asked = frozenset(offsets)
    topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        topics.setdefault(topic, []).append(
            TxnOffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=offset.offset,
                committed_leader_epoch=offset.leader_epoch,
                committed_metadata=offset.metadata,
            )
        )
    ids = {name: topic_ids.id_of(name) for name in topics}
    has_ids = tv2 and ZERO_UUID not in ids.values()
    message = TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group.group_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        generation_id_or_member_epoch=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=[
            TxnOffsetCommitRequestTopic(name=name, topic_id=ids[name], partitions=each) for name, each in topics.items()
        ],
    )
    # Without the member's data a coordinator cannot fence it: better not to send the request at all.
    names_member = group.generation_id >= 0 or group.member_id != "" or group.group_instance_id is not None
    lowest = _OFFSET_COMMIT_TV2 if tv2 else _OFFSET_COMMIT_WITH_MEMBER if names_member else 0
    highest = _OFFSET_COMMIT_BY_ID if has_ids else _OFFSET_COMMIT_TV2 if tv2 else _OFFSET_COMMIT_TV1
    names = {topic_id: name for name, topic_id in ids.items()} if has_ids else {}
    return CoordinatorRequest(
        Rpc.TXN_OFFSET_COMMIT,
        message,
        node_id,
        lowest,
        highest,
        partial(read_offsets_taken, asked, names),
        CoordinatorKey(CoordinatorType.GROUP, group.group_id),
    )


def end_transaction(
    about: CoordinatorKey, node_id: int, producer: ProducerIdAndEpoch, *, commit: bool, tv2: bool
) -> CoordinatorRequest:
    """Commits or aborts."""
    message = EndTxnRequest(
        transactional_id=about.key, producer_id=producer.producer_id, producer_epoch=producer.epoch, committed=commit
    )
    lowest, highest = (_END_TXN_TV2, _END_TXN_TV2) if tv2 else (0, _END_TXN_TV1)
    return CoordinatorRequest(Rpc.COMMIT if commit else Rpc.ABORT, message, node_id, lowest, highest, read_end, about)
