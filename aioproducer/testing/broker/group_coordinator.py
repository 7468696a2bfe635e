"""Coordinates the members of a group: lets them join, distributes assignments, and removes silent members.

It is the classic protocol, by the rules of ``GroupMetadataManager`` in Kafka. There is no clock here: each call gets the
present time, and ``expire`` does what is due. Requests that have to wait get a `Parked`, which is answered later.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import uuid4

from aioproducer.protocol import ErrorCode
from aioproducer.testing.broker.consumer_group import (
    Caller,
    ConsumerGroup,
    GroupState,
    Joined,
    Member,
    Parked,
    Synced,
)
from aioproducer.testing.broker.group_offsets import GroupOffsets

__all__ = ["GroupCoordinator", "JoinRequest"]

_NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """The contents of a JoinGroup. ``needs_id``: its version asks new members to join with the id that they are given."""

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Mapping[str, bytes]
    needs_id: bool
    can_skip_assignment: bool = False


class GroupCoordinator:
    """The coordinator of all groups of a cluster."""

    def __init__(self, offsets: GroupOffsets, *, new_uuid: Callable[[], object] = uuid4) -> None:
        self._offsets = offsets
        self._new_uuid = new_uuid
        #: group.initial.rebalance.delay.ms is 3000 in Kafka, which is too long for a test.
        self.initial_rebalance_delay_ms = 0
        #: Kafka's group.min.session.timeout.ms and group.max.session.timeout.ms.
        self.session_timeouts_ms: tuple[int, int] = (6_000, 1_800_000)

    # -- JoinGroup -----------------------------------------------------------------------------------------------------

    def join(self, request: JoinRequest, now_ms: float) -> Joined | Parked:
        """The next generation, once its members are there, or what is wrong."""
        shortest, longest = self.session_timeouts_ms
        if not request.group_id:
            return Joined(ErrorCode.INVALID_GROUP_ID, request.member_id)
        if not shortest <= request.session_timeout_ms <= longest:
            return Joined(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id)
        group = self._offsets.groups.get(request.group_id)
        if group is None:
            if request.member_id:
                return Joined(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
            group = self._offsets.group(request.group_id)
        if not group.supports(request.protocol_type, request.protocols):
            return Joined(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
        if not request.member_id:
            return self._join_new(group, request, now_ms)
        if request.member_id in group.pending:
            return self._add(group, request, request.member_id, now_ms)
        return self._join_again(group, request, now_ms)

    def _join_new(self, group: ConsumerGroup, request: JoinRequest, now_ms: float) -> Joined | Parked:
        member_id = f"{request.instance_id or request.client_id or ''}-{self._new_uuid()}"
        if request.instance_id is not None:
            old = group.static_member(request.instance_id)
            if old is not None:
                return self._replace_static(group, request, old, member_id, now_ms)
        elif request.needs_id:
            group.pending[member_id] = now_ms + request.session_timeout_ms
            return Joined(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        return self._add(group, request, member_id, now_ms)

    def _add(self, group: ConsumerGroup, request: JoinRequest, member_id: str, now_ms: float) -> Parked:
        if group.state is GroupState.PREPARING_REBALANCE and group.before is GroupState.EMPTY:
            group.has_newcomer = True
        member = Member(member_id, request.instance_id, is_new=True)
        group.add(member, request.protocol_type)
        parked = _update(member, request)
        member.expires_ms = now_ms + _NEW_MEMBER_JOIN_TIMEOUT_MS
        self._rebalance_or_complete(group, now_ms)
        return parked

    def _join_again(self, group: ConsumerGroup, request: JoinRequest, now_ms: float) -> Joined | Parked:
        code = group.check_member(request.member_id, request.instance_id)
        if code is not ErrorCode.NONE:
            return Joined(code, request.member_id)
        member = group.members[request.member_id]
        is_same = list(member.protocols.items()) == list(request.protocols.items())
        if is_same and (
            group.state is GroupState.COMPLETING_REBALANCE  # the answer was lost
            or (group.state is GroupState.STABLE and group.leader != member.member_id)  # nothing has changed
        ):
            return group.joined(member)
        parked = _update(member, request)
        self._rebalance_or_complete(group, now_ms)
        return parked

    def _replace_static(
        self, group: ConsumerGroup, request: JoinRequest, old: Member, member_id: str, now_ms: float
    ) -> Joined | Parked:
        leader = group.leader or ""
        member = group.replace(old, member_id)
        member.expires_ms = now_ms + member.session_timeout_ms
        parked = _update(member, request)
        if group.state is GroupState.STABLE:
            if group.select_protocol() != group.protocol_name:
                self._rebalance_or_complete(group, now_ms)
                return parked
            member.joining = None  # it takes over what its predecessor had
            return _taken_over(group, member, leader, can_skip=request.can_skip_assignment)
        if group.state is GroupState.COMPLETING_REBALANCE:
            self._prepare_rebalance(group, now_ms)  # the leader may be assigning to the old id
        else:
            self._complete_if_all_joined(group, now_ms)
        return parked

    # -- the two phases of a rebalance ---------------------------------------------------------------------------------

    def _rebalance_or_complete(self, group: ConsumerGroup, now_ms: float) -> None:
        if group.state is GroupState.PREPARING_REBALANCE:
            self._complete_if_all_joined(group, now_ms)
        else:
            self._prepare_rebalance(group, now_ms)

    def _complete_if_all_joined(self, group: ConsumerGroup, now_ms: float) -> None:
        is_first = group.before is GroupState.EMPTY  # that one takes its time
        if group.state is GroupState.PREPARING_REBALANCE and not is_first and group.all_joined:
            self._complete_join(group, now_ms)

    def _prepare_rebalance(self, group: ConsumerGroup, now_ms: float) -> None:
        if group.state is GroupState.COMPLETING_REBALANCE:
            for member in group.members.values():
                member.assignment = b""
                if member.answer_sync(Synced(ErrorCode.REBALANCE_IN_PROGRESS)):
                    member.expires_ms = now_ms + member.session_timeout_ms
        group.unsynced.clear()
        group.sync_deadline_ms = math.inf
        is_first = group.state is GroupState.EMPTY
        group.enter(GroupState.PREPARING_REBALANCE)
        if is_first:
            delay = self.initial_rebalance_delay_ms
            group.initial_delay_left_ms = max(group.rebalance_timeout_ms - delay, 0)
            group.has_newcomer = False
            group.join_deadline_ms = now_ms + delay
            self._expire_join(group, now_ms)
        elif group.all_joined:
            self._complete_join(group, now_ms)
        else:
            group.join_deadline_ms = now_ms + group.rebalance_timeout_ms

    def _expire_join(self, group: ConsumerGroup, now_ms: float) -> None:
        """The time to join may be over: go on with those who are there."""
        if now_ms < group.join_deadline_ms:
            return
        if group.before is GroupState.EMPTY and group.has_newcomer and group.initial_delay_left_ms > 0:
            delay = min(self.initial_rebalance_delay_ms, group.initial_delay_left_ms)
            group.initial_delay_left_ms = max(group.initial_delay_left_ms - self.initial_rebalance_delay_ms, 0)
            group.has_newcomer = False
            group.join_deadline_ms = now_ms + delay
            if delay > 0:
                return
        self._complete_join(group, now_ms)

    def _complete_join(self, group: ConsumerGroup, now_ms: float) -> None:
        group.join_deadline_ms = math.inf
        for member in list(group.members.values()):
            if member.joining is None and member.instance_id is None:
                group.remove(member.member_id)
        if group.members and not group.elect():
            group.join_deadline_ms = now_ms + max(group.rebalance_timeout_ms, 1)
            return
        group.generation += 1
        group.unsynced.clear()
        if not group.members:
            group.protocol_name = None
            group.enter(GroupState.EMPTY)
            return
        group.protocol_name = group.select_protocol()
        group.enter(GroupState.COMPLETING_REBALANCE)
        for member in group.members.values():
            member.answer_join(group.joined(member))
            member.expires_ms = now_ms + member.session_timeout_ms
            member.is_new = False
            group.unsynced.add(member.member_id)
        group.sync_deadline_ms = now_ms + group.rebalance_timeout_ms

    # -- SyncGroup -----------------------------------------------------------------------------------------------------

    def sync(
        self,
        group_id: str,
        caller: Caller,
        protocol_type: str | None,
        protocol_name: str | None,
        assignments: Mapping[str, bytes],
        now_ms: float,
    ) -> Synced | Parked:
        """The assignment of the member, once the leader has handed it in, or what is wrong."""
        if not group_id:
            return Synced(ErrorCode.INVALID_GROUP_ID)
        group = self._offsets.groups.get(group_id)
        if group is None or group.state is GroupState.EMPTY:
            return Synced(ErrorCode.UNKNOWN_MEMBER_ID)
        code = _check_generation(group, caller)
        if code is not ErrorCode.NONE:
            return Synced(code)
        if protocol_type not in (None, group.protocol_type) or protocol_name not in (None, group.protocol_name):
            return Synced(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state is GroupState.PREPARING_REBALANCE:
            return Synced(ErrorCode.REBALANCE_IN_PROGRESS)
        member = group.members[caller.member_id]
        group.unsynced.discard(member.member_id)
        if not group.unsynced:
            group.sync_deadline_ms = math.inf
        if group.state is GroupState.STABLE:
            return Synced(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)
        parked = member.syncing = Parked()
        if group.leader == member.member_id:
            self._assign(group, assignments, now_ms)
        return parked

    def _assign(self, group: ConsumerGroup, assignments: Mapping[str, bytes], now_ms: float) -> None:
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            answer = Synced(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)
            if member.answer_sync(answer):
                member.expires_ms = now_ms + member.session_timeout_ms
        group.enter(GroupState.STABLE)

    # -- Heartbeat, LeaveGroup, OffsetCommit ---------------------------------------------------------------------------

    def heartbeat(self, group_id: str, caller: Caller, now_ms: float) -> ErrorCode:
        """NONE while nothing has changed for the member."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        group = self._offsets.groups.get(group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        code = _check_generation(group, caller)
        if code is not ErrorCode.NONE:
            return code
        member = group.members[caller.member_id]
        member.expires_ms = now_ms + member.session_timeout_ms
        preparing = group.state is GroupState.PREPARING_REBALANCE
        return ErrorCode.REBALANCE_IN_PROGRESS if preparing else ErrorCode.NONE

    def leave(self, group_id: str, members: list[tuple[str, str | None]], now_ms: float) -> list[ErrorCode]:
        """Remove members, by id or (without one) by instance id; what became of each."""
        group = self._offsets.groups.get(group_id)
        if group is None:
            return [ErrorCode.UNKNOWN_MEMBER_ID for _ in members]
        codes = [_leave(group, member_id, instance_id) for member_id, instance_id in members]
        if ErrorCode.NONE in codes:
            if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
                self._prepare_rebalance(group, now_ms)
            else:
                self._complete_if_all_joined(group, now_ms)
        return codes

    def check_commit(self, group_id: str, caller: Caller, now_ms: float) -> ErrorCode:
        """NONE, or why the caller may not commit offsets outside of a transaction; a commit is a sign of life."""
        group = self._offsets.groups.get(group_id)
        if group is None:
            return ErrorCode.NONE if caller.generation < 0 else ErrorCode.GROUP_ID_NOT_FOUND
        code = group.check_commit(caller, transactional=False)
        member = group.members.get(caller.member_id)
        if code is ErrorCode.NONE and member is not None:
            member.expires_ms = now_ms + member.session_timeout_ms
        return code

    def next_deadline_ms(self, group_id: str) -> float:
        """The time of the next timeout of any group."""
        group = self._offsets.groups.get(group_id)
        return math.inf if group is None else group.next_deadline_ms

    # -- time ----------------------------------------------------------------------------------------------------------

    def expire(self, now_ms: float) -> None:
        """Do what is due: remove members that were silent for too long, go on without those who do not join."""
        for group in list(self._offsets.groups.values()):
            while group.next_deadline_ms <= now_ms:
                self._expire(group, now_ms)

    def _expire(self, group: ConsumerGroup, now_ms: float) -> None:
        for member_id in [each for each, until in group.pending.items() if until <= now_ms]:
            group.remove(member_id)
            self._complete_if_rest_joined(group, now_ms)
        for member in [each for each in group.members.values() if each.expires_ms <= now_ms]:
            member.expires_ms = math.inf
            waits = member.joining is not None or member.syncing is not None
            if member.is_new or not waits:
                self.remove(group, member, now_ms)
        if group.join_deadline_ms <= now_ms:
            self._expire_join(group, now_ms)
        if group.sync_deadline_ms <= now_ms:
            group.sync_deadline_ms = math.inf
            for member_id in list(group.unsynced):
                group.remove(member_id)
            self._prepare_rebalance(group, now_ms)

    def remove(self, group: ConsumerGroup, member: Member, now_ms: float) -> None:
        """Remove a member that was silent for too long; the others rebalance."""
        member.answer_join(Joined(ErrorCode.UNKNOWN_MEMBER_ID, ""))
        group.remove(member.member_id)
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self._prepare_rebalance(group, now_ms)
        else:
            self._complete_if_rest_joined(group, now_ms)

    def _complete_if_rest_joined(self, group: ConsumerGroup, now_ms: float) -> None:
        if group.state is GroupState.PREPARING_REBALANCE and group.all_joined:
            self._complete_join(group, now_ms)


