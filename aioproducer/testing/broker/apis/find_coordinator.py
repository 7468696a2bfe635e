"""FindCoordinator (api key 10): the coordinator of a group or a transactional id.

It is the first available node, unless the test moved it. From version 4 on, a request has several keys.
"""

from __future__ import annotations

from aioproducer.protocol import ErrorCode
from aioproducer.protocol.messages import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from aioproducer.testing.broker.cluster_state import CoordinatorType
from aioproducer.testing.broker.request import ApiHandler, RequestContext

__all__ = ["HANDLER"]

_MANY_KEYS_SINCE = 4


def handle(context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """The coordinator of each key, or COORDINATOR_NOT_AVAILABLE if there is none."""
    if request.key_type not in set(CoordinatorType):
        return refuse(context, request, ErrorCode.INVALID_REQUEST)
    kind = CoordinatorType(request.key_type)
    return _response(context, [_find(context, kind, key) for key in _keys(context, request)])


def refuse(context: RequestContext, request: FindCoordinatorRequest, code: ErrorCode) -> FindCoordinatorResponse:
    """An error for each key."""
    return _response(context, [_no_coordinator(key, code) for key in _keys(context, request)])


def _keys(context: RequestContext, request: FindCoordinatorRequest) -> list[str]:
    return [request.key] if context.version < _MANY_KEYS_SINCE else request.coordinator_keys


def _find(context: RequestContext, kind: CoordinatorType, key: str) -> Coordinator:
    node = context.cluster.coordinator(kind, key)
    if node is None:
        return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return Coordinator(
        key=key, node_id=node.node_id, host=node.host, port=node.port, error_code=ErrorCode.NONE, error_message=None
    )


def _no_coordinator(key: str, code: ErrorCode) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=None)


def _response(context: RequestContext, found: list[Coordinator]) -> FindCoordinatorResponse:
    if context.version >= _MANY_KEYS_SINCE:
        return FindCoordinatorResponse(coordinators=found)
    (one,) = found
    return FindCoordinatorResponse(
        error_code=one.error_code, error_message=None, node_id=one.node_id, host=one.host, port=one.port
    )


HANDLER = ApiHandler.of(FindCoordinatorRequest, handle, refuse)
