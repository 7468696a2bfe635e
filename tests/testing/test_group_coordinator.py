"""Decisions of the fake broker's group coordinator, at times that the test sets."""

from __future__ import annotations

from itertools import count

import pytest

from aioproducer.protocol import ErrorCode
from aioproducer.testing.broker.consumer_group import Caller, GroupState, Joined, Parked, Synced
from aioproducer.testing.broker.group_coordinator import GroupCoordinator, JoinRequest
from aioproducer.testing.broker.group_offsets import GroupOffsets

SESSION, REBALANCE = 10_000, 60_000


class Group:
    """One group, its coordinator, and the time."""

    def __init__(self) -> None:
        self.offsets = GroupOffsets()
        numbers = count(1)
        self.coordinator = GroupCoordinator(self.offsets, new_uuid=lambda: next(numbers))
        self.now = 0

    @property
    def state(self) -> GroupState:
        return self.offsets.groups["g"].state

    @property
    def members(self) -> list[str]:
        return list(self.offsets.groups["g"].members)

    @property
    def generation(self) -> int:
        return self.offsets.groups["g"].generation

    def advance(self, ms: int) -> None:
        """Let so much time pass, and what is due happen."""
        self.now += ms
        self.coordinator.expire(self.now)

    def join(
        self, member_id: str = "", *, client: str = "c", instance_id: str | None = None, needs_id: bool = False
    ) -> Joined | Parked:
        request = JoinRequest(
            "g", member_id, instance_id, client, SESSION, REBALANCE, "consumer", {"range": b""}, needs_id
        )
        return self.coordinator.join(request, self.now)

    def joined(self, member_id: str = "") -> Joined:
        """Join, as a member that the rebalance does not wait for."""
        return answer_of(self.join(member_id))

    def sync(self, joined: Joined, **assignments: bytes) -> Synced | Parked:
        caller = Caller(joined.generation, joined.member_id, None)
        parts = {member_id.replace("_", "-"): part for member_id, part in assignments.items()}
        return self.coordinator.sync("g", caller, "consumer", "range", parts, self.now)

    def heartbeat(self, joined: Joined) -> ErrorCode:
        return self.coordinator.heartbeat("g", Caller(joined.generation, joined.member_id, None), self.now)


def answer_of(asked: Joined | Parked) -> Joined:
    answer = asked.answer if isinstance(asked, Parked) else asked
    assert isinstance(answer, Joined), "it still waits for others"
    return answer


@pytest.fixture
def group() -> Group:
    return Group()


def stable(group: Group) -> Joined:
    """A member alone in its group."""
    member = group.joined()
    group.sync(member)
    assert group.state is GroupState.STABLE
    return member


def test_a_member_that_sends_no_heartbeat_is_removed_when_its_session_is_over(group: Group) -> None:
    member = stable(group)

    group.advance(SESSION - 1)
    assert group.members == [member.member_id]
    group.advance(1)

    assert group.members == []
    assert group.state is GroupState.EMPTY
    assert group.heartbeat(member) is ErrorCode.UNKNOWN_MEMBER_ID


def test_each_heartbeat_and_each_commit_keeps_a_member_for_another_session(group: Group) -> None:
    member = stable(group)
    caller = Caller(member.generation, member.member_id, None)

    for _ in range(3):
        group.advance(SESSION - 1)
        assert group.heartbeat(member) is ErrorCode.NONE
        group.advance(SESSION - 1)
        assert group.coordinator.check_commit("g", caller, group.now) is ErrorCode.NONE

    assert group.members == [member.member_id]


