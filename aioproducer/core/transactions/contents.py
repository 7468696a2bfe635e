"""The contents of the open transaction: its partitions, its offsets, and what the coordinator may know about it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from aioproducer.core.transactions.identities import CoordinatorKey, CoordinatorType
from aioproducer.core.transactions.operation import Operation
from aioproducer.errors import KafkaError
from aioproducer.protocol.error_codes import ErrorCode
from aioproducer.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

__all__ = ["OffsetCommit", "TransactionContents"]


class OffsetCommit:
    """A group's offsets that will become part of the transaction."""

    __slots__ = ("added", "group", "offsets", "operation")

    def __init__(
        self, group: ConsumerGroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata], operation: Operation
    ) -> None:
        self.group = group
        self.offsets = dict(offsets)  # the offsets that are not accepted yet
        self.operation = operation
        self.added = False  # AddOffsetsToTxn was answered

    @property
    def coordinator(self) -> CoordinatorKey:
        """The coordinator of the group, which accepts them."""
        return CoordinatorKey(CoordinatorType.GROUP, self.group.group_id)


class TransactionContents:
    """The partitions and offsets of the current transaction; `reset` begins the next one.

    A partition waits until the coordinator has answered AddPartitionsToTxn; with transaction version 2 it is there at once.
    """

    def __init__(self) -> None:
        self._asked: frozenset[TopicPartition] = frozenset()  # what the last AddPartitionsToTxn was about
        self._committing = OffsetCommit(ConsumerGroupMetadata(""), {}, Operation(""))  # the same for offsets
        self.reset()

    def reset(self) -> None:
        """Begin with an empty transaction, which the coordinator does not know yet."""
        self._waiting: set[TopicPartition] = set()  # to be added; nothing may be drained for them
        self._added: set[TopicPartition] = set()
        self._offsets: deque[OffsetCommit] = deque()
        self.is_started = False  # the coordinator knows that there is a transaction
        self.is_maybe_started = False  # it may know
        self.is_commit_in_doubt = False  # an attempt at the commit may have succeeded
        self.is_preparing = False  # it is prepared once everything in it is acknowledged
        self.is_shared = False  # other writers share it through a handle

    def share(self) -> None:
        """Other writers share it from now on, and may have begun: so the coordinator may know it at any time."""
        self.is_shared = self.is_started = True

    # -- partitions ---------------------------------------------------------------------------------------------------

    @property
    def has_partitions(self) -> bool:
        """Whether records were added to it, or are about to be."""
        return bool(self._added or self._waiting)

    @property
    def has_added_partitions(self) -> bool:
        """Whether records may have been written into it."""
        return bool(self._added)

    @property
    def has_waiting_partitions(self) -> bool:
        """Whether AddPartitionsToTxn must be sent."""
        return bool(self._waiting)

    def knows(self, partition: TopicPartition) -> bool:
        """Whether the partition was added, or will be."""
        return partition in self._added or partition in self._waiting

    def is_added(self, partition: TopicPartition) -> bool:
        """Whether the partition's batches may be sent."""
        return partition in self._added

    def add(self, partition: TopicPartition) -> None:
        """No request is needed: the partition's first batch adds it (transaction version 2)."""
        self._added.add(partition)

    def let_wait(self, partition: TopicPartition) -> None:
        """The coordinator must add the partition first."""
        self._waiting.add(partition)

    def ask_for_partitions(self) -> frozenset[TopicPartition]:
        """The partitions to name in AddPartitionsToTxn."""
        self._asked = frozenset(self._waiting)
        return self._asked

    def partitions_added(self) -> Sequence[TopicPartition]:
        """All requested partitions were added; returns them, in an order that is the same in every process."""
        self.is_started = True
        self._added |= self._asked
        self._waiting -= self._asked
        return sorted(self._asked)

    def partitions_refused(self) -> None:
        """The last request need not be repeated."""
        self._waiting -= self._asked

    # -- offsets --------------------------------------------------------------------------------------------------------

    @property
    def next_offsets(self) -> OffsetCommit | None:
        """The first of the calls whose offsets are not accepted yet."""
        return self._offsets[0] if self._offsets else None

    @property
    def asked_group(self) -> str:
        """The group of the last request."""
        return self._committing.group.group_id

    def add_offsets(self, commit: OffsetCommit) -> None:
        """Queue offsets; they are sent after earlier ones."""
        self._offsets.append(commit)

    def ask_for_offsets(self) -> OffsetCommit:
        """The offsets for the next request."""
        commit = self._committing = self._offsets[0]
        return commit

    def group_added(self) -> None:
        """AddOffsetsToTxn succeeded: the group's offsets may follow."""
        self.is_started = True
        self._committing.added = True

    def offsets_taken(self, codes: Mapping[TopicPartition, int]) -> None:
        """The group's coordinator has these offsets, except those with an error."""
        for partition, code in codes.items():
            if code == ErrorCode.NONE:
                self._committing.offsets.pop(partition, None)

    def offsets_complete(self) -> Operation:
        """All requested offsets were accepted; returns their call."""
        if self._committing in self._offsets:  # otherwise it was given up
            self._offsets.remove(self._committing)
        return self._committing.operation

    # -- giving up --------------------------------------------------------------------------------------------------------

    def fail_offsets(self, error: KafkaError) -> None:
        """No further offsets are accepted; their calls fail with this."""
        commits, self._offsets = self._offsets, deque()
        for commit in commits:
            commit.operation.finish(error)

    def give_up(self, error: KafkaError) -> None:
        """Nothing more is added; calls that wait for it fail with this."""
        self.fail_offsets(error)
        self._waiting.clear()
