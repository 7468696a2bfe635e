"""SyncGroup (api key 14): the leader of a group assigns partitions, and each member gets its assignment.

Only the fake broker reads it: a producer belongs to no group.
"""

from __future__ import annotations

from aioproducer.protocol.api_key import ApiKey
from aioproducer.protocol.message import (
    Array,
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

__all__ = ["SyncGroupRequest", "SyncGroupRequestAssignment", "SyncGroupResponse"]


class SyncGroupRequestAssignment(Struct):
    """The assignment of one member; opaque to brokers."""

    member_id: String
    assignment: Bytes


class SyncGroupResponse(Response):
    """The assignment of this member."""

    throttle_time_ms: Int32 = since(1, default=0)
    error_code: Int16
    protocol_type: NullableString = since(5, default=None)
    protocol_name: NullableString = since(5, default=None)
    assignment: Bytes


class SyncGroupRequest(Request[SyncGroupResponse], api_key=ApiKey.SYNC_GROUP, versions=(0, 5), flexible=4):
    """``assignments`` comes from the leader alone."""

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: NullableString = since(3, default=None)
    protocol_type: NullableString = since(5, default=None)
    protocol_name: NullableString = since(5, default=None)
    assignments: Array[SyncGroupRequestAssignment]
