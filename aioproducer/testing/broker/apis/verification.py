"""A partition leader's check with the transaction coordinator whether a write belongs to an open transaction (KIP-890).

The result depends on the version of the request: the newest ones let the leader add the partition itself, earlier ones can
get TRANSACTION_ABORTABLE, and the oldest only INVALID_TXN_STATE.
"""

from __future__ import annotations

from enum import Enum

from aioproducer.protocol import ErrorCode
from aioproducer.testing.broker.cluster_state import CoordinatorType
from aioproducer.testing.broker.request import RequestContext
from aioproducer.testing.broker.transaction_state import ProducerIdAndEpoch, TopicPartition

__all__ = ["Support", "verify"]


class Support(Enum):
    """The operations that the version of a request supports (``TransactionSupportedOperation``)."""

    DEFAULT_ERROR = "INVALID_TXN_STATE for a partition that was not added"
    GENERIC_ERROR = "TRANSACTION_ABORTABLE for it"
    ADD_PARTITION = "the leader adds it"


def verify(
    context: RequestContext,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    where: TopicPartition,
    support: Support,
) -> ErrorCode:
    """NONE, or why this producer's transaction may not write there."""
    cluster = context.cluster
    if cluster.coordinator(CoordinatorType.TRANSACTION, transactional_id) is None:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if support is Support.ADD_PARTITION:
        code = cluster.transactions.add_partitions(
            transactional_id, producer, [where], context.now_ms, bumps_epoch=True
        )
    else:
        code = cluster.transactions.verify(transactional_id, producer, [where])[where]
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and (
        support is Support.DEFAULT_ERROR or not context.node.release.knows_transaction_abortable
    ):
        return ErrorCode.INVALID_TXN_STATE
    return code
