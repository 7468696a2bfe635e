"""Shared by the requests to coordinators: checks the coordinator, and maps error codes for old versions."""

from __future__ import annotations

from aioproducer.protocol import ErrorCode
from aioproducer.testing.broker.cluster_state import CoordinatorType
from aioproducer.testing.broker.request import RequestContext

__all__ = ["check_group_coordinator", "check_transaction_coordinator", "fencing_code"]


def check_transaction_coordinator(context: RequestContext, transactional_id: str) -> ErrorCode:
    """NONE if this node is the coordinator of the transactional id, else NOT_COORDINATOR."""
    return _check(context, CoordinatorType.TRANSACTION, transactional_id)


def check_group_coordinator(context: RequestContext, group_id: str) -> ErrorCode:
    """NONE if this node is the coordinator of the group, else NOT_COORDINATOR."""
    return _check(context, CoordinatorType.GROUP, group_id)


def fencing_code(context: RequestContext, code: ErrorCode, since: int) -> ErrorCode:
    """Maps PRODUCER_FENCED to INVALID_PRODUCER_EPOCH for versions before ``since`` (KIP-588)."""
    if code is ErrorCode.PRODUCER_FENCED and context.version < since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def _check(context: RequestContext, kind: CoordinatorType, key: str) -> ErrorCode:
    return ErrorCode.NONE if context.cluster.coordinator(kind, key) is context.node else ErrorCode.NOT_COORDINATOR
