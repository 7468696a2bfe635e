"""The state of one consumer group at its coordinator: generation, members, committed offsets.

The rules are those of ``ClassicGroup`` in Kafka. What changes a group over time is in group_coordinator.py.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from aioproducer.protocol import ErrorCode
from aioproducer.testing.broker.transaction_state import TopicPartition

__all__ = ["Caller", "CommittedOffset", "ConsumerGroup", "GroupState", "Joined", "Member", "Parked", "Synced"]


class GroupState(Enum):
    """The state of a group between two generations; Kafka's names."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


class CommittedOffset(NamedTuple):
    """The next record to be read, as a consumer committed it."""

    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""


class Caller(NamedTuple):
    """The sender that a request names. A generation of -1: not a member."""

    generation: int
    member_id: str
    instance_id: str | None


@dataclass(frozen=True, slots=True)
class Joined:
    """The answer to a JoinGroup. ``members`` are those that the leader assigns partitions to: id, instance id, metadata."""

    code: ErrorCode
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class Synced:
    """The answer to a SyncGroup."""

    code: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(slots=True, eq=False)
class Parked:
    """A request that waits for the others of its group; ``answer`` comes when they are there."""

    answer: Joined | Synced | None = None


@dataclass(slots=True, eq=False)
class Member:
    """A member of a group. ``protocols`` are its assignment strategies, the preferred one first, with its metadata.

    ``joining`` and ``syncing`` are its waiting requests. It is removed after ``expires_ms``.
    """

    member_id: str
    instance_id: str | None = None
    session_timeout_ms: float = math.inf
    rebalance_timeout_ms: int = 0
    protocols: dict[str, bytes] = field(default_factory=dict[str, bytes])
    assignment: bytes = b""
    is_new: bool = False
    joining: Parked | None = None
    syncing: Parked | None = None
    expires_ms: float = math.inf

    def answer_join(self, answer: Joined) -> None:
        """Answer the JoinGroup that waits, if there is one."""
        if self.joining is not None:
            self.joining.answer, self.joining = answer, None

    def answer_sync(self, answer: Synced) -> bool:
        """Answer the SyncGroup that waits; whether there was one."""
        if self.syncing is None:
            return False
        self.syncing.answer, self.syncing = answer, None
        return True


@dataclass(slots=True, eq=False)
class ConsumerGroup:
    """One group. A group without members may have committed offsets: Kafka calls it a simple one."""

    group_id: str
    state: GroupState = GroupState.EMPTY
    before: GroupState = GroupState.EMPTY  # the state before this one
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict[str, Member])
    #: Ids that were given to clients, which are to join with them, and until when.
    pending: dict[str, float] = field(default_factory=dict[str, float])
    #: Members of this generation that have not asked for their assignment.
    unsynced: set[str] = field(default_factory=set[str])
    join_deadline_ms: float = math.inf
    sync_deadline_ms: float = math.inf
    #: How much longer the first rebalance of an empty group may be delayed, and whether a member joined during the delay.
    initial_delay_left_ms: float = 0.0
    has_newcomer: bool = False
    offsets: dict[TopicPartition, CommittedOffset] = field(default_factory=dict[TopicPartition, CommittedOffset])
    #: What open transactions will commit, by producer id.
    uncommitted: dict[int, dict[TopicPartition, CommittedOffset]] = field(
        default_factory=dict[int, dict[TopicPartition, CommittedOffset]]
    )

    def enter(self, state: GroupState) -> None:
        """Go on to another state."""
        self.before, self.state = self.state, state

    @property
    def next_deadline_ms(self) -> float:
        """The time of the group's next timeout."""
        expiries = [each.expires_ms for each in self.members.values()]
        return min(self.join_deadline_ms, self.sync_deadline_ms, *expiries, *self.pending.values())

    # -- who may do what -----------------------------------------------------------------------------------------------

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """NONE, or why this is not a member (``ClassicGroup.validateMember``)."""
        if instance_id is not None:
            owner = self.static_member(instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if owner.member_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def check_commit(self, caller: Caller, *, transactional: bool) -> ErrorCode:
        """NONE, or why offsets may not be committed (``ClassicGroup.validateOffsetCommit``)."""
        generation, member_id, instance_id = caller
        if generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        if generation >= 0 or member_id or instance_id is not None:
            code = self.check_member(member_id, instance_id)
            if code is not ErrorCode.NONE:
                return code
            if generation != self.generation:
                return ErrorCode.ILLEGAL_GENERATION
        elif not transactional:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if self.state is GroupState.COMPLETING_REBALANCE and not transactional:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Whether an open transaction has an offset for this partition."""
        return any(partition in offsets for offsets in self.uncommitted.values())

    # -- members -------------------------------------------------------------------------------------------------------

    def static_member(self, instance_id: str) -> Member | None:
        """The member with this instance id."""
        return next((each for each in self.members.values() if each.instance_id == instance_id), None)

    def add(self, member: Member, protocol_type: str) -> None:
        """Take a member in; the first one leads."""
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self.pending.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        """Forget a member, or an id that no member joined with."""
        self.members.pop(member_id, None)
        self.pending.pop(member_id, None)
        self.unsynced.discard(member_id)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def replace(self, old: Member, member_id: str) -> Member:
        """Give a static member a new id; requests of the old one that wait are fenced."""
        old.answer_join(Joined(ErrorCode.FENCED_INSTANCE_ID, old.member_id))
        old.answer_sync(Synced(ErrorCode.FENCED_INSTANCE_ID))
        del self.members[old.member_id]
        new = Member(
            member_id,
            old.instance_id,
            old.session_timeout_ms,
            old.rebalance_timeout_ms,
            dict(old.protocols),
            old.assignment,
        )
        self.members[member_id] = new
        if self.leader == old.member_id:
            self.leader = member_id
        return new

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest time that a member may take to join again."""
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

    @property
    def all_joined(self) -> bool:
        """Whether every member waits for the next generation, and no other is expected."""
        return not self.pending and all(each.joining is not None for each in self.members.values())

    def elect(self) -> bool:
        """Make a member that has joined the leader; returns whether there is one."""
        leader = self.members.get(self.leader or "")
        if leader is None:
            return False
        joined = next((each for each in (leader, *self.members.values()) if each.joining is not None), None)
        if joined is not None:
            self.leader = joined.member_id
        return joined is not None

    # -- how partitions are assigned -----------------------------------------------------------------------------------

    def supports(self, protocol_type: str, protocols: Mapping[str, bytes]) -> bool:
        """Whether a member with these protocols may join: all members must know one of them."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and protocols)
        return protocol_type == self.protocol_type and any(self._is_known_to_all(name) for name in protocols)

    def select_protocol(self) -> str:
        """The protocol that most members prefer, of those that all of them know."""
        votes = Counter(
            next(name for name in each.protocols if self._is_known_to_all(name)) for each in self.members.values()
        )
        return votes.most_common(1)[0][0]

    def _is_known_to_all(self, protocol: str) -> bool:
        return all(protocol in each.protocols for each in self.members.values())

    def joined(self, member: Member) -> Joined:
        """The answer for a member of this generation; the leader's lists all members."""
        described = tuple(
            (each.member_id, each.instance_id, each.protocols.get(self.protocol_name or "", b""))
            for each in self.members.values()
        )
        return Joined(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            self.leader or "",
            described if self.leader == member.member_id else (),
        )
