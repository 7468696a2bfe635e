"""Sets the marker of a query back, so that batches which were committed are written again when Spark runs them again.

1. Where a transaction is open it is left alone: a query may be running, or its last batch may be decided in this moment.
   That is asked once more right before the next step, as much time may have passed since somebody looked.
2. Beginning a transaction fences whoever holds an older one. A query that runs after all fails loudly, and loses nothing:
   one whose batch has not written a row yet, which is no open transaction, or has written its first since that was asked.
3. The marker is read once more then. If it is not the one that was looked at, a query has moved it, and it stays as it is.
4. The new marker is committed in a transaction, which a query that starts meanwhile fences in turn.
5. It keeps where it stood before. A query that was idle all the while is not fenced, and knows of nothing: it would go on
   behind that, and the batches before its own would never be written again. So until they are, none may be left out.
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

#: The batch of a marker with which every batch is written.
_NONE: Final = -1


class ResetRefused(KafkaError):
    """The marker was not set back, as that would be wrong or do nothing; the message says why, and the way out."""


class ResetFailed(KafkaError):
    """The marker was left as it is: a query that runs came in between, or Kafka refused. What was running may be fenced."""


class ResetUnknown(KafkaError):
    """Nobody has told whether the marker was set back; what was running is fenced."""


class MarkerReset:
    """The marker of one ``transactional_id``, whose offset is of partition 0 of ``topic``."""

    def __init__(self, client: TransactionCoordinatorClient, transactional_id: str, topic: str) -> None:
        self._client = client
        self._transactional_id = transactional_id
        self._group = marker_group(transactional_id)
        self._partition = TopicPartition(topic, 0)

    @property
    def place(self) -> str:
        """Where the marker is, in words."""
        return f"the offset of consumer group {self._group!r} in partition 0 of topic {self._partition.topic!r}"

    async def look(self) -> CommitMarker | None:
        """The marker as it is; None where there is none. Raises `CommitMarkerMissing` for an offset that is no marker.

        Cancellation: nothing was changed.
        """
        return await self._read(require_stable=False)

    async def has_open_transaction(self) -> bool:
        """Whether a query is writing, or has left a transaction open. Raises `ResetRefused` where brokers cannot tell.

        Cancellation: nothing was changed.
        """
        try:
            return await self._client.has_open_transaction(self._transactional_id)
        except UnsupportedVersion as error:
            raise ResetRefused(
                f"Nobody can tell whether a query writes as {self._transactional_id!r} now: {error} That takes Kafka 3.0. "
                "Stop the query, and say --abort."
            ) from error

    async def reset(self, seen: CommitMarker, batch: int | None, *, abort: bool = False) -> CommitMarker:
        """Set the marker that was ``seen`` back to ``batch``, the last that counts as written; None: none does.

        One that was set back may be set forth as well, to where it was at most, until a batch has been written. With
        ``abort`` what is open with this transactional id is aborted; else it is left alone, except for what was opened
        between the last look and the fencing of it: two requests, one after the other.

        Raises `ResetRefused` for a batch that it may not be set to, or without ``abort`` where brokers cannot tell what is
        open; `ResetFailed` where a transaction is open, the marker is another one by now, a query has begun or Kafka
        refused; `ResetUnknown` where the answer to the commit was lost. Cancellation: it may be set back or not; `look`
        tells.
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
                f"A batch of {self._transactional_id!r} has begun since the marker was looked at, and both were left as "
                "they are. Stop the query, and try again; --abort aborts what is open."
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
                "The answer to the commit was lost, so the marker may be set back or not: look with --show. Either way "
                "a query that was running is fenced: it fails, and loses nothing."
            ) from error
        except ProducerFenced as error:
            raise ResetFailed(
                f"A query with transactional id {self._transactional_id!r} has begun meanwhile, and the marker was left as "
                "it is. Stop the query, and try again."
            ) from error
        except KafkaError as error:
            raise _left(error, "is fenced: it fails") from error
        return wanted

    async def _replace(self, handle: TransactionHandle, seen: CommitMarker, wanted: CommitMarker) -> None:
        found = await self._read(require_stable=True)
        if found != seen:
            raise ResetFailed(
                f"The marker has moved to {found or 'nothing'} since it was looked at, so a query was running; it was left "
                "as it is. Stop the query, and look again."
            )
        await send_marker(self._client, handle, self._group, self._partition, wanted)
        await self._client.commit(handle)

    async def _read(self, *, require_stable: bool) -> CommitMarker | None:
        found = await self._client.committed(self._group, [self._partition], require_stable=require_stable)
        return CommitMarker.read(found[self._partition])


def _left(error: KafkaError, fenced: str) -> ResetFailed:
    # What a transaction's error adds to its cause is advice to whoever programs with it.
    why = error.__cause__ if isinstance(error, TransactionError) and error.__cause__ is not None else error
    return ResetFailed(f"The marker was left as it is: {why} A query that was running {fenced}, and loses nothing.")


def checked_batch(seen: CommitMarker, batch: int | None) -> int:
    """The batch to set the marker to. Raises `ResetRefused` for one that it may not be set to."""
    wanted = _NONE if batch is None else batch
    if seen.may_be_set_to(wanted):
        return wanted
    if wanted == seen.batch and seen.rows is None:
        raise ResetRefused(f"The marker has been set to that already: it tells of {seen}.")
    if batch is None:
        raise ResetRefused(f"There is nothing to set back: the marker tells of {seen}.")
    raise ResetRefused(
        f"The marker tells of {seen}, and cannot be set to batch {batch}, as batches that it skips would be lost. "
        + _takes(seen)
    )


def _takes(seen: CommitMarker) -> str:
    if seen.rows is None and seen.batch < seen.highest:
        return f"--batch takes 0 to {seen.highest}" + (f", other than {seen.batch}." if seen.batch >= 0 else ".")
    return f"--batch takes 0 to {seen.batch - 1}." if seen.batch > 0 else "Leave out --batch."
