"""LeaveGroup (api key 13): removes members, one up to version 2 and several from version 3 on."""

from __future__ import annotations

from aioproducer.protocol import ErrorCode
from aioproducer.protocol.messages import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from aioproducer.testing.broker.apis.coordination import check_group_coordinator
from aioproducer.testing.broker.request import ApiHandler, RequestContext

__all__ = ["HANDLER"]

_MANY_MEMBERS_SINCE = 3


def handle(context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """The outcome for each member."""
    if not request.group_id:
        return refuse(context, request, ErrorCode.INVALID_GROUP_ID)
    code = check_group_coordinator(context, request.group_id)
    if code is not ErrorCode.NONE:
        return refuse(context, request, code)
    leaving = request.members
    if context.version < _MANY_MEMBERS_SINCE:
        leaving = [MemberIdentity(member_id=request.member_id)]
    codes = context.cluster.group_coordinator.leave(
        request.group_id, [(each.member_id, each.group_instance_id) for each in leaving], context.now_ms
    )
    if context.version < _MANY_MEMBERS_SINCE:
        return LeaveGroupResponse(error_code=codes[0])
    return LeaveGroupResponse(
        error_code=ErrorCode.NONE,
        members=[
            MemberResponse(member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=code)
            for each, code in zip(leaving, codes, strict=True)
        ],
    )


def refuse(context: RequestContext, request: LeaveGroupRequest, code: ErrorCode) -> LeaveGroupResponse:
    """An error for all."""
    return LeaveGroupResponse(error_code=code)


HANDLER = ApiHandler.of(LeaveGroupRequest, handle, refuse)
