"""The part of the fake broker's scripting that is about consumer groups: what is there, and what happens to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioproducer.errors import ConfigError
from aioproducer.testing.broker.cluster_state import CoordinatorType
from aioproducer.testing.broker.consumer_group import CommittedOffset, ConsumerGroup, GroupState, Member
from aioproducer.testing.broker.transaction_state import TopicPartition

if TYPE_CHECKING:
    from aioproducer.testing.broker.fake_cluster import FakeCluster

__all__ = ["ConsumerGroupView", "GroupScript"]


@dataclass(frozen=True, slots=True)
class ConsumerGroupView:
    """A snapshot of a group. ``members`` are instance ids (None: dynamic) by member id.

    ``state`` is Kafka's: Empty, PreparingRebalance, CompletingRebalance or Stable.
    """

    group_id: str
    state: str
    generation: int
    protocol: str | None
    members: Mapping[str, str | None]


class GroupScript:
    """The methods; a subclass has a cluster and a lock for it."""

    cluster: FakeCluster
    _lock: threading.RLock

    def _notify_change(self) -> None:
        raise NotImplementedError  # the broker that inherits this does it

    def consumer_group(self, group_id: str) -> ConsumerGroupView:
        """Return the coordinator's state of a group; raises ConfigError if it has none."""
        with self._lock:
            self.cluster.group_coordinator.expire(_now_ms())
            group = self._group(group_id)
            return ConsumerGroupView(
                group_id,
                group.state.value,
                group.generation,
                group.protocol_name,
                {each.member_id: each.instance_id for each in group.members.values()},
            )

    def committed_offsets(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """The committed offsets of the group, without those of open transactions."""
        with self._lock:
            group = self.cluster.groups.groups.get(group_id)
            return {} if group is None else dict(group.offsets)

    def expire_member(self, group_id: str, member_id: str) -> None:
        """Remove a member as if its session.timeout.ms were over: the group rebalances, and it has to join again.

        That happens by itself too. Raises ConfigError if there is no such member.
        """
        with self._lock:
            group = self._group(group_id)
            if member_id not in group.members:
                raise ConfigError(f"Group {group_id!r} has no member {member_id!r}. Members: {list(group.members)}.")
            self.cluster.group_coordinator.remove(group, group.members[member_id], _now_ms())
            self._notify_change()

    def set_group(self, group_id: str, generation: int, members: Mapping[str, str | None]) -> None:
        """Say which generation a group is in and who its members are: instance ids (None: dynamic) by member id.

        These members need no heartbeats. The groups of real consumers need no such help.
        """
        with self._lock:
            group = self.cluster.groups.group(group_id)
            group.generation = generation
            group.members = {each: Member(each, instance_id) for each, instance_id in members.items()}
            group.enter(GroupState.STABLE if members else GroupState.EMPTY)

    def move_group_coordinator(self, group_id: str, to: int) -> None:
        """Make another node the coordinator of the group, -1: none."""
        with self._lock:
            self.cluster.move_coordinator(CoordinatorType.GROUP, group_id, to)

    @property
    def session_timeouts_ms(self) -> tuple[int, int]:
        """The shortest and the longest session timeout that a member may ask for, 6 s and 30 min unless set.

        These are group.min.session.timeout.ms and group.max.session.timeout.ms of Kafka, and their defaults.
        """
        with self._lock:
            return self.cluster.group_coordinator.session_timeouts_ms

    @session_timeouts_ms.setter
    def session_timeouts_ms(self, shortest_and_longest: tuple[int, int]) -> None:
        with self._lock:
            self.cluster.group_coordinator.session_timeouts_ms = shortest_and_longest

    @property
    def initial_rebalance_delay_ms(self) -> int:
        """The time in ms that a new group waits for more members (group.initial.rebalance.delay.ms): 0, in Kafka 3000."""
        with self._lock:
            return self.cluster.group_coordinator.initial_rebalance_delay_ms

    @initial_rebalance_delay_ms.setter
    def initial_rebalance_delay_ms(self, delay_ms: int) -> None:
        with self._lock:
            self.cluster.group_coordinator.initial_rebalance_delay_ms = delay_ms

    def _group(self, group_id: str) -> ConsumerGroup:
        known = self.cluster.groups.groups
        if group_id not in known:
            raise ConfigError(f"There is no consumer group {group_id!r} here. Known: {sorted(known)}.")
        return known[group_id]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
