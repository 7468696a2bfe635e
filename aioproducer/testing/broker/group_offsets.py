"""The groups of a fake cluster, and the offsets that transactions commit for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aioproducer.protocol import ErrorCode
from aioproducer.testing.broker.consumer_group import Caller, CommittedOffset, ConsumerGroup
from aioproducer.testing.broker.transaction_state import ProducerIdAndEpoch, TopicPartition

__all__ = ["OFFSETS_TOPIC", "GroupOffsets", "offsets_partition"]

OFFSETS_TOPIC = "__consumer_offsets"
_OFFSETS_PARTITIONS = 50


class GroupOffsets:
    """All groups, and who writes to the partitions of the topic that their offsets are kept in."""

    def __init__(self) -> None:
        self.groups: dict[str, ConsumerGroup] = {}
        self._epochs: dict[tuple[int, int], int] = {}
        self._open: set[tuple[int, int]] = set()

    def group(self, group_id: str) -> ConsumerGroup:
        """The group of that id, made if there is none."""
        return self.groups.setdefault(group_id, ConsumerGroup(group_id))

    def refuse(self, group_id: str, caller: Caller) -> ErrorCode:
        """NONE, or why this member may not commit inside a transaction."""
        group = self.groups.get(group_id)
        if group is not None:
            return group.check_commit(caller, transactional=True)
        return ErrorCode.NONE if caller.generation < 0 else ErrorCode.ILLEGAL_GENERATION

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
        self.group(group_id).uncommitted.setdefault(producer.producer_id, {}).update(offsets)

    def end_transaction(self, partition: int, producer: ProducerIdAndEpoch, *, committed: bool) -> None:
        """A marker in one partition of the topic: the offsets there that are pending count now, or never."""
        where = (partition, producer.producer_id)
        self._open.discard(where)
        self._epochs[where] = producer.producer_epoch
        for group in self._groups_in(partition):
            offsets = group.uncommitted.pop(producer.producer_id, {})
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
