"""Checks whether this node may serve reads of a partition."""

from __future__ import annotations

from aioproducer.protocol import ErrorCode
from aioproducer.testing.broker.cluster_state import Partition
from aioproducer.testing.broker.request import RequestContext

__all__ = ["check_leader"]


def check_leader(context: RequestContext, partition: Partition | None, known_epoch: int) -> ErrorCode:
    """NONE, or the error: no such partition, another leader, or a leader epoch that differs from the client's (-1: any)."""
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if partition.leader != context.node.node_id:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if known_epoch == -1 or known_epoch == partition.leader_epoch:
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH if known_epoch < partition.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
