"""JoinGroup (api key 11): a consumer becomes a member of its group; goes to the coordinator of the group.

Only the fake broker reads it: a producer belongs to no group.
"""

from __future__ import annotations

from aioproducer.protocol.api_key import ApiKey
from aioproducer.protocol.message import (
    Array,
    Bool,
    Bytes,
    Int16,
    Int32,
    NullableString,
    Request,
    Response,
    String,
    Struct,
    since,
)

__all__ = ["JoinGroupRequest", "JoinGroupRequestProtocol", "JoinGroupResponse", "JoinGroupResponseMember"]


class JoinGroupRequestProtocol(Struct):
    """An assignment strategy that the member supports, and its metadata for the leader."""

    name: String
    metadata: Bytes


class JoinGroupResponseMember(Struct):
    """A member, as the leader sees it."""

    member_id: String
    group_instance_id: NullableString = since(5, default=None)
    metadata: Bytes


class JoinGroupResponse(Response):
    """The generation that begins. ``members`` is for the leader, and empty for the others."""

    throttle_time_ms: Int32 = since(2, default=0)
    error_code: Int16
    generation_id: Int32 = -1
    protocol_type: NullableString = since(7, default=None)
    protocol_name: NullableString = since(0, default="", nullable=7)
    leader: String
    skip_assignment: Bool = since(9, default=False)
    member_id: String
    members: Array[JoinGroupResponseMember]


class JoinGroupRequest(Request[JoinGroupResponse], api_key=ApiKey.JOIN_GROUP, versions=(0, 9), flexible=6):
    """``member_id`` is empty at first. From version 4 on the coordinator assigns one to ask again with (KIP-394)."""

    group_id: String
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = since(1, default=-1)
    member_id: String
    group_instance_id: NullableString = since(5, default=None)
    protocol_type: String
    protocols: Array[JoinGroupRequestProtocol]
    reason: NullableString = since(8, default=None)
