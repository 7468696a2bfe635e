"""The members of a consumer group without their own behaviour: one request for each method, and what came back as words.

Member ids, which differ by chance, are noted under the names that the members have here, so that the notes of two clusters
can be compared.
"""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias, TypeVar

from aioproducer.protocol import ErrorCode
from aioproducer.protocol.message import Request, Response
from aioproducer.protocol.messages import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from aioproducer.testing.raw_client import RawClient

ResponseT = TypeVar("ResponseT", bound=Response)

PATIENCE = 30.0
ONE_MOMENT = 0.02
NOT_READY = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
)

#: A note of one step: its name, and what was answered.
Note: TypeAlias = tuple[object, ...]


class Versions(NamedTuple):
    """In which versions the requests go out."""

    name: str
    join: int
    sync: int
    heartbeat: int
    leave: int
    commit: int


OLDEST = Versions("oldest", 2, 0, 0, 0, 2)
OLD = Versions("old", 5, 3, 3, 3, 7)
NEW = Versions("new", 9, 5, 4, 5, 9)


@dataclass(eq=False)
class Member:
    """One member: its name, and the answers of the coordinator."""

    name: str
    client: RawClient
    instance_id: str | None = None
    member_id: str = ""
    generation: int = -1
    protocol: str = "range"
    leads: bool = False
    #: What it waits for.
    sent: tuple[type[Request[Any]], int] | None = None