def _update(member: Member, request: JoinRequest) -> Parked:
    """Note what a member says of itself, and let its request wait."""
    member.protocols = dict(request.protocols)
    member.session_timeout_ms = request.session_timeout_ms
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.joining = Parked()
    return member.joining


def _taken_over(group: ConsumerGroup, member: Member, leader: str, *, can_skip: bool) -> Joined:
    """The answer to a static member that is back: the generation goes on. Old versions must not make it assign."""
    answer = group.joined(member)
    return Joined(
        ErrorCode.NONE,
        member.member_id,
        answer.generation,
        answer.protocol_type,
        answer.protocol_name,
        answer.leader if can_skip else leader,
        answer.members if can_skip else (),
        can_skip and group.leader == member.member_id,
    )


def _check_generation(group: ConsumerGroup, caller: Caller) -> ErrorCode:
    code = group.check_member(caller.member_id, caller.instance_id)
    if code is ErrorCode.NONE and caller.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return code


def _leave(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ErrorCode:
    if not member_id:
        static = None if instance_id is None else group.static_member(instance_id)
        if static is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = static.member_id
    elif member_id in group.pending:
        group.remove(member_id)
        return ErrorCode.NONE
    else:
        code = group.check_member(member_id, instance_id)
        if code is not ErrorCode.NONE:
            return code
    group.members[member_id].answer_join(Joined(ErrorCode.UNKNOWN_MEMBER_ID, ""))
    group.remove(member_id)
    return ErrorCode.NONE
