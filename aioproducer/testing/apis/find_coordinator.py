"""FindCoordinator (api key 10): the node in charge of a group or a transactional id; always the first one that is there.

From version 4 on, several keys are asked for at once.
"""

from __future__ import annotations

from aioproducer.protocol import ErrorCode
from aioproducer.protocol.messages import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from aioproducer.testing.broker_request import ApiHandler, RequestContext
from aioproducer.testing.cluster_state import Node

__all__ = ["HANDLER"]

_MANY_KEYS_SINCE = 4


def handle(context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """The coordinator, or COORDINATOR_NOT_AVAILABLE where every node is gone."""
    node = next((node for node in context.cluster.nodes.values() if node.registered), None)
    if node is None:
        return refuse(context, request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return _response(context, request, node, ErrorCode.NONE)


def refuse(context: RequestContext, request: FindCoordinatorRequest, code: ErrorCode) -> FindCoordinatorResponse:
    """An error for each key."""
    return _response(context, request, None, code)


def _response(
    context: RequestContext, request: FindCoordinatorRequest, node: Node | None, code: ErrorCode
) -> FindCoordinatorResponse:
    node_id, host, port = (-1, "", -1) if node is None else (node.node_id, node.host, node.port)
    if context.version < _MANY_KEYS_SINCE:
        return FindCoordinatorResponse(error_code=code, error_message=None, node_id=node_id, host=host, port=port)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=node_id, host=host, port=port, error_code=code, error_message=None)
            for key in request.coordinator_keys
        ]
    )


HANDLER = ApiHandler.of(FindCoordinatorRequest, handle, refuse)