@dataclass
class RawGroup:
    """One group, and the connections of its members."""

    address: tuple[str, int]
    versions: Versions
    topic: str
    group: str
    notes: list[Note] = field(default_factory=list[Note])
    _members: list[Member] = field(default_factory=list[Member])
    _names: dict[str, str] = field(default_factory=dict[str, str])

    def close(self) -> None:
        """Close all connections."""
        for member in self._members:
            member.client.close()

    def find_coordinator(self) -> None:
        """Ask until there is one: a new cluster creates the topic of the offsets because it was asked."""
        member = self.member("admin")
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group])
        _until(lambda: member.client.ask(request, 4).coordinators[0].error_code not in NOT_READY)
        leave = LeaveGroupRequest(group_id=self.group, member_id="unknown")  # a heartbeat is taken while groups load
        _until(lambda: member.client.ask(leave, 0).error_code not in NOT_READY)

    def member(self, name: str, *, instance_id: str | None = None, member_id: str = "") -> Member:
        """A member with its own connection that has not joined."""
        client = RawClient(self.address, client_id=name, timeout=PATIENCE)
        self._members.append(Member(name, client, instance_id, member_id))
        return self._members[-1]

    def note(self, member: Member, step: str, *words: object) -> None:
        """Write down what was answered."""
        self.notes.append((member.name, step, *words))

    # -- JoinGroup and SyncGroup, which wait for others ----------------------------------------------------------------

    def new(self, name: str, *, instance_id: str | None = None, protocols: Iterable[str] = ("range",)) -> Member:
        """A member that asks for an id, if the version says so; the first request is noted."""
        member = self.member(name, instance_id=instance_id)
        if self.versions.join >= 4 and instance_id is None:
            self.join(member, protocols=protocols)
        return member

    def join(self, *members: Member, **options: Any) -> None:
        """JoinGroup of all of them at once, each answer noted."""
        for member in members:
            self.send_join(member, **options)
        for member in members:
            self.read(member)

    def send_join(
        self,
        member: Member,
        *,
        protocols: Iterable[str] = ("range",),
        topics: Iterable[str] = (),
        protocol_type: str = "consumer",
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 10_000,
    ) -> None:
        """JoinGroup; not answered before the others have joined."""
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            member_id=member.member_id,
            group_instance_id=member.instance_id if self.versions.join >= 5 else None,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=each, metadata=subscription(*topics)) for each in protocols],
        )
        self._send(member, request, self.versions.join)

    def sync(self, *members: Member, assigned: Mapping[Member, bytes] | None = None) -> None:
        """SyncGroup of all of them at once, each answer noted."""
        for member in members:
            self.send_sync(member, assigned=assigned)
        for member in members:
            self.read(member)

    def send_sync(
        self,
        member: Member,
        *,
        assigned: Mapping[Member, bytes] | None = None,
        generation: int | None = None,
        protocol: str | None = None,
    ) -> None:
        """SyncGroup; not answered before the leader's."""
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=member.generation if generation is None else generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id if self.versions.sync >= 3 else None,
            protocol_type="consumer" if self.versions.sync >= 5 else None,
            protocol_name=(protocol or member.protocol) if self.versions.sync >= 5 else None,
            assignments=[
                SyncGroupRequestAssignment(member_id=each.member_id, assignment=part)
                for each, part in (assigned or {}).items()
            ],
        )
        self._send(member, request, self.versions.sync)

    def read(self, member: Member) -> None:
        """The answer to what the member has sent; noted."""
        assert member.sent is not None
        (request, correlation_id), member.sent = member.sent, None
        version = self.versions.join if request is JoinGroupRequest else self.versions.sync
        answer = member.client.read(request, version, correlation_id)
        if isinstance(answer, JoinGroupResponse):
            self._note_join(member, answer)
        elif isinstance(answer, SyncGroupResponse):
            self.note(
                member,
                "sync",
                ErrorCode(answer.error_code).name,
                answer.protocol_type,
                answer.protocol_name,
                bytes(answer.assignment),
            )

    def _note_join(self, member: Member, answer: JoinGroupResponse) -> None:
        if answer.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            member.member_id = answer.member_id
            self._names[answer.member_id] = member.name
        if answer.error_code == ErrorCode.NONE:
            member.generation, member.protocol = answer.generation_id, answer.protocol_name or ""
            member.leads = answer.leader == answer.member_id
        described = sorted(
            (self._name(each.member_id), each.group_instance_id, bytes(each.metadata)) for each in answer.members
        )
        self.note(
            member,
            "join",
            ErrorCode(answer.error_code).name,
            answer.generation_id,
            answer.protocol_type,
            answer.protocol_name,
            self._name(answer.leader),
            self._name(answer.member_id),
            described,
            answer.skip_assignment,
        )

    def _name(self, member_id: str) -> str:
        return self._names.get(member_id, re.sub("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "*", member_id))

    def _send(self, member: Member, request: Request[ResponseT], version: int) -> None:
        member.sent = (type(request), member.client.send(request, version))

    # -- requests that are answered at once ----------------------------------------------------------------------------

    def heartbeat(self, member: Member, *, generation: int | None = None) -> None:
        """Heartbeat; noted."""
        self.note(member, "heartbeat", self._heartbeat(member, generation).name)

    def until_rebalancing(self, member: Member) -> None:
        """Send heartbeats until the coordinator asks the member to join again."""
        _until(lambda: self._heartbeat(member) is ErrorCode.REBALANCE_IN_PROGRESS)

    def _heartbeat(self, member: Member, generation: int | None = None) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=member.generation if generation is None else generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id if self.versions.heartbeat >= 3 else None,
        )
        return ErrorCode(member.client.ask(request, self.versions.heartbeat).error_code)

    def leave(self, *members: Member, by_instance: bool = False) -> None:
        """LeaveGroup of all of them in one request, or of the first where the version takes one; noted."""
        request = LeaveGroupRequest(
            group_id=self.group,
            member_id=members[0].member_id if self.versions.leave < 3 else "",
            members=[
                MemberIdentity(
                    member_id="" if by_instance else each.member_id,
                    group_instance_id=each.instance_id,
                )
                for each in members
                if self.versions.leave >= 3
            ],
        )
        answer: LeaveGroupResponse = members[0].client.ask(request, self.versions.leave)
        reported = [(self._name(each.member_id), ErrorCode(each.error_code).name) for each in answer.members]
        self.note(members[0], "leave", ErrorCode(answer.error_code).name, reported)

    def commit(
        self,
        member: Member,
        offset: int,
        *,
        generation: int | None = None,
        partition: int = 0,
        topic: str | None = None,
        metadata: str | None = "",
    ) -> None:
        """OffsetCommit, on its own connection; noted."""
        asked = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=member.generation if generation is None else generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id if self.versions.commit >= 7 else None,
            topics=[OffsetCommitRequestTopic(name=topic or self.topic, partitions=[asked])],
        )
        with RawClient(self.address, timeout=PATIENCE) as client:
            (answered,) = client.ask(request, self.versions.commit).topics
        self.note(member, "commit", [ErrorCode(each.error_code).name for each in answered.partitions])

    def offset(self) -> None:
        """OffsetFetch; noted."""
        asked = OffsetFetchRequestTopic(name=self.topic, partition_indexes=[0])
        with RawClient(self.address, timeout=PATIENCE) as client:
            answer = client.ask(OffsetFetchRequest(group_id=self.group, topics=[asked]), 5)
        self.notes.append(
            ("offset", [(each.committed_offset, each.metadata) for t in answer.topics for each in t.partitions])
        )


def subscription(*topics: str) -> bytes:
    """A consumer's description of itself when it joins; Kafka's coordinator reads it."""
    names = b"".join(struct.pack(">h", len(each)) + each.encode() for each in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "the coordinator does not get there"
        time.sleep(ONE_MOMENT)
