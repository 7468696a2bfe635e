"""Resets the marker of a query, so that Spark writes committed batches again when it repeats them.

1. If a transaction is open, nothing is changed: a query may be running, or its last batch may be committing right now.
This is checked again right before the next step, as much time may have passed since the user looked.
2. Beginning a transaction fences the holders of older ones. A query that was running after all fails loudly, and loses
nothing: its batch had not written a row yet, so no transaction was open, or it wrote its first after the check.
3. Then the marker is read again. If it differs from the one that the user saw, a query has moved it, and it is not changed.
4. The new marker is committed in a transaction, which a query that starts at the same time fences in turn.
5. The new marker records its previous batch. An idle query is not fenced and does not notice the reset: it would continue
after its old batch, and the batches before would never be written again. So none may be skipped until they are.
"""

from __future__ import annotations

import time
from typing import Final

from aioproducer.core.transactions.handle import TransactionHandle
from aioproducer.errors import CommitUnknown, KafkaError, ProducerFenced, TransactionError, UnsupportedVersion
from aioproducer.spark.exactly_once.commit_marker import CommitMarker, marker_group
from aioproducer.spark.exactly_once.marker_commit import send_marker
from aioproducer.transactions.client import TransactionCoordinatorClient
from aioproducer.types import TopicPartition

__all__ = ["MarkerReset", "ResetFailed", "ResetRefused", "ResetUnknown", "checked_batch"]

#: The batch of a marker that lets every batch be written.
_NONE: Final = -1


class ResetRefused(KafkaError):
    """The marker was not reset, because that would be wrong or change nothing; the message says why and what to do."""


class ResetFailed(KafkaError):
    """The marker was not changed: a running query interfered, or Kafka refused. A running query may be fenced."""


class ResetUnknown(KafkaError):
    """It is unknown whether the marker was reset; a running query is fenced."""


class MarkerReset:
    """The marker of one ``transactional_id``, an offset of partition 0 of ``topic``."""

    def __init__(self, client: TransactionCoordinatorClient, transactional_id: str, topic: str) -> None:
        self._client = client
        self._transactional_id = transactional_id
        self._group = marker_group(transactional_id)
        self._partition = TopicPartition(topic, 0)

    @property
    def place(self) -> str:
        """A description of where the marker is."""
        return f"the offset of consumer group {self._group!r} in partition 0 of topic {self._partition.topic!r}"

    async def look(self) -> CommitMarker | None:
        """The current marker; None if there is none. Raises `CommitMarkerMissing` for an offset that is not a marker.

        Cancellation: nothing is changed.
        """
        return await self._read(require_stable=False)

    async def has_open_transaction(self) -> bool:
        """Whether a query is writing, or has left a transaction open. Raises `ResetRefused` if brokers cannot report it.

        Cancellation: nothing is changed.
        """
        try:
            return await self._client.has_open_transaction(self._transactional_id)
        except UnsupportedVersion as error:
            raise ResetRefused(
                f"Cannot determine whether a query is writing as {self._transactional_id!r}: {error} That needs Kafka 3.0. "
                "Stop the query, and use --abort."
            ) from error

    async def reset(self, seen: CommitMarker, batch: int | None, *, abort: bool = False) -> CommitMarker:
        """Reset the marker that was ``seen`` to ``batch``, the last that counts as written; None: none does.

        After a reset it may also be moved forward again, at most to where it was, until a batch is written. With ``abort``
        an open transaction with this transactional id is aborted; otherwise it is left alone, unless it is opened between
        the last check and the fencing, which are two successive requests.

        Raises `ResetRefused` for a batch that it may not be set to, or without ``abort`` if brokers cannot report open
        transactions; `ResetFailed` if a transaction is open, the marker has changed, a query has begun or Kafka refused;
        `ResetUnknown` if the response to the commit was lost. Cancellation: it may or may not be reset; `look` shows which.
        """
        target = checked_batch(seen, batch)
        set_back_from = seen.highest if target < seen.highest else None
        wanted = CommitMarker(
            seen.query,
            target,
            None,
            at_ms=time.time_ns() // 1_000_000,
            set_back_from=set_back_from,
            contents=seen.contents,
        )
        if not abort and await self.has_open_transaction():
            raise ResetFailed(
                f"A batch of {self._transactional_id!r} has begun since the marker was read; neither was changed. Stop the "
                "query and try again; --abort aborts the open transaction."
            )
        try:
            handle = await self._client.init(self._transactional_id)
        except KafkaError as error:
            raise _left(error, "may be fenced: if so, it fails") from error
        try:
            await self._replace(handle, seen, wanted)
        except ResetFailed:
            raise
        except CommitUnknown as error:
            raise ResetUnknown(
                "The response to the commit was lost, so the marker may or may not be reset: check with --show. Either way "
                "a query that was running is fenced: it fails, and loses nothing."
            ) from error
        except ProducerFenced as error:
            raise ResetFailed(
                f"A query with transactional id {self._transactional_id!r} has begun in the meantime; the marker is "
                "unchanged. Stop the query and try again."
            ) from error
        except KafkaError as error:
            raise _left(error, "is fenced: it fails") from error
        return wanted

    async def _replace(self, handle: TransactionHandle, seen: CommitMarker, wanted: CommitMarker) -> None:
        found = await self._read(require_stable=True)
        if found != seen:
            raise ResetFailed(
                f"The marker was changed to {found or 'nothing'} after it was read, so a query was running; it was not "
                "reset. Stop the query, and try again."
            )
        await send_marker(self._client, handle, self._group, self._partition, wanted)
        await self._client.commit(handle)

    async def _read(self, *, require_stable: bool) -> CommitMarker | None:
        found = await self._client.committed(self._group, [self._partition], require_stable=require_stable)
        return CommitMarker.read(found[self._partition])


def _left(error: KafkaError, fenced: str) -> ResetFailed:
    # What a transaction's error adds to its cause is advice for programmers.
    why = error.__cause__ if isinstance(error, TransactionError) and error.__cause__ is not None else error
    return ResetFailed(f"The marker is unchanged: {why} A query that was running {fenced}, and loses nothing.")


def checked_batch(seen: CommitMarker, batch: int | None) -> int:
    """The batch to set the marker to. Raises `ResetRefused` for one that it may not be set to."""
    wanted = _NONE if batch is None else batch
    if seen.may_be_set_to(wanted):
        return wanted
    if wanted == seen.batch and seen.rows is None:
        raise ResetRefused(f"There is nothing to reset: the marker already records {seen}.")
    if batch is None:
        raise ResetRefused(f"There is nothing to reset: the marker records {seen}.")
    raise ResetRefused(
        f"The marker records {seen}, and cannot be set to batch {batch}, because the batches that it would skip "
        "would be lost. " + _takes(seen)
    )


def _takes(seen: CommitMarker) -> str:
    if seen.rows is None and seen.batch < seen.highest:
        return f"--batch takes 0 to {seen.highest}" + (f", other than {seen.batch}." if seen.batch >= 0 else ".")
    return f"--batch takes 0 to {seen.batch - 1}." if seen.batch > 0 else "Leave out --batch."
