"""SyncGroup (api key 14): waits for the leader, which assigns partitions.

From version 5 on it names the protocol of the group, which must be the right one (KIP-559).
"""

from __future__ import annotations

from aioproducer.protocol import ErrorCode
from aioproducer.protocol.messages import SyncGroupRequest, SyncGroupResponse
from aioproducer.testing.broker.apis.coordination import check_group_coordinator
from aioproducer.testing.broker.apis.joining import answer_or_wait
from aioproducer.testing.broker.consumer_group import Caller, Parked, Synced
from aioproducer.testing.broker.request import AnyResponse, ApiHandler, NotYet, RequestContext

__all__ = ["HANDLER"]

_NAMES_PROTOCOL_SINCE = 5


def handle(context: RequestContext, request: SyncGroupRequest) -> AnyResponse | NotYet:
    """The assignment of the member."""
    if context.version >= _NAMES_PROTOCOL_SINCE and None in (request.protocol_type, request.protocol_name):
        return refuse(context, request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    code = check_group_coordinator(context, request.group_id)
    if code is not ErrorCode.NONE:
        return refuse(context, request, code)
    answer = context.cluster.group_coordinator.sync(
        request.group_id,
        Caller(request.generation_id, request.member_id, request.group_instance_id),
        request.protocol_type,
        request.protocol_name,
        {each.member_id: bytes(each.assignment) for each in request.assignments},
        context.now_ms,
    )
    if not isinstance(answer, Parked):
        return _response(answer)
    if answer.answer is None and not context.patience:
        return refuse(context, request, ErrorCode.REBALANCE_IN_PROGRESS)
    return answer_or_wait(context, request.group_id, answer, _response)


def refuse(context: RequestContext, request: SyncGroupRequest, code: ErrorCode) -> SyncGroupResponse:
    """An error."""
    return _response(Synced(code))


def _response(synced: Synced) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=synced.code,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol_name,
        assignment=synced.assignment,
    )


HANDLER = ApiHandler.of(SyncGroupRequest, handle, refuse)
