"""JoinGroup (api key 11): waits until the members of the next generation are there.

From version 4 on a newcomer is given an id, and has to ask again with it (KIP-394). Version 5 brings static members, version
9 leaders that need not assign.
"""

from __future__ import annotations

from aioproducer.protocol import ErrorCode
from aioproducer.protocol.messages import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from aioproducer.testing.broker.apis.coordination import check_group_coordinator
from aioproducer.testing.broker.apis.joining import answer_or_wait
from aioproducer.testing.broker.consumer_group import Joined, Parked
from aioproducer.testing.broker.group_coordinator import JoinRequest
from aioproducer.testing.broker.request import AnyResponse, ApiHandler, NotYet, RequestContext

__all__ = ["HANDLER"]

_NULL_PROTOCOL_SINCE = 7
_NEEDS_ID_SINCE = 4
_SKIPS_ASSIGNMENT_SINCE = 9


def handle(context: RequestContext, request: JoinGroupRequest) -> AnyResponse | NotYet:
    """The generation that begins, once all members have joined."""
    code = check_group_coordinator(context, request.group_id)
    if code is not ErrorCode.NONE:
        return refuse(context, request, code)
    rebalance_timeout_ms = request.rebalance_timeout_ms if context.version > 0 else request.session_timeout_ms
    asked = JoinRequest(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        context.request.client_id,
        request.session_timeout_ms,
        rebalance_timeout_ms,
        request.protocol_type,
        {each.name: bytes(each.metadata) for each in request.protocols},
        needs_id=context.version >= _NEEDS_ID_SINCE,
        can_skip_assignment=context.version >= _SKIPS_ASSIGNMENT_SINCE,
    )
    answer = context.cluster.group_coordinator.join(asked, context.now_ms)
    if not isinstance(answer, Parked):
        return _response(context, answer)
    if answer.answer is None and not context.patience:
        return refuse(context, request, ErrorCode.REBALANCE_IN_PROGRESS)
    return answer_or_wait(context, request.group_id, answer, lambda joined: _response(context, joined))


def refuse(context: RequestContext, request: JoinGroupRequest, code: ErrorCode) -> JoinGroupResponse:
    """An error."""
    return _response(context, Joined(code, request.member_id))


def _response(context: RequestContext, joined: Joined) -> JoinGroupResponse:
    name = joined.protocol_name
    return JoinGroupResponse(
        error_code=joined.code,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name="" if name is None and context.version < _NULL_PROTOCOL_SINCE else name,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[
            JoinGroupResponseMember(member_id=member_id, group_instance_id=instance_id, metadata=metadata)
            for member_id, instance_id, metadata in joined.members
        ],
    )


HANDLER = ApiHandler.of(JoinGroupRequest, handle, refuse)
