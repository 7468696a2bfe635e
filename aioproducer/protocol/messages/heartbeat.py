"""Heartbeat (api key 12): keeps a member in its group; goes to the coordinator of the group.

Only the fake broker reads it: a producer belongs to no group.
"""

from __future__ import annotations

from aioproducer.protocol.api_key import ApiKey
from aioproducer.protocol.message import (
    Int16,
    Int32,
    NullableString,
    Request,
    Response,
    String,
    since,
)

__all__ = ["HeartbeatRequest", "HeartbeatResponse"]


class HeartbeatResponse(Response):
    """REBALANCE_IN_PROGRESS asks the member to join again."""

    throttle_time_ms: Int32 = since(1, default=0)
    error_code: Int16


class HeartbeatRequest(Request[HeartbeatResponse], api_key=ApiKey.HEARTBEAT, versions=(0, 4), flexible=4):
    """The member, and the generation that it knows."""

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: NullableString = since(3, default=None)
