"""Asks Kafka which slice a load has committed last, and refuses to write where the checkpoint does not know of it.

The checkpoint is a directory on some machine, and may be another one each time; the marker is where the rows are.
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

#: Seconds for which brokers are taken to keep a marker; offsets.retention.minutes is seven days, if nobody has made it less.
_MARKER_KEPT: Final = 24 * 3600.0


def job_of(load_id: str, slice_: int) -> str:
    """The option ``job.id`` with which a slice is written."""
    return f"{load_id}/{slice_}"


async def last_commit(config: ProducerConfig, load_name: str, topic: str) -> CommitMarker | None:
    """The marker of the transactional id; None where there is none. Raises what `MarkerReset.look` does.

    Cancellation: nothing was changed.
    """
    async with TransactionCoordinatorClient(config) as client:
        return await MarkerReset(client, load_name, topic).look()


def check_marker(marker: CommitMarker | None, log: LoadLog, load_id: str, load_name: str, checkpoint: Path) -> None:
    """Raise LoadRefused where rows might be written that are in Kafka already."""
    begun = [slice_.number for slice_ in log.slices if slice_.is_open]
    committed = [slice_.number for slice_ in log.slices if slice_.is_committed]
    if marker is None:
        if begun and (committed or log.age > _MARKER_KEPT):
            raise LoadRefused(
                f"The load of --id {load_name!r} was stopped while it wrote slice {begun[0]}, and Kafka's marker of it is "
                "gone (deleted, or expired by the brokers' offsets.retention.minutes): nobody can tell whether it was "
                "committed. Look at the topic; --again writes it."
            )
        return
    known = {job_query(job_of(load_id, number)) for number in (committed[-1:] + begun[:1])}
    if marker.query not in known:
        raise LoadRefused(
            f"A load of --id {load_name!r} has committed rows to this topic already ({marker}), and the checkpoint "
            f"{checkpoint} knows nothing of it: was that another directory, or was this one rolled back? Name the right one "
            "with --checkpoint, or choose another --id. To write the files once more, on purpose, add --again."
        )
