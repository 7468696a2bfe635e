"""Whether a write belongs to an open transaction, as the leader of a partition asks the transaction coordinator (KIP-890).

What a client may be told depends on the version of its request: the newest ones let the leader add the partition by
itself, those before can be told TRANSACTION_ABORTABLE, and the oldest know INVALID_TXN_STATE only.
"""

from __future__ import annotations

from enum import Enum

from aioproducer.protocol import ErrorCode
from aioproducer.testing.broker.cluster_state import CoordinatorType
from aioproducer.testing.broker.request import RequestContext
from aioproducer.testing.broker.transaction_state import ProducerIdAndEpoch, TopicPartition

__all__ = ["Support", "verify"]


class Support(Enum):
    """What the version of a request can bear (``TransactionSupportedOperation``)."""

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
    """NONE, or why nothing may be written there in a transaction of this producer."""
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