def test_the_others_go_on_without_a_member_that_does_not_join_again_in_time(group: Group) -> None:
    first = stable(group)
    waiting = group.join(client="d")
    for _ in range(REBALANCE // 5000):
        assert isinstance(waiting, Parked)
        assert waiting.answer is None
        assert group.heartbeat(first) is ErrorCode.REBALANCE_IN_PROGRESS  # it is alive, but does not join
        group.advance(5000)

    second = answer_of(waiting)

    assert group.members == [second.member_id]
    assert (second.leader, second.generation) == (second.member_id, first.generation + 1)
    assert group.heartbeat(first) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_next_deadline_is_reported_to_those_who_wait(group: Group) -> None:
    stable(group)
    group.join(client="d")

    assert group.coordinator.next_deadline_ms("g") == SESSION
    group.advance(SESSION)
    assert group.state is GroupState.COMPLETING_REBALANCE
    assert group.coordinator.next_deadline_ms("g") == 2 * SESSION


def test_a_member_that_never_asks_for_its_assignment_is_removed(group: Group) -> None:
    first = group.joined()
    for _ in range(REBALANCE // 5000):
        assert group.heartbeat(first) is ErrorCode.NONE
        group.advance(5000)

    assert group.members == []
    assert group.sync(first) == Synced(ErrorCode.UNKNOWN_MEMBER_ID)


def test_a_member_that_waits_for_the_leader_needs_no_heartbeats(group: Group) -> None:
    first = stable(group)
    waiting = group.join(client="d")
    first = group.joined(first.member_id)
    second = answer_of(waiting)
    parked = group.sync(second)
    assert isinstance(parked, Parked)

    group.advance(SESSION - 1)
    assert group.heartbeat(first) is ErrorCode.NONE
    group.advance(2)

    assert parked.answer is None
    assert group.members == [first.member_id, second.member_id]
    group.sync(first, **{second.member_id.replace("-", "_"): b"all"})
    assert parked.answer == Synced(ErrorCode.NONE, "consumer", "range", b"all")


def test_a_rebalance_ends_the_wait_for_an_assignment(group: Group) -> None:
    first = stable(group)
    waiting = group.join(client="d")
    first = group.joined(first.member_id)
    parked = group.sync(answer_of(waiting))
    assert isinstance(parked, Parked)

    group.coordinator.leave("g", [(first.member_id, None)], group.now)

    assert parked.answer == Synced(ErrorCode.REBALANCE_IN_PROGRESS)


def test_an_unused_member_id_is_forgotten_and_delays_a_rebalance_no_longer(group: Group) -> None:
    first = stable(group)
    given = answer_of(group.join(client="d", needs_id=True))
    assert given.code is ErrorCode.MEMBER_ID_REQUIRED
    waiting = group.join(first.member_id)
    assert isinstance(waiting, Parked)
    assert waiting.answer is None

    group.advance(SESSION)

    assert answer_of(waiting).generation == first.generation + 1
    assert answer_of(group.join(given.member_id)) == Joined(ErrorCode.UNKNOWN_MEMBER_ID, given.member_id)


def test_a_new_group_waits_for_more_members_as_long_as_they_come(group: Group) -> None:
    group.coordinator.initial_rebalance_delay_ms = 3000
    first = group.join()
    group.advance(2000)
    second = group.join(client="d")
    group.advance(1000)  # another member has joined
    group.advance(2999)
    assert group.generation == 0
    group.advance(1)

    assert answer_of(first).generation == answer_of(second).generation == 1
    assert [member_id for member_id, _, _ in answer_of(first).members] == ["c-1", "d-2"]


def test_a_static_member_comes_back_within_its_session_without_a_rebalance(group: Group) -> None:
    first = answer_of(group.join(instance_id="i"))
    caller = Caller(first.generation, first.member_id, "i")
    group.coordinator.sync("g", caller, None, None, {first.member_id: b"all"}, group.now)
    group.advance(SESSION - 1)

    again = answer_of(group.join(instance_id="i"))

    assert again.generation == first.generation
    assert again.member_id != first.member_id
    assert group.coordinator.heartbeat("g", caller, group.now) is ErrorCode.FENCED_INSTANCE_ID
    assert group.coordinator.sync(
        "g", Caller(again.generation, again.member_id, "i"), None, None, {}, group.now
    ) == Synced(ErrorCode.NONE, "consumer", "range", b"all")
