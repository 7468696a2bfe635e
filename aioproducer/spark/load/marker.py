"""Asks Kafka which slice a load committed last, and refuses to write if the checkpoint does not list it.

The checkpoint is a directory on some machine, and may be another one each time; the marker is stored with the rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aioproducer.config import ProducerConfig
from aioproducer.spark.exactly_once.commit_marker import CommitMarker
from aioproducer.spark.exactly_once.marker_reset import MarkerReset
from aioproducer.spark.exactly_once.task_attempt import job_query
from aioproducer.spark.load.log import LoadLog
from aioproducer.spark.load.state import LoadRefused
from aioproducer.transactions.client import TransactionCoordinatorClient

__all__ = ["check_marker", "job_of", "last_commit"]

#: How long brokers are assumed to keep a marker, in seconds; offsets.retention.minutes is seven days by default.
_MARKER_KEPT: Final = 24 * 3600.0


def job_of(load_id: str, slice_: int) -> str:
    """The option ``job.id`` of a slice."""
    return f"{load_id}/{slice_}"


async def last_commit(config: ProducerConfig, load_name: str, topic: str) -> CommitMarker | None:
    """The marker of the transactional id; None if there is none. Raises what `MarkerReset.look` does.

    Cancellation: nothing is changed.
    """
    async with TransactionCoordinatorClient(config) as client:
        return await MarkerReset(client, load_name, topic).look()


def check_marker(marker: CommitMarker | None, log: LoadLog, load_id: str, load_name: str, checkpoint: Path) -> None:
    """Raise LoadRefused if rows might be written that are in Kafka already."""
    begun = [slice_.number for slice_ in log.slices if slice_.is_open]
    committed = [slice_.number for slice_ in log.slices if slice_.is_committed]
    if marker is None:
        if begun and (committed or log.age > _MARKER_KEPT):
            raise LoadRefused(
                f"The load with --id {load_name!r} was stopped while it wrote slice {begun[0]}, and its marker in Kafka is "
                "gone (deleted, or expired by the brokers' offsets.retention.minutes): it is unknown whether it was "
                "committed. Check the topic; --again writes it."
            )
        return
    known = {job_query(job_of(load_id, number)) for number in (committed[-1:] + begun[:1])}
    if marker.query not in known:
        raise LoadRefused(
            f"A load with --id {load_name!r} has already committed rows to this topic ({marker}), but the checkpoint "
            f"{checkpoint} does not list them: was it in another directory, or rolled back? Set the right one with "
            "--checkpoint, or choose another --id. To write the files again on purpose, add --again."
        )
