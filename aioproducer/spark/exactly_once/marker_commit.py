"""Adds a commit marker to a transaction, as large as the brokers accept."""

from __future__ import annotations

import logging

from aioproducer.core.transactions.handle import TransactionHandle
from aioproducer.errors import BrokerError, KafkaError
from aioproducer.protocol.error_codes import ErrorCode
from aioproducer.spark.exactly_once.commit_marker import MOST_BATCHES, CommitMarker
from aioproducer.transactions.client import TransactionCoordinatorClient
from aioproducer.types import TopicPartition

__all__ = ["send_marker"]

logger = logging.getLogger("aioproducer.spark")


async def send_marker(
    client: TransactionCoordinatorClient,
    handle: TransactionHandle,
    group: str,
    partition: TopicPartition,
    marker: CommitMarker,
    timeout: float | None = None,
) -> None:
    """Add the marker, with the contents of fewer batches if brokers accept less metadata than by default.

    Raises what `TransactionCoordinatorClient.send_offsets` does. Cancellation: it may or may not be part of the transaction.
    """
    batches = min(len(marker.contents), MOST_BATCHES)
    while True:
        try:
            return await client.send_offsets(handle, {partition: marker.position(batches)}, group, timeout)
        except KafkaError as error:
            if batches <= 1 or not _is_of_size(error):
                raise
            batches //= 2
            logger.debug("Retrying with a marker that holds the contents of %d batches: %s", batches, error)


def _is_of_size(error: BaseException) -> bool:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, BrokerError) and cause.code == ErrorCode.OFFSET_METADATA_TOO_LARGE:
            return True
        cause = cause.__cause__
    return False
