"""What the group coordinators of a fake cluster know: committed offsets, those of open transactions, and members.

Groups do not rebalance here; a test says which generation and members a group has. Without members a group is what Kafka
calls a simple one, whose offsets anybody may commit who names no member.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from aioproducer.protocol import ErrorCode
from aioproducer.testing.broker.transaction_state import ProducerIdAndEpoch, TopicPartition

__all__ = ["OFFSETS_TOPIC", "CommittedOffset", "ConsumerGroup", "GroupMember", "GroupOffsets", "offsets_partition"]

OFFSETS_TOPIC = "__consumer_offsets"
_OFFSETS_PARTITIONS = 50


class CommittedOffset(NamedTuple):
    """The next record to be read, as a consumer committed it."""

    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""


class GroupMember(NamedTuple):
    """Whom a request that commits offsets comes from."""

    generation: int
    member_id: str
    instance_id: str | None


@dataclass(slots=True)
class ConsumerGroup:
    """One group. ``members`` are the instance ids (None: a dynamic member) by member id."""

    group_id: str
    generation: int = -1
    members: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    offsets: dict[TopicPartition, CommittedOffset] = field(default_factory=dict[TopicPartition, CommittedOffset])
    #: What open transactions will commit, by producer id.
    pending: dict[int, dict[TopicPartition, CommittedOffset]] = field(
        default_factory=dict[int, dict[TopicPartition, CommittedOffset]]
    )

    def is_pending(self, partition: TopicPartition) -> bool:
        """Whether an open transaction has an offset for this partition."""
        return any(partition in offsets for offsets in self.pending.values())

    def refuse(self, member: GroupMember) -> ErrorCode:
        """NONE, or why this member may not commit inside a transaction (``ClassicGroup.validateOffsetCommit``)."""
        if member.generation < 0 and not (self.members and (member.member_id or member.instance_id is not None)):
            return ErrorCode.NONE
        owner = next((m for m, instance in self.members.items() if instance == member.instance_id), None)
        if member.instance_id is not None and owner is not None and owner != member.member_id:
            return ErrorCode.FENCED_INSTANCE_ID
        if member.member_id not in self.members or (member.instance_id is not None and owner is None):
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member.generation == self.generation else ErrorCode.ILLEGAL_GENERATION


class GroupOffsets:
    """All groups, and who writes to the partitions of the topic that their offsets are kept in."""

    def __init__(self) -> None:
        self.groups: dict[str, ConsumerGroup] = {}
        self._epochs: dict[tuple[int, int], int] = {}
        self._open: set[tuple[int, int]] = set()

    def group(self, group_id: str) -> ConsumerGroup:
        """The group of that id, made if there is none."""
        return self.groups.setdefault(group_id, ConsumerGroup(group_id))

    def refuse(self, group_id: str, member: GroupMember) -> ErrorCode:
        """NONE, or why this member may not commit."""
        group = self.groups.get(group_id)
        if group is not None:
            return group.refuse(member)
        return ErrorCode.NONE if member.generation < 0 else ErrorCode.ILLEGAL_GENERATION

    def is_open(self, group_id: str, producer: ProducerIdAndEpoch) -> bool:
        """Whether a transaction of this epoch has offsets already where the group's are kept."""
        where = (offsets_partition(group_id), producer.producer_id)
        return where in self._open and self._epochs[where] == producer.producer_epoch

    def is_fenced(self, group_id: str, producer: ProducerIdAndEpoch) -> bool:
        """Whether a later epoch of this producer was seen where the group's offsets are kept."""
        seen = self._epochs.get((offsets_partition(group_id), producer.producer_id), -1)
        return producer.producer_epoch < seen

    def add(
        self, group_id: str, producer: ProducerIdAndEpoch, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        """Note offsets that count as soon as the transaction is committed."""
        where = (offsets_partition(group_id), producer.producer_id)
        self._open.add(where)
        self._epochs[where] = producer.producer_epoch
        self.group(group_id).pending.setdefault(producer.producer_id, {}).update(offsets)

    def end_transaction(self, partition: int, producer: ProducerIdAndEpoch, *, committed: bool) -> None:
        """A marker in one partition of the topic: the offsets there that are pending count now, or never."""
        where = (partition, producer.producer_id)
        self._open.discard(where)
        self._epochs[where] = producer.producer_epoch
        for group in self._groups_in(partition):
            offsets = group.pending.pop(producer.producer_id, {})
            if committed:
                group.offsets.update(offsets)

    def _groups_in(self, partition: int) -> Iterable[ConsumerGroup]:
        return [group for name, group in self.groups.items() if offsets_partition(name) == partition]


def offsets_partition(group_id: str) -> int:
    """The partition of ``__consumer_offsets`` that holds a group's offsets: the hash of Java's strings."""
    code = 0
    for unit in memoryview(group_id.encode("utf-16-le")).cast("H"):
        code = (31 * code + unit) & 0xFFFFFFFF
    return (code & 0x7FFFFFFF) % _OFFSETS_PARTITIONS
