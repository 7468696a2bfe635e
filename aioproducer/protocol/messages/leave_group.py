"""LeaveGroup (api key 13): removes members from their group; goes to the coordinator of the group.

Only the fake broker reads it: a producer belongs to no group.
"""

from __future__ import annotations

from aioproducer.protocol.api_key import ApiKey
from aioproducer.protocol.message import (
    Array,
    Int16,
    Int32,
    NullableString,
    Request,
    Response,
    String,
    Struct,
    since,
    until,
)

__all__ = ["LeaveGroupRequest", "LeaveGroupResponse", "MemberIdentity", "MemberResponse"]


class MemberIdentity(Struct):
    """A member by its id or, if that is empty, by its instance id."""

    member_id: String
    group_instance_id: NullableString = None
    reason: NullableString = since(5, default=None)


class MemberResponse(Struct):
    """Whether one member has left."""

    member_id: String
    group_instance_id: NullableString
    error_code: Int16


class LeaveGroupResponse(Response):
    """One answer up to version 2, one for each member from version 3 on."""

    throttle_time_ms: Int32 = since(1, default=0)
    error_code: Int16
    members: Array[MemberResponse] = since(3, default=[])


class LeaveGroupRequest(Request[LeaveGroupResponse], api_key=ApiKey.LEAVE_GROUP, versions=(0, 5), flexible=4):
    """``member_id`` up to version 2, ``members`` from version 3 on."""

    group_id: String
    member_id: String = until(2, default="")
    members: Array[MemberIdentity] = since(3, default=[])
