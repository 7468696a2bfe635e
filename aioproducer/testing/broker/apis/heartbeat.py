"""Heartbeat (api key 12): keeps a member in its group, and reports a rebalance to it."""

from __future__ import annotations

from aioproducer.protocol import ErrorCode
from aioproducer.protocol.messages import HeartbeatRequest, HeartbeatResponse
from aioproducer.testing.broker.apis.coordination import check_group_coordinator
from aioproducer.testing.broker.consumer_group import Caller
from aioproducer.testing.broker.request import ApiHandler, RequestContext

__all__ = ["HANDLER"]


def handle(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    """NONE while nothing has changed for the member."""
    code = check_group_coordinator(context, request.group_id)
    if code is ErrorCode.NONE:
        caller = Caller(request.generation_id, request.member_id, request.group_instance_id)
        code = context.cluster.group_coordinator.heartbeat(request.group_id, caller, context.now_ms)
    return HeartbeatResponse(error_code=code)


def refuse(context: RequestContext, request: HeartbeatRequest, code: ErrorCode) -> HeartbeatResponse:
    """An error."""
    return HeartbeatResponse(error_code=code)


HANDLER = ApiHandler.of(HeartbeatRequest, handle, refuse)
